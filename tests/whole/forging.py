"""Checkpoints as somebody might forge them: altered anywhere, with checksums that are right, and then resumed.

`python -m tests.whole.forging CASES [SEED] [KIND ...]` resumes so many, each in a process of its own that is forked
from one which has everything loaded and compiled. Each is refused by a SaveError, or the run goes on to its end.
"""

from __future__ import annotations

import collections
import contextlib
import copy
import faulthandler
import gc
import json
import os
import select
import shutil
import signal
import sys
import tempfile
import time
import traceback
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import marltrain as mt
from marltrain.core.errors import AgentError, ConfigError, SaveError
from marltrain.storage import files
from marltrain.trainer.saving.checkpoint import ARRAYS, FILES, FOLDER, MANIFEST, MEMORY, VALUES, find
from tests.whole.forged_kinds import KINDS
from tests.whole.forgeries import altered
from tests.whole.resuming import Case

LIMIT = 120.0
"""Seconds after which a run counts as hanging: it takes a fraction of one where nothing else runs."""
SHORT = 60
"""Env steps that a resumed run plays."""
FORKS_COLD = ("tensorflow",)
"""What has threads once it computes, and is not forked from then on: each process begins with it, which takes long.

Only when it is named.
"""


@dataclass
class Checkpoint:
    """A checkpoint to alter.

    told: its manifest.  info: what state.json holds.  arrays: those of either file, by the file's name.
    """

    case: Case
    at: int
    told: dict[str, Any]
    info: dict[str, Any]
    arrays: dict[str, dict[str, np.ndarray]]


def main() -> None:
    """Forge and resume; say what came of it, and fail where something came of it that may not."""
    count, seed, *kinds = int(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 0, *sys.argv[3:]
    folder, started = Path(tempfile.mkdtemp()), time.monotonic()
    warnings.simplefilter("ignore")
    files._flush = lambda path: None  # nothing is to outlive this machine
    names = kinds or [name for name in KINDS if name not in FORKS_COLD]
    templates = {name: made(KINDS[name], folder / name, cold=name in FORKS_COLD) for name in names}
    print(f"{len(names)} kinds of runs are ready after {time.monotonic() - started:.0f} s", flush=True)
    gc.collect()
    gc.freeze()
    came: collections.Counter[str] = collections.Counter()
    for i in range(count):
        name = names[i % len(names)]
        outcome, what = resumed(templates[name], [seed, i], folder / "case")
        came[outcome] += 1
        if outcome.startswith("FAILED"):
            print(f"case {i} of seed {seed}, {name}: {outcome}\n{what}", flush=True)
        if (i + 1) % 200 == 0:
            print(f"{i + 1} after {time.monotonic() - started:.0f} s: {dict(came)}", flush=True)
    shutil.rmtree(folder)
    print(f"{count} forged checkpoints in {time.monotonic() - started:.0f} s: {dict(came)}")
    sys.exit(any(outcome.startswith("FAILED") for outcome in came))


def made(case: Case, folder: Path, *, cold: bool = False) -> Checkpoint:
    """Run a case and read its last checkpoint; then resume it once, so that all that is needed is loaded.

    cold: run it in a process of its own, and do not resume it.
    """
    if cold:
        aside(lambda: trained(case, folder, case.at))
    else:
        trained(case, folder, case.at)
    found = find(folder)
    assert found is not None
    path = folder / FOLDER / str(case.at)
    arrays = {name: files.read_arrays(path / name) for name in (ARRAYS, MEMORY)}
    checkpoint = Checkpoint(case, case.at, json.loads((path / MANIFEST).read_text()), found.state.info, arrays)
    if not cold:
        trained(case, folder, case.at + SHORT, resume=folder)
    return checkpoint


def trained(case: Case, folder: Path, steps: int, **how: Any) -> None:
    """Play to so many env steps, with a checkpoint then."""
    case.train(folder, steps, callbacks=[mt.Checkpoint(every_steps=10**6)], **how)


def aside(work: Any) -> None:
    """Do something in a process of its own."""
    pid = os.fork()
    if pid == 0:
        with quiet():
            work()
        os._exit(0)
    assert os.waitpid(pid, 0)[1] == 0


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Show nothing of what is printed."""
    with open(os.devnull, "w") as nowhere, contextlib.redirect_stdout(nowhere), contextlib.redirect_stderr(nowhere):
        yield


def resumed(checkpoint: Checkpoint, seed: list[int], folder: Path) -> tuple[str, str]:
    """Alter a checkpoint and resume it in a process of its own; return what came of it, and the whole story."""
    inlet, outlet = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(inlet)
        data = "FAILED: nothing is told", ""
        with open(outlet, "wb") as file, open(folder.with_name("crash"), "w+") as crash:
            faulthandler.enable(crash)
            try:
                data = attempt(checkpoint, seed, folder)
            except BaseException as error:
                data = "FAILED: it was not forged", "".join(traceback.format_exception(error))
                raise
            finally:
                file.write(json.dumps(data).encode())
                file.flush()
                os._exit(0)
    os.close(outlet)
    status = waited(pid, inlet)
    with open(inlet, "rb") as file:
        answer = file.read()
    shutil.rmtree(folder, ignore_errors=True)
    if status is None:
        return "FAILED: it hangs", story(checkpoint, seed)
    if status != 0 or not answer:
        return f"FAILED: status {status}", story(checkpoint, seed) + folder.with_name("crash").read_text()
    outcome, what = json.loads(answer)
    return outcome, what


def waited(pid: int, inlet: int) -> int | None:
    """Return the status that a process ends with, None where it had to be ended."""
    select.select([inlet], [], [], LIMIT)
    for _ in range(2000):
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended:
            return status
        time.sleep(0.01)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    return None


def story(checkpoint: Checkpoint, seed: list[int]) -> str:
    """Return what was altered."""
    return "\n".join(forged(checkpoint, seed)[1])


def attempt(checkpoint: Checkpoint, seed: list[int], folder: Path) -> tuple[str, str]:
    """Forge a checkpoint in a folder and resume it; return what came of it, and the whole story."""
    with warnings.catch_warnings(), quiet():
        warnings.simplefilter("ignore")
        there, changes = forged(checkpoint, seed)
        written(there, folder)
        steps = checkpoint.at + SHORT
        try:
            trained(checkpoint.case, folder, steps, resume=folder)
        except BaseException as error:
            text = "".join(traceback.format_exception(error))
            return judged(error), "\n".join([*changes, text[-3000:]])
    return "resumed", ""


def judged(error: BaseException) -> str:
    """Return what an error counts as."""
    text = str(error)
    if isinstance(error, SaveError):
        return "SaveError"
    if isinstance(error, ConfigError) and any(words in text for words in ("by this call", "with seed", "threads of")):
        return "ConfigError: of another call"
    if isinstance(error, AgentError) and "it must be finite" in text:
        return "AgentError: numbers too large to learn from"
    return f"FAILED: {type(error).__name__}"


def forged(checkpoint: Checkpoint, seed: list[int]) -> tuple[Checkpoint, list[str]]:
    """Return an altered copy, and what was altered."""
    result, rng = copy.deepcopy(checkpoint), np.random.default_rng(seed)
    changes = [altered(result.told, result.info, result.arrays, rng) for _ in range(rng.choice([1, 1, 1, 2, 3]))]
    return result, changes


def written(checkpoint: Checkpoint, run: Path) -> None:
    """Write a run's folder with this checkpoint, its checksums right."""
    data = checkpoint.told
    at = data.get("env_steps")
    folder = run / FOLDER / str(at if type(at) is int and 0 <= at < 2**64 else checkpoint.at)
    folder.mkdir(parents=True)
    (run / "config.json").write_text("{}")
    (folder / VALUES).write_text(json.dumps(checkpoint.info))
    for name, arrays in checkpoint.arrays.items():
        (folder / name).write_bytes(files.pack_arrays(arrays))
    if isinstance(data.get("files"), dict) and set(data["files"]) == set(FILES.files):
        data["files"] = {name: files.sha256(folder / name) for name in FILES.files}
    (folder / MANIFEST).write_text(json.dumps(files.with_checksum(data)))


if __name__ == "__main__":
    main()
