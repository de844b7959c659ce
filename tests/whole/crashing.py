"""Runs that are killed at random moments, resumed, and end as if nothing had happened.

`python -m tests.whole.crashing TIMES [SEED]` kills that many; it is given its own process, and forks the runs from it.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
import tempfile
import time
import traceback
import warnings
from pathlib import Path

import numpy as np

import marltrain as mt
from tests.whole.resuming import CASES

NAMES = ("ppo by turns", "dqn", "ragged", "native", "league")
EVERY = 15
"""Env steps between checkpoints: writing them takes a good part of such a run."""


def main() -> None:
    """Kill runs; say whether all ended as they should, and how many were killed while writing a checkpoint."""
    times, seed = int(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 0
    rng = np.random.default_rng(seed)
    folder, names = Path(tempfile.mkdtemp()), NAMES[:times]
    for name in names:  # what runs load and compile is there for all children
        CASES[name].train(folder / "first" / name, 2 * EVERY, callbacks=[mt.Checkpoint(every_steps=EVERY)])
    expected, seconds = {}, {}
    for name in names:
        started = time.monotonic()
        finish(name, folder / "whole" / name)
        seconds[name] = time.monotonic() - started
        expected[name] = result(folder / "whole" / name)
    saving = 0
    for number in range(times):
        name, run = names[number % len(names)], folder / f"{number}"
        kill(name, run, rng.uniform(0.1, 1.0) * seconds[name])
        saving += bool([*run.glob("checkpoints/.*")])
        finish(name, run)
        ended = result(run)
        wrong = [what for what in expected[name] if ended[what] != expected[name][what]]
        if wrong:
            raise SystemExit(f"crash {number} of {name!r} (seed {seed}), {run}: {', '.join(wrong)} differ")
    shutil.rmtree(folder)
    print(f"{times} of {times} runs ended as the uninterrupted ones; {saving} were killed while writing a checkpoint")


def train(name: str, run: Path) -> None:
    """Run, or go on with, a case, and write down what is left of it."""
    warnings.filterwarnings("ignore", message=".*holds no finished checkpoint")
    case = CASES[name]
    left = case.train(run, case.steps, resume=run, callbacks=[mt.Checkpoint(every_steps=EVERY)])
    result = run / "left.part"
    result.write_text(json.dumps(left))
    result.rename(run / "left.json")


def result(run: Path) -> dict[str, object]:
    """What is left of a run that ended."""
    return dict(json.loads((run / "left.json").read_text()))


def start(name: str, run: Path) -> int:
    """Train in a child process; return its number."""
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        train(name, run)
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)


def finish(name: str, run: Path) -> None:
    """Train to the end."""
    _, status = os.waitpid(start(name, run), 0)
    if status:
        raise SystemExit(f"{name!r} in {run}, which nobody killed, failed")


def kill(name: str, run: Path, seconds: float) -> None:
    """Train, and kill that after some seconds, if it still runs."""
    pid = start(name, run)
    time.sleep(seconds)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)


if __name__ == "__main__":
    main()
