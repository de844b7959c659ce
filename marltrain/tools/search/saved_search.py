"""The state of a search in a folder: the same call goes on with it after Ctrl-C, an error or the end of the process.

    <folder>/
      search.json      what is searched, and the outcomes of the trainings that have ended, with a checksum
      together/        checkpoints of the run of all trainings at once
      alone-<number>/  checkpoints of the run of one training
      run.lock         while the search is under way

search.json is replaced atomically, and a checkpoint is complete or absent. The file is checked before it is used, and
nothing in it is executed.
"""

from __future__ import annotations

import logging
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from marltrain.core.errors import ConfigError, SaveError, error_text, shown
from marltrain.core.remedies import written
from marltrain.core.version import __version__
from marltrain.storage.checks import counted, of_type
from marltrain.storage.files import check_own_checksum, made_folder, path_of, with_checksum, writing
from marltrain.storage.json_files import read_json, to_json, write_json
from marltrain.storage.json_values import decoded, encoded
from marltrain.storage.state import State
from marltrain.tools.search.training import Training
from marltrain.trainer.preparing.resume import check_resumable, difference_of, threads
from marltrain.trainer.saving.checkpoint import newest
from marltrain.trainer.saving.run_folder import LOCK, existing_folder
from marltrain.trainer.training.interrupted import print_how

LOGGER = logging.getLogger("marltrain")
FORMAT = "marltrain-search"
SCHEMA = 1
FILE, TOGETHER, ALONE = "search.json", "together", "alone-"
KEYS: dict[str, type] = {
    "format": str, "schema": int, "marltrain": str, "sha256": str, "about": dict, "threads": dict, "ended": dict,
    "repeated": list, "finished": bool,
}  # fmt: skip
"""Keys of search.json and their types; ended: number of a training -> its outcome, repeated: numbers of trainings."""


class Search:
    """Where the trainings of a search are saved: nowhere."""

    def begin(self, trainings: Sequence[Training]) -> list[Training]:
        """Give the trainings that have ended their outcomes; return those that are repeated alone after a failure."""
        return []

    def has_ended(self, training: Training) -> bool:
        """Return whether the outcome of a training is saved."""
        return False

    def run_dir(self, training: Training | None) -> Path | None:
        """Return the folder for the checkpoints of a training alone, or of all at once (None)."""
        return None

    def end(self, trainings: Sequence[Training], repeated: Sequence[Training] = ()) -> None:
        """Save the outcomes of trainings, and which others are repeated alone, since they failed together."""


class SavedSearch(Search):
    """A search in a folder, which is locked; see the module docstring."""

    def __init__(self, path: Path, about: Mapping[str, Any], *, agents: bool) -> None:
        """Open the search in a folder, or begin one.

        about: what is searched, as JSON values.
        agents: the trained agents are part of the result, so that checkpoints stay, and not only outcomes.
        Raises ConfigError for a folder of other things and for a search of something else, and SaveError for a damaged
        one.
        """
        self.path, self._agents, self._file = path, agents, path / FILE
        self._trainings: list[Training] = []
        self._content: dict[str, Any] = {
            "format": FORMAT, "schema": SCHEMA, "marltrain": __version__, "about": to_json(about), "threads": {},
            "ended": {}, "repeated": [], "finished": False,
        }  # fmt: skip
        self._found = self._file.exists()
        if not self._found:
            self._check_free()
            return
        data = _read(self._file)
        if difference := difference_of(data["about"], self._content["about"], ""):
            raise ConfigError(
                f"{path} holds a search with other settings: {difference}. Repeat the arguments of the search, or "
                f"{another_folder()}"
            )
        self._content = data

    def begin(self, trainings: Sequence[Training]) -> list[Training]:
        """See `Search`; raises ConfigError for another number of threads, and AgentError for agents without a state."""
        self._trainings = list(trainings)
        for training in trainings:
            check_resumable(training.agents)
        self._check_threads(threads([agent for training in trainings for agent in training.agents]))
        try:
            for number, outcome in self._content["ended"].items():
                training = trainings[counted("the number of a training", int(number), high=len(trainings) - 1)]
                training.take(decoded(outcome, State()))
            repeated = [counted("repeated", number, high=len(trainings) - 1) for number in self._content["repeated"]]
            if self._content["finished"] and not self._agents and not all(map(self.has_ended, trainings)):
                raise SaveError("it is finished, and the outcome of a training is missing")
        except Exception as error:  # invalid content may cause any exception
            raise SaveError(
                f"{self._file} cannot be resumed: {error_text(error)}. To begin again, {another_folder()}"
            ) from error
        if self._found:
            self._report()
        self._write()
        return [trainings[number] for number in repeated]

    def has_ended(self, training: Training) -> bool:
        """See `Search`."""
        return self._number(training) in self._content["ended"]

    def run_dir(self, training: Training | None) -> Path:
        """See `Search`; what a run without a complete checkpoint has left is removed."""
        folder = self.path / (TOGETHER if training is None else f"{ALONE}{self._number(training)}")
        if newest(folder) is None:
            _remove(folder)
        return folder

    def end(self, trainings: Sequence[Training], repeated: Sequence[Training] = ()) -> None:
        """See `Search`; the checkpoints of trainings that have ended are removed, unless agents are kept."""
        if self._agents:
            return
        for training in trainings:
            self._content["ended"][self._number(training)] = encoded(training.outcome(), "an outcome", {})
        self._content["repeated"] = self._content["repeated"] or [int(self._number(training)) for training in repeated]
        self._write()
        for training in trainings:
            _remove(self.path / f"{ALONE}{self._number(training)}")
        if repeated:
            _remove(self.path / TOGETHER)

    def finish(self) -> None:
        """Note that the search is complete, and remove all checkpoints, unless agents are kept."""
        self._content["finished"] = True
        self._write()
        if not self._agents:
            self._remove_runs()

    def give_back(self) -> None:
        """Remove the files of a search that has not begun."""
        if not (self._found or self._content["ended"] or self._content["repeated"] or any(map(newest, self._runs))):
            self._remove_runs()
            self._file.unlink(missing_ok=True)

    @property
    def _runs(self) -> list[Path]:
        return [self.path / TOGETHER, *(self.path / f"{ALONE}{i}" for i in range(len(self._trainings)))]

    def _remove_runs(self) -> None:
        for folder in self._runs:
            _remove(folder)

    def _number(self, training: Training) -> str:
        return str(next(i for i, other in enumerate(self._trainings) if other is training))

    def _write(self) -> None:
        write_json(self._file, with_checksum(self._content))
        for rest in self.path.glob(f".{self._file.stem}.*.part{self._file.suffix}"):  # left behind by a killed process
            rest.unlink(missing_ok=True)

    def _report(self) -> None:
        """Log what the folder holds; not a warning, since this is intended."""
        ended, last = len(self._content["ended"]), newest(self.path / TOGETHER)
        if self._content["finished"]:
            how = "this search is finished: nothing is trained"
        elif ended or self._content["repeated"]:
            how = f"the search goes on: {ended} of {len(self._trainings)} trainings have ended"
        else:
            how = f"the search goes on from env step {0 if last is None else last.name}"
        LOGGER.warning("%s: %s", self.path, how)

    def _check_free(self) -> None:
        """Raise ConfigError if the folder holds other things than the remains of a search that was killed at once."""
        remains = f".{self._file.stem}."
        other = [path.name for path in self.path.iterdir() if path.name != LOCK and not path.name.startswith(remains)]
        if other:
            held = f"it holds {min(other)!r}, and no {FILE}"
            raise ConfigError(f"{self.path} is not the folder of a search: {held}. Instead, {another_folder()}")

    def _check_threads(self, now: dict[str, int]) -> None:
        then = self._content["threads"] or now
        if then != now and not self._content["finished"]:
            name = next(name for name in sorted({*then, *now}) if then.get(name) != now.get(name))
            raise ConfigError(
                f"{self.path}: the search was begun with {shown(then.get(name))} threads of {name}, and there are "
                f"{now.get(name)}: sums differ in their last bits. Set OMP_NUM_THREADS={shown(then.get(name))}, or "
                f"{another_folder()}"
            )
        self._content["threads"] = then


@contextmanager
def search_in(resume: Any, about: Mapping[str, Any], *, agents: bool = False) -> Iterator[Search]:
    """Lock a folder, and open or begin the search in it; at the end of the block, the search is finished.

    resume: the folder, or None: the search is not saved.  about, agents: see `SavedSearch`.
    Raises ConfigError for a value that is not a path, and as `SavedSearch` does.
    """
    if resume is None:
        yield Search()
        return
    name = written("resume", "--storage")
    path = path_of(resume, name, ConfigError)
    if "://" in str(resume):
        raise ConfigError(f"{name} must be a folder, got {shown(str(resume))}: only studies of trials are in databases")
    is_new = not path.exists()
    folder = existing_folder(made_folder(path, name))
    try:
        search = SavedSearch(folder.path, about, agents=agents)
        with _going_on(search):
            yield search
            search.finish()
    finally:
        folder.release()
        with suppress(OSError):  # not empty
            if is_new:
                path.rmdir()


@contextmanager
def _going_on(search: SavedSearch) -> Iterator[None]:
    """Print after an interrupt how the search goes on; a search that fails before it has begun leaves no files."""
    try:
        yield
    except KeyboardInterrupt:
        if line := written(f"interrupted; the same call goes on with the search: resume={str(search.path)!r}", ""):
            print_how(line)
        raise
    except Exception:
        search.give_back()
        raise


def another_folder() -> str:
    """Return the remedy for a folder that cannot be used, as the user writes it."""
    return written("name another folder: resume=...", "name another folder: --storage FOLDER")


def _remove(folder: Path) -> None:
    """Remove a folder of checkpoints; raises SaveError if it cannot be removed."""
    with writing(folder):
        if folder.exists():
            shutil.rmtree(folder)


def _read(file: Path) -> dict[str, Any]:
    """Read and check search.json; raises SaveError, naming it, for a damaged one."""
    found = read_json(file)
    if not isinstance(found, dict) or found.get("format") != FORMAT:
        raise SaveError(f"{file}: does not describe a search: its format is not {FORMAT!r}")
    check_own_checksum(file, found)
    if found.get("schema") != SCHEMA:
        version = found.get("marltrain")
        raise SaveError(
            f"{file}: schema {found.get('schema')!r}, written by marltrain {version}; {__version__} reads schema "
            f"{SCHEMA}. Go on with marltrain {version}, or {another_folder()}"
        )
    if set(found) != set(KEYS):
        raise SaveError(f"{file}: keys missing or unknown: {', '.join(sorted(set(found) ^ set(KEYS)))}")
    for name, kind in KEYS.items():
        of_type(f"{file}: {name!r}", found[name], kind)
    return found
