"""Runs after trainings of the same process that were aborted anywhere: they end as in a process of their own.

`python -m tests.whole.aborted RUNS [LOAD] [SEED] [KIND ...]` compares so many runs, while LOAD processes keep the
processors busy. Before each, a signal aborts another training at a random moment: in code of an environment, of a
framework, or of marltrain.
"""

from __future__ import annotations

import collections
import importlib.util
import json
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout, suppress
from pathlib import Path
from typing import Any

import numpy as np

import marltrain as mt
from tests.whole.forged_kinds import KINDS
from tests.whole.resuming import SMALL, Case

HANABI = "pettingzoo/classic/hanabi_v5"
BUSY = "while True: pass"
STEPS = 150
"""Env steps of a run."""
AFTER = (0.02, 0.8)
"""Shares of a run's duration within which it is aborted."""
BETWEEN = 0.0005
"""Seconds between two tries to meet the code in which a training is to be aborted."""
ANYWHERE, ENVIRONMENT, FRAMEWORK = "anywhere", "environment", "framework"
OWNERS = {
    "/torch/": FRAMEWORK, "/numpy/": FRAMEWORK, "/pettingzoo/": ENVIRONMENT, "/gymnasium/": ENVIRONMENT,
    "/shimmy/": ENVIRONMENT, "/marltrain/envs/native/": ENVIRONMENT, "_toys.py": ENVIRONMENT, "/toys.py": ENVIRONMENT,
    "_games.py": ENVIRONMENT, "/marltrain/": "marltrain",
}  # fmt: skip
"""Part of the name of a file -> whose code it is."""


def _hanabi(algo: str, **more: Any) -> Case:
    return Case(HANABI, lambda: mt.make_agents(algo, HANABI, seed=1, network=SMALL, **more), settings={"test_freq": 99})


NAMES = ("ppo", "dqn by turns", "gymnasium", "custom", "boxes and pictures", "gru by turns", "mappo", "qmix", "noisy",
         "compiled dqn by turns", "compiled ppo of three", "priorities", "hindsight",
         "acer and trpo by turns")  # fmt: skip
CASES = {name: KINDS[name] for name in NAMES}
if importlib.util.find_spec("shimmy") is not None:  # the game's environment needs it; no extra installs it
    few: dict[str, Any] = {"learning_starts": 30, "batch_size": 16}
    CASES |= {
        "hanabi ppo": _hanabi("ppo"),
        "hanabi dqn": _hanabi("dqn", **few),
        "hanabi rainbow": _hanabi("rainbow", **few),
    }


class AbortedError(Exception):
    """Raised by the handler of the signal, as limits of time in tests are; or `KeyboardInterrupt`, as by Ctrl-C."""


def main() -> None:
    """Abort and compare; say where trainings were aborted, and fail where a run differs."""
    count, load, seed = (int(sys.argv[i]) if len(sys.argv) > i else usual for i, usual in ((1, 500), (2, 2), (3, 0)))
    cases = {name: CASES[name] for name in sys.argv[4:] or CASES}
    warnings.simplefilter("ignore")
    folder, rng, started = Path(tempfile.mkdtemp()), np.random.default_rng(seed), time.monotonic()
    places: collections.Counter[str] = collections.Counter()
    wrong = 0
    with busy(load):
        expected, seconds = alone(cases, folder)
        print(f"{len(cases)} kinds of runs are ready after {time.monotonic() - started:.0f} s", flush=True)
        names = list(cases)
        for i in range(count):
            other = names[rng.integers(len(names))]
            error = (KeyboardInterrupt, AbortedError)[rng.integers(2)]
            wanted = (ANYWHERE, ENVIRONMENT, FRAMEWORK)[rng.integers(3)]
            places[aborted(cases[other], folder, rng.uniform(*AFTER) * seconds[other], error, wanted)] += 1
            name = names[i % len(names)]
            data = differences(expected[name], lambda name=name: run(cases[name], folder))  # type: ignore[misc]
            if data:
                wrong += 1
                print(f"run {i} of seed {seed}, {name!r} after {other!r}: {data}", flush=True)
            if (i + 1) % 50 == 0:
                print(f"{i + 1} after {time.monotonic() - started:.0f} s, {wrong} differ; {dict(places)}", flush=True)
    shutil.rmtree(folder)
    print(f"{count - wrong} of {count} runs are equal to those before trainings were aborted, in: {dict(places)}")
    sys.exit(wrong > 0)


@contextmanager
def busy(load: int) -> Iterator[None]:
    """Keep `load` processes computing."""
    others = [subprocess.Popen([sys.executable, "-c", BUSY]) for _ in range(load)]
    try:
        yield
    finally:
        for other in others:
            other.kill()
            other.wait()


def alone(cases: dict[str, Case], folder: Path) -> tuple[dict[str, Any], dict[str, float]]:
    """Return what each kind of run leaves before anything is aborted, and its seconds; twice, which must be equal."""
    expected, seconds = {}, {}
    for name, case in cases.items():
        expected[name] = run(case, folder)
        begun = time.monotonic()
        if data := differences(expected[name], lambda case=case: run(case, folder)):  # type: ignore[misc]
            raise SystemExit(f"two runs of {name!r} differ before any was aborted: {data}")
        seconds[name] = time.monotonic() - begun
    return expected, seconds


def run(case: Case, folder: Path) -> Any:
    """Run a case without a display; return what is left of it, but for what is measured in seconds."""
    run_dir = folder / "run"
    shutil.rmtree(run_dir, ignore_errors=True)
    with open("/dev/null", "w") as nowhere, redirect_stdout(nowhere), redirect_stderr(nowhere):
        return json.loads(json.dumps(case.train(run_dir, STEPS)))


def differences(expected: Any, again: Callable[[], Any]) -> str:
    """Return which parts of a run are others than expected, or its error; "" if there are none."""
    try:
        came = again()
    except Exception:
        return traceback.format_exc()[-2000:]
    return ", ".join(name for name in expected if came[name] != expected[name])


def aborted(case: Case, folder: Path, after: float, error: type[BaseException], wanted: str) -> str:
    """Abort a training after so many seconds, as soon as code of `wanted` runs; return whose code it was."""
    place = "nothing: it had ended"

    def raising(number: int, frame: Any) -> None:
        nonlocal place
        if wanted not in (whose := owners(frame)):
            signal.setitimer(signal.ITIMER_REAL, BETWEEN)
            return
        place = wanted if wanted != ANYWHERE else whose[0]
        raise error

    before = signal.signal(signal.SIGALRM, raising)
    signal.setitimer(signal.ITIMER_REAL, after)
    try:
        with suppress(KeyboardInterrupt, Exception):  # whatever the signal made of it
            run(case, folder)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    return place


def owners(frame: Any) -> list[str]:
    """Return whose code runs in a frame and in those that called it, innermost first, and `ANYWHERE`."""
    found = []
    while frame is not None:
        file = frame.f_code.co_filename
        found.append(next((whose for part, whose in OWNERS.items() if part in file), "other code"))
        frame = frame.f_back
    return [*found, ANYWHERE]


if __name__ == "__main__":
    main()
