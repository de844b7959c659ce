"""What was measured, when: a table of tests and a table of training episodes, in memory and as Parquet files."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from marltrain.files import State, replacing
from marltrain.layout import Array

if TYPE_CHECKING:
    import pandas as pd

TESTS_FILE = "history.parquet"
EPISODES_FILE = "episodes.parquet"
WRITING_SHARE = 0.02
"""Largest share of a run's time spent on rewriting the tables."""


class Means:
    """Running means of an update's metrics, under the names "<agent>/<metric>"; values that are nan do not count."""

    def __init__(self) -> None:
        """Start empty."""
        self._sums: dict[str, float] = {}
        self._counts: dict[str, int] = {}

    def add(self, metrics: Mapping[str, Mapping[str, float]]) -> None:
        """Add {agent: {metric: value}}."""
        for agent, values in metrics.items():
            for metric, value in values.items():
                if not math.isnan(value):
                    name = f"{agent}/{metric}"
                    self._sums[name] = self._sums.get(name, 0.0) + float(value)
                    self._counts[name] = self._counts.get(name, 0) + 1

    def take(self) -> dict[str, float]:
        """Return the means since the last take, and start anew."""
        means = {name: total / self._counts[name] for name, total in self._sums.items()}
        self._sums, self._counts = {}, {}
        return means

    def state(self) -> State:
        """Return the sums so far."""
        sums, counts = np.array([*self._sums.values()]), np.array([*self._counts.values()], np.int64)
        return State({"names": list(self._sums)}, {"sums": sums, "counts": counts})

    def restore(self, state: State) -> None:
        """Go on from the sums that `state` returned."""
        names = state.info["names"]
        self._sums = dict(zip(names, state.arrays["sums"].tolist(), strict=True))
        self._counts = dict(zip(names, state.arrays["counts"].tolist(), strict=True))


class Columns:
    """Named columns of numbers that grow by doubling: a row costs its bytes and no object."""

    def __init__(self, dtypes: Mapping[str, Any]) -> None:
        """Make empty columns of these dtypes, in this order."""
        self._arrays: dict[str, Array] = {name: np.empty(256, dtype) for name, dtype in dtypes.items()}
        self.rows = 0

    def add(self, *values: float) -> None:
        """Add a row, its values in the columns' order."""
        if self.rows == len(next(iter(self._arrays.values()))):
            self._arrays = {name: np.concatenate([a, np.empty_like(a)]) for name, a in self._arrays.items()}
        for column, value in zip(self._arrays.values(), values, strict=True):
            column[self.rows] = value
        self.rows += 1

    def arrays(self) -> dict[str, Array]:
        """Return a copy of every column."""
        return {name: array[: self.rows].copy() for name, array in self._arrays.items()}

    def restore(self, arrays: Mapping[str, Array]) -> None:
        """Become the columns that `arrays` returned."""
        for name, array in self._arrays.items():
            held = arrays[name].astype(array.dtype)
            self._arrays[name] = np.concatenate([held, np.empty(max(len(array), len(held)), array.dtype)])
        self.rows = len(arrays["episode"])


class History:
    """The two tables of a run.

    tests: a row a test: the counters `episodes, env_steps, updates, gradient_steps, seconds`, then `metric`,
      `interval_low`, `interval_high`, `return/<player>`, and `<agent>/<metric>`: means over the updates since then.
    episodes: a row a finished training episode: `episode` (0, 1, ... as they finish), `env`, `env_steps` (when it
      finished), `length` (env steps), `seconds`, `return/<player>` (undiscounted sums of rewards).
    """

    def __init__(self, names: Sequence[str]) -> None:
        """Start empty tables for players of these names."""
        self._names = tuple(names)
        self._tests: list[dict[str, float]] = []
        self._means = Means()
        self._episodes = Columns(
            {"episode": np.int64, "env": np.int32, "env_steps": np.int64, "length": np.int32, "seconds": np.float64}
            | {f"return/{name}": np.float64 for name in self._names}
        )
        self._written = -math.inf
        self._writing = 0.0

    def add_update(self, metrics: Mapping[str, Mapping[str, float]]) -> None:
        """Count an update's metrics, {agent: {metric: value}}, towards the next test's row."""
        self._means.add(metrics)

    def add_test(
        self,
        *,
        episodes: int,
        env_steps: int,
        updates: int,
        gradient_steps: int,
        seconds: float,
        metric: float,
        interval: tuple[float, float],
        returns: Array,
    ) -> None:
        """Add a test's row; returns: [P], each player's mean over the test's episodes."""
        row: dict[str, float] = {
            "episodes": int(episodes),
            "env_steps": int(env_steps),
            "updates": int(updates),
            "gradient_steps": int(gradient_steps),
            "seconds": float(seconds),
            "metric": float(metric),
            "interval_low": float(interval[0]),
            "interval_high": float(interval[1]),
        }
        row |= {f"return/{name}": float(value) for name, value in zip(self._names, returns, strict=True)}
        self._tests.append(row | self._means.take())

    def add_episode(self, *, env: int, env_steps: int, length: int, seconds: float, returns: Array) -> None:
        """Add a finished training episode's row; returns: [P]. Episodes are numbered as they come."""
        self._episodes.add(self._episodes.rows, env, env_steps, length, seconds, *returns)

    @property
    def tests(self) -> pd.DataFrame:
        """A copy of the table of tests."""
        import pandas as pd

        fixed = [
            "episodes",
            "env_steps",
            "updates",
            "gradient_steps",
            "seconds",
            "metric",
            "interval_low",
            "interval_high",
        ]
        fixed += [f"return/{name}" for name in self._names]
        measured = sorted({name for row in self._tests for name in row}.difference(fixed))
        frame = pd.DataFrame(self._tests, columns=[*fixed, *measured])
        return frame.astype({name: np.int64 if name in fixed[:4] else np.float64 for name in frame.columns})

    @property
    def episodes(self) -> pd.DataFrame:
        """A copy of the table of episodes."""
        import pandas as pd

        return pd.DataFrame(self._episodes.arrays())

    def state(self) -> State:
        """Return both tables, and what counts towards the next test's row."""
        names = list(dict.fromkeys(name for row in self._tests for name in row))
        tests = np.array([[row.get(name, math.nan) for name in names] for row in self._tests]).reshape(-1, len(names))
        return State.joined(
            tests=State({"names": names}, {"rows": tests}), episodes=State({}, self._episodes.arrays()),
            means=self._means.state(),
        )  # fmt: skip

    def restore(self, state: State) -> None:
        """Become the tables that `state` was asked of."""
        tests = state.part("tests")
        self._tests = [dict(zip(tests.info["names"], row, strict=True)) for row in tests.arrays["rows"].tolist()]
        self._episodes.restore(state.part("episodes").arrays)
        self._means.restore(state.part("means"))

    def write(self, folder: str | Path, *, now: bool = False) -> None:
        """Write both tables into `folder`, unless that was done too recently to be worth its time.

        now: write in any case, as at the end of a run.
        """
        started = time.perf_counter()
        if not now and started - self._written < self._writing / WRITING_SHARE:
            return
        for frame, name in ((self.tests, TESTS_FILE), (self.episodes, EPISODES_FILE)):
            with replacing(Path(folder) / name) as beside:
                frame.to_parquet(beside, index=False)
        self._written = time.perf_counter()
        self._writing = self._written - started
