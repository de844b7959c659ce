"""Checkpoints: their schedule and their folders.

    <run>/checkpoints/<env steps>/
      checkpoint.json       manifest: facts of the run, and the checksum of every file, including its own
      state.json            JSON values of the state
      run.safetensors       arrays: weights, optimizer moments, environments, tables
      memory.safetensors    arrays: rollouts and replay buffers

A folder is written under a temporary name and then moved, so that an existing checkpoint is always complete. Nothing is
unpickled.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from marltrain.core.errors import ConfigError, EnvError, SaveError, error_text, shown
from marltrain.core.seeds import MOST_SEED
from marltrain.core.settings import checked_arguments, setting, validate
from marltrain.storage.checks import counted, of_type
from marltrain.storage.files import (
    complete_folder,
    path_of,
    read_arrays,
    replacing_folder,
    write_arrays,
)
from marltrain.storage.json_files import read_json, write_json
from marltrain.storage.manifest import HEADER, Manifest
from marltrain.storage.state import State
from marltrain.trainer.events.callbacks import Callback, Moment
from marltrain.trainer.events.counters import Counters
from marltrain.trainer.events.due import passed

FOLDER = "checkpoints"
MANIFEST, VALUES, ARRAYS, MEMORY = "checkpoint.json", "state.json", "run.safetensors", "memory.safetensors"
FILES = Manifest(
    "marltrain-checkpoint", 1, "a checkpoint", MANIFEST, (VALUES, ARRAYS, MEMORY),
    ". Resume it with marltrain {version}, or load the run's agents with marltrain.load and start a new run",
)  # fmt: skip
KEYS: dict[str, type] = {
    "format": str, "schema": int, "marltrain": str, "sha256": str, "files": dict, "env_steps": int, "episodes": int,
    "best": bool, "seed": int, "call": dict, "versions": dict, "threads": dict, "reproducible": bool,
}  # fmt: skip
"""Keys of a manifest and their types."""
_NAMED = re.compile(r"\.?(\d+)(\.previous)?")


@dataclass(frozen=True, kw_only=True)
class _Settings:
    every_episodes: int | None = setting(None, doc="episodes between checkpoints", low=1)
    every_steps: int | None = setting(None, doc="env steps between checkpoints", low=1)
    every_minutes: float | None = setting(None, doc="minutes between checkpoints", above=0)
    keep: int = setting(2, doc="newest checkpoints to keep", low=1)
    best: bool = setting(False, doc="also keep the checkpoint after the best test")
    memory: bool = setting(True, doc="include rollouts and replay memories")


class Checkpoint(Callback):
    """Saves the complete state of the run at intervals; `train(..., resume=run_dir)` continues from it.

    every_episodes, every_steps, every_minutes: intervals in episodes, env steps and minutes. Give at least one; the
    first one reached counts. Another checkpoint is written when training ends or is interrupted.
    keep: number of newest checkpoints to keep.
    best: also write a checkpoint after each test that is the best so far, and keep the last of these.
    memory: False leaves out rollouts and replay buffers, which may be large. A run resumed from such a checkpoint is
    not identical to the uninterrupted run.

    Raises ConfigError for a wrong argument.
    """

    @checked_arguments
    def __init__(
        self,
        *,
        every_episodes: int | None = None,
        every_steps: int | None = None,
        every_minutes: float | None = None,
        keep: int = 2,
        best: bool = False,
        memory: bool = True,
    ) -> None:
        """Check the arguments."""
        self.settings = _Settings(
            every_episodes=every_episodes, every_steps=every_steps, every_minutes=every_minutes, keep=keep, best=best,
            memory=memory,
        )  # fmt: skip
        validate(self.settings, "Checkpoint")
        if every_episodes is None and every_steps is None and every_minutes is None:
            raise ConfigError("Checkpoint: give an interval: every_episodes=, every_steps= or every_minutes=")
        self._last = (0, 0, 0.0)

    def on_train_start(self, moment: Moment) -> None:
        """Start counting the intervals."""
        self._last = (moment.episodes, moment.env_steps, moment.seconds)

    def state_dict(self) -> dict[str, Any]:
        """Return the counts at which the intervals began."""
        return {"last": list(self._last)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore what `state_dict` returned; raises SaveError for counts after those of now."""
        episodes, steps, seconds = of_type("last", state["last"], list)
        most = self._last
        seconds = of_type("seconds", seconds, float, int)
        if not 0 <= seconds <= most[2]:
            raise SaveError(f"seconds must be from 0 to {most[2]:g}, got {seconds!r}")
        self._last = counted("episodes", episodes, high=most[0]), counted("steps", steps, high=most[1]), float(seconds)

    def due(self, counters: Counters, seconds: float, *, best: bool) -> bool:
        """Return whether a checkpoint is due now; best: the test just played is the best so far."""
        settings, (episodes, steps, _) = self.settings, self._last
        due = (
            passed(episodes, counters.episodes, settings.every_episodes)
            or passed(steps, counters.env_steps, settings.every_steps)
            or self.late(seconds)
        )
        if due:
            self._last = (counters.episodes, counters.env_steps, seconds)
        return due or (best and settings.best)

    def late(self, seconds: float) -> bool:
        """Return whether a checkpoint is due by `every_minutes`."""
        every = self.settings.every_minutes
        return every is not None and seconds - self._last[2] >= 60 * every


def sole(callbacks: tuple[Callback, ...]) -> Checkpoint | None:
    """Return the Checkpoint among a trainer's callbacks, or None; raises ConfigError for several."""
    found = [callback for callback in callbacks if isinstance(callback, Checkpoint)]
    if len(found) > 1:
        raise ConfigError(f"callbacks hold {len(found)} Checkpoints, which would remove each other's files: give one")
    return found[0] if found else None


# Writing


def write(run_dir: Path, content: Mapping[str, Any], state: State, *, keep: int) -> Path:
    """Write a checkpoint and remove old ones; return its folder.

    content: the manifest without its header.  state: its arrays under "memory/" get a file of their
    own.  keep: number of newest checkpoints to keep.
    Raises SaveError if it cannot be written; earlier checkpoints then remain.
    """
    path = run_dir / FOLDER / str(content["env_steps"])
    before = newest(run_dir)
    try:
        with replacing_folder(path) as folder:
            _fill(folder, content, state)
    except SaveError as error:
        kept = f"The previous checkpoint, {before}, is complete" if before else "There is no previous checkpoint"
        raise SaveError(f"{error}. {kept}") from error
    try:
        _prune(path.parent, content["env_steps"], keep)
    except OSError as error:
        raise SaveError(f"{path} is written, but older ones cannot be removed: {error.strerror or error}") from error
    return path


def _fill(folder: Path, content: Mapping[str, Any], state: State) -> None:
    memory = {name: array for name, array in state.arrays.items() if name.startswith("memory/")}
    rest = {name: array for name, array in state.arrays.items() if name not in memory}
    write_json(folder / VALUES, state.info)
    write_arrays(folder / ARRAYS, rest)
    write_arrays(folder / MEMORY, memory)
    FILES.write(folder, content)


def _prune(folder: Path, now: int, keep: int) -> None:
    """Remove all checkpoints but the newest `keep` and the best.

    Checkpoints after env step `now` are removed, too: this run was resumed from an earlier one.
    """
    numbers = _numbers(folder)
    past = [number for number in numbers if number <= now]
    best = [number for number in past if _is_best(folder / str(number))]
    stay = {*past[-keep:], *best[-1:]}
    for number in numbers:
        if number not in stay:
            gone = folder / f".{number}.removed"
            for path in (folder / str(number), folder / f".{number}.previous"):
                if path.exists():
                    shutil.rmtree(gone, ignore_errors=True)
                    os.replace(path, gone)  # a rename is atomic: no partial checkpoint remains under the name
                    shutil.rmtree(gone)
    for rest in [*folder.glob(".*.part"), *folder.glob(".*.removed")]:  # left behind by a killed process
        shutil.rmtree(rest, ignore_errors=True)


def _is_best(path: Path) -> bool:
    """Return whether a checkpoint was written after the best test so far; False for a damaged one."""
    try:
        return bool(_manifest(path)["best"])
    except SaveError:
        return False


# Reading


@dataclass(frozen=True)
class FoundCheckpoint:
    """A checkpoint read from disk.

    path: its folder.  run_dir: the run's folder.  manifest: its manifest.  state: the state of the run.
    """

    path: Path
    run_dir: Path
    manifest: Mapping[str, Any]
    state: State

    @property
    def memory(self) -> bool:
        """Whether the checkpoint holds rollouts and replay buffers."""
        return "memory" in self.state.info

    @contextmanager
    def taken(self) -> Iterator[None]:
        """Turn any exception of the `with` block into a SaveError that names the checkpoint; an EnvError passes."""
        try:
            yield
        except EnvError:
            raise
        except Exception as error:  # invalid content may cause any exception
            raise SaveError(f"{self.path} cannot be resumed: {error_text(error)}") from error


def run_of(resume: str | Path) -> Path:
    """Return the folder of the run that `resume` names, a run's folder or one of its checkpoints; it may not exist.

    Raises ConfigError for a value that is not a path, and for a file or folder that does not belong to a run.
    """
    if not isinstance(resume, str | Path):
        raise ConfigError(f"resume must be the folder of a run, or of one of its checkpoints, got {shown(resume)}")
    path = path_of(resume, "resume", ConfigError)
    if _is_checkpoint(path):
        return path.resolve().parent.parent
    if path.is_file():
        raise ConfigError(f"resume={str(resume)!r} is a file: give the folder of a run")
    if path.is_dir() and any(path.iterdir()) and not begun(path):
        raise ConfigError(f"resume={str(resume)!r} is not the folder of a run: it holds no config.json. "
                          f"Give a run's folder, or one of its checkpoints ({FOLDER}/<env steps> in it)")  # fmt: skip
    return path


def begun(run_dir: Path) -> bool:
    """Return whether a folder holds a run: config.json or checkpoints; a killed run may have only one of them."""
    return any((run_dir / name).exists() for name in ("config.json", FOLDER))


def find(resume: str | Path) -> FoundCheckpoint | None:
    """Read the newest checkpoint of a run's folder, or the named checkpoint; return None if the run has none.

    Raises ConfigError like `run_of`, and SaveError, naming the file, for a damaged or missing checkpoint.
    """
    run_dir, path = run_of(resume), path_of(resume, "resume", ConfigError)
    if _is_checkpoint(path):
        return _read(path, run_dir)
    last = newest(path)
    if last is None:
        return None
    try:
        return _read(last, path)
    except SaveError as error:
        older = [str(path / FOLDER / str(number)) for number in _numbers(path / FOLDER)[-2::-1]]
        hint = f"An older checkpoint can be named: resume={older[0]!r}" if older else "The run has no older checkpoint"
        raise SaveError(f"{error}. {hint}") from error


def _is_checkpoint(path: Path) -> bool:
    whole = path.resolve()
    return whole.parent.name == FOLDER and whole.name.isdecimal()


def newest(run_dir: Path) -> Path | None:
    """Return the folder of a run's newest checkpoint, or None."""
    numbers = _numbers(run_dir / FOLDER)
    return run_dir / FOLDER / str(numbers[-1]) if numbers else None


def all_of(run_dir: Path) -> list[Path]:
    """Return the folders of a run's checkpoints, oldest first."""
    return [run_dir / FOLDER / str(number) for number in _numbers(run_dir / FOLDER)]


def _numbers(folder: Path) -> list[int]:
    """Return the env steps of the checkpoints in a folder, oldest first."""
    if not folder.is_dir():
        return []
    named = (_NAMED.fullmatch(path.name) for path in folder.iterdir() if path.is_dir())
    return sorted({int(match[1]) for match in named if match and match[0].startswith(".") == bool(match[2])})


def _read(path: Path, run_dir: Path) -> FoundCheckpoint:
    """Read and check a checkpoint; raises SaveError, naming the file, for a damaged one."""
    folder, number = complete_folder(path), path.resolve().name
    if folder.resolve().parent != folder.parent.resolve():
        raise SaveError(f"{folder}: is a link to {folder.resolve()}, out of its folder: put the checkpoint there")
    data = _manifest(path)
    if str(data["env_steps"]) != number:
        raise SaveError(f"{folder / MANIFEST}: is of env step {data['env_steps']}, in the folder of env step {number}")
    FILES.check(folder, data)
    info = read_json(folder / VALUES)
    if not isinstance(info, dict):
        raise SaveError(f"{folder / VALUES}: does not hold the state of a run, but a {type(info).__name__}")
    state = State(info, {**read_arrays(folder / ARRAYS), **read_arrays(folder / MEMORY)})
    return FoundCheckpoint(path, run_dir, data, state)


def _manifest(path: Path) -> dict[str, Any]:
    """Read a checkpoint's manifest; raises SaveError unless it has exactly the KEYS, with values of their types."""
    folder = complete_folder(path)
    found, file = FILES.read_alone(folder, set(KEYS) - HEADER), folder / MANIFEST
    for name, kind in KEYS.items():
        if type(found[name]) is not kind or (kind is int and found[name] < 0):
            wanted = f"of type {kind.__name__}" + (", and no less than 0" if kind is int else "")
            raise SaveError(f"{file}: {name!r} must be {wanted}, got {found[name]!r:.80}")
    if found["seed"] > MOST_SEED:
        raise SaveError(f"{file}: 'seed' must be below 2**63, got {found['seed']!r:.80}")
    return found
