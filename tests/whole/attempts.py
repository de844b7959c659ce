"""What becomes of configurations: each is refused with the name of what is wrong, or its run works.

python -m tests.whole.attempts 5000
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import signal
import sys
import tempfile
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any
from unittest.mock import patch

from hypothesis import HealthCheck, Phase, given, settings

import marltrain as mt
from marltrain.trainer.preparing.preflight import NOTHING
from marltrain.trainer.training.run import Run
from tests.whole.configurations import VALID, Configuration
from tests.whole.spoiling import configurations

LONGEST = 50
"""Batch steps after which a run that has lost its budgets is ended."""
MEMORY = "/dev/shm" if os.path.isdir("/dev/shm") else None
"""Where runs are written: to a disk, each would wait for it."""
FITTING: dict[str, tuple[str, ...]] = {
    "agents": ("learning_mask", "player"),
    "algo": ("algorithm",),
    "critic_network": ("network",),
    "env": ("env_args", "environment", "learning_mask", "exploration_mask", "agents", "player", "model"),
    "env_arg": ("environment", "num_rounds"),
    "env_args": ("environment", "num_rounds", "possible_agents"),
    "loss_fn": ("losses",),
    "memory": ("Rollouts", "Replay"),
    "name": ("setting",),
    "optimizers": ("losses",),
}
"""What does not fit any more where an argument is another one, and what it is called then."""
SLOW = 5.0
"""Seconds of computing that no attempt may take."""
HANGS = 60
"""Seconds after which one is given up."""


@dataclass
class Tally:
    """How many were refused, how many worked, and what went wrong with others, by kind."""

    refused: int = 0
    worked: int = 0
    seconds: float = 0.0
    slowest: tuple[float, str] = (0.0, "")
    faults: dict[str, list[str]] = field(default_factory=dict)
    errors: Counter[str] = field(default_factory=Counter)

    def fault(self, kind: str, configuration: Configuration, said: str) -> None:
        """Note what went wrong."""
        self.faults.setdefault(kind, []).append(f"{configuration!r} -> {said[:300]}")

    def __str__(self) -> str:
        """Return the figures, and an example of each kind of fault."""
        kinds = ", ".join(f"{name} {number}" for name, number in self.errors.most_common())
        lines = [f"{self.refused} refused ({kinds}), {self.worked} worked, {self.seconds:.0f} s; the slowest took "
                 f"{self.slowest[0]:.1f} s: {self.slowest[1]}"]  # fmt: skip
        for kind, examples in self.faults.items():
            lines.append(f"FAULT, {len(examples)} times: {kind}\n    {examples[0]}")
        return "\n".join(lines)


class _Watch:
    """Counts the batch steps of training, and ends a run that lost its budgets."""

    def __init__(self) -> None:
        self.steps, self._collect = 0, Run.collect

    def collect(self, run: Run) -> int:
        self.steps += 1
        if self.steps >= LONGEST:
            run.stop("long enough")
        return self._collect(run)


@contextlib.contextmanager
def _limited() -> Iterator[None]:
    """Raise TimeoutError where something hangs."""

    def hangs(*_: Any) -> None:
        raise TimeoutError(f"took more than {HANGS} seconds")

    before = signal.signal(signal.SIGALRM, hangs)
    signal.alarm(HANGS)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def attempt(configuration: Configuration, tally: Tally) -> None:
    """Make one call, in an empty folder, and count what came of it."""
    watch, before, here = _Watch(), time.process_time(), os.getcwd()
    with (
        tempfile.TemporaryDirectory(dir=MEMORY) as folder,
        patch.object(Run, "collect", lambda run: watch.collect(run)),
    ):
        os.chdir(folder)
        try:
            with open("taken", "w"), warnings.catch_warnings():
                warnings.simplefilter("error")
                for expected in (
                    NOTHING,
                    ".* holds no finished checkpoint",
                    "the metric is 0 what",
                    "max_test_steps=.* cut ",
                ):
                    warnings.filterwarnings("ignore", expected)
                with _limited(), contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
                    configuration.call.made()
            tally.worked += 1
        except mt.MarlTrainError as error:
            tally.refused += 1
            tally.errors[type(error).__name__] += 1
            _judge(configuration, error, watch, tally)
        except (Exception, SystemExit) as error:
            tally.fault(f"{type(error).__name__} at {_place(error)}", configuration, str(error))
        finally:
            os.chdir(here)
    seconds = time.process_time() - before
    tally.slowest = max(tally.slowest, (seconds, repr(configuration)))
    if seconds > SLOW:
        tally.fault("slow", configuration, f"took {seconds:.1f} s")


def _judge(configuration: Configuration, error: mt.MarlTrainError, watch: _Watch, tally: Tally) -> None:
    """Demand of an error that it came before training, and that it names an argument that was spoilt."""
    said = str(error)
    if watch.steps:
        tally.fault("died in training", configuration, said)
    names = {name.removeprefix("set ") for name in configuration.spoilt}
    names |= {name.replace("-", "_") for name in names}
    names |= {other for name in names & set(FITTING) for other in FITTING[name]}
    if not any(re.search(rf"(?<!\w){re.escape(name)}(?!\w)", said) for name in names if name):
        tally.fault(f"names no argument, {_place(error)}", configuration, said)


def _place(error: BaseException) -> str:
    """Return where an exception was raised."""
    last = traceback.extract_tb(error.__traceback__)[-1]
    return f"{last.filename}:{last.lineno}"


def tried(number: int) -> Tally:
    """Try that many configurations, always the same ones."""
    tally = Tally()

    @settings(max_examples=number, derandomize=True, deadline=None, database=None, phases=[Phase.generate],
              suppress_health_check=list(HealthCheck))  # fmt: skip
    @given(configurations())
    def attempts(configuration: Configuration) -> None:
        attempt(configuration, tally)

    _check_valid()
    started = time.perf_counter()
    attempts()
    tally.seconds = time.perf_counter() - started
    return tally


def _check_valid() -> None:
    """Raise RuntimeError unless what is spoilt works as it is. This compiles games, too."""
    tally = Tally()
    for name, make in VALID.items():
        attempt(Configuration(make(), [name], [name]), tally)
    if tally.worked < len(VALID):
        raise RuntimeError(str(tally))


def main(words: list[str]) -> int:
    """Print the figures; return 1 where anything went wrong."""
    tally: Any = tried(int(words[0]))
    print(tally)
    return 1 if tally.faults else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
