"""The tables of tests and of training episodes, in memory and as Parquet files."""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from marltrain.core.errors import SaveError
from marltrain.core.layout import Array
from marltrain.storage.checks import MOST_COUNTED, within
from marltrain.storage.files import replacing
from marltrain.storage.state import State
from marltrain.trainer.reporting.episode_records import ROW, EpisodeRecords
from marltrain.trainer.reporting.table_files import METADATA, write_table
from marltrain.trainer.reporting.tables import LongTable, Readings

if TYPE_CHECKING:
    import pandas as pd

TESTS_FILE = "history.parquet"
EPISODES_FILE = "episodes.parquet"
EPISODES = "episodes"
"""Folder of files with rows of episodes that exceed the memory limit; resuming a run reads them."""
RECORDS = "records"
"""Folder of files with recorded values of episodes, likewise."""
HELD = 2**20
"""Maximum size of the rows of episodes in memory, in bytes."""
WRITING_SHARE = 0.02
"""Maximum fraction of a run's time spent on rewriting the tables."""
TEST = ("episodes", "env_steps", "updates", "gradient_steps", "seconds", "metric", "interval_low", "interval_high")
"""First columns of the table of tests."""
OUTCOME: dict[str, Any] = {"judged": np.int64, "best": np.bool_, "num_unfinished": np.int64}
"""Columns of the table of tests after the players' returns."""
WHOLE = (*TEST[:4], "num_unfinished")
"""Integer columns of the table of tests."""
EPISODE = {"episode": np.int64, "env": np.int32, "env_steps": np.int64, "length": np.int32, "seconds": np.float64}
"""First columns of the table of episodes."""


class Means:
    """Running means of update metrics, named "<agent>/<metric>"; nan values do not count."""

    def __init__(self) -> None:
        """Start empty."""
        self._sums: dict[str, list[float]] = {}  # name -> [sum, count]
        self._found: dict[str, dict[str, list[float]]] = {}  # the same, by agent and metric: joining names is slow
        self._rows: dict[tuple[tuple[str, ...], tuple[str, ...]], list[list[float]]] = {}  # the same, for `add_rows`

    def add(self, metrics: Mapping[str, Mapping[str, float]], times: int = 1) -> None:
        """Add {agent: {metric: value}}; times: number of values behind each mean."""
        for agent, values in metrics.items():
            known = self._found.get(agent, {})
            for metric, value in values.items():
                if not math.isnan(value):
                    entry = known.get(metric) or self._entry(agent, metric)
                    entry[0] += value * times
                    entry[1] += times

    def add_rows(self, agents: tuple[str, ...], metrics: tuple[str, ...], values: Array) -> None:
        """Add values [R, M, K] of M metrics and K agents; the sums equal those of adding row after row."""
        given = ~np.isnan(values)
        entries = self._rows.get((agents, metrics))
        if entries is None:
            names = [(agent, metric) for metric in metrics for agent in agents]
            if not given.all() and not all(
                metric in self._found.get(agent, ()) for agent, metric in names
            ):  # in the order of first values
                for row in values:
                    self.add({a: dict(zip(metrics, row[:, k].tolist(), strict=True)) for k, a in enumerate(agents)})
                return
            entries = self._rows[agents, metrics] = [self._entry(*name) for name in names]
        before, rows = np.array([entry[0] for entry in entries]), np.where(given, values, 0.0)
        sums = np.add.accumulate(np.concatenate([before[None], rows.reshape(len(rows), -1)]), 0)[-1].tolist()
        for entry, total, count in zip(entries, sums, given.sum(0).reshape(-1).tolist(), strict=True):
            entry[0] = total
            entry[1] += count

    def _entry(self, agent: str, metric: str) -> list[float]:
        known = self._found.setdefault(agent, {})
        if metric not in known:
            known[metric] = self._sums.setdefault(f"{agent}/{metric}", [0.0, 0])
        return known[metric]

    def take(self) -> dict[str, float]:
        """Return the means since the last `take`, and reset them."""
        means = {name: float(total / count) for name, (total, count) in self._sums.items()}
        self._sums, self._found, self._rows = {}, {}, {}
        return means

    def sums_of(self, agent: str) -> dict[str, tuple[float, int]]:
        """Return (sum, count) of each metric of an agent since the last `take`."""
        start = f"{agent}/"
        found = ((name, entry) for name, entry in self._sums.items() if name.startswith(start))
        return {name.removeprefix(start): (float(total), int(count)) for name, (total, count) in found}

    def state(self) -> State:
        """Return the sums so far."""
        sums, counts = [total for total, _ in self._sums.values()], [count for _, count in self._sums.values()]
        return State(
            {"names": list(self._sums)}, {"sums": np.array(sums, np.float64), "counts": np.array(counts, np.int64)}
        )

    def restore(self, state: State) -> None:
        """Restore the sums that `state` returned; raises SaveError for invalid values."""
        names = state.names("names")
        sums = state.array("sums", np.float64, (len(names),)).tolist()
        counts = within(state.place("counts"), state.array("counts", np.int64, (len(names),)), 1, MOST_COUNTED).tolist()
        self._sums = {name: [total, count] for name, total, count in zip(names, sums, counts, strict=True)}
        self._found, self._rows = {}, {}


class History:
    """The two tables of a run.

    tests: one row per test: the counters `episodes, env_steps, updates, gradient_steps, seconds`, then `metric`,
      `interval_low`, `interval_high`, `return/<player>`, `judged` (names of the columns of returns that count for the
      metric, joined by "+"), `best` (the best so far), `num_unfinished` (episodes that were cut), and
      `<agent>/<metric>`, means over the updates since the previous test. With `record`: `record/<name>`, the mean over
      the test's episodes, and `record/<name>=<text>`, the share of episodes with this text. With `sampled_tests`:
      `sampled/metric` and `sampled/return/<player>`, of the same episodes with agents that explore.
    episodes: one row per finished training episode: `episode` (0, 1, ... in order of their end), `env`, `env_steps`
      (of the run at the end of the episode), `length` (env steps), `seconds`, `return/<player>` (undiscounted sums of
      rewards). With `record`: `record/<name>`, a number or a text. With a set of policies in a seat:
      `member/<player>`, the number of the member that played. With matches: `match`, the name of the match.
    """

    def __init__(self, names: Sequence[str], folder: str | Path | None, more: Mapping[str, Any] | None = None) -> None:
        """Create empty tables for these players.

        folder: the run's folder, None to write no files.
        more: further columns of the table of episodes: a dtype, or the texts to which the numbers given to
            `add_episodes` are indices.
        """
        self._names, self._folder = tuple(names), None if folder is None else Path(folder)
        self._tests = Readings((*TEST, *self._returns, *OUTCOME))
        self._judged: list[str] = []  # distinct values of the column "judged", which holds indices into this list
        self._means = Means()
        self._texts = {name: np.array(kind, object) for name, kind in (more or {}).items() if isinstance(kind, tuple)}
        kinds: dict[str, Any] = {**EPISODE, **dict.fromkeys(self._returns, np.float64), **(more or {})}
        kinds |= dict.fromkeys(self._texts, np.int32)
        held = -(-HELD // sum(np.dtype(kind).itemsize for kind in kinds.values()))
        self._episodes = LongTable(kinds, None if self._folder is None else self._folder / EPISODES, held)
        row = sum(np.dtype(kind).itemsize for kind in ROW.values())
        self._records = EpisodeRecords(None if self._folder is None else self._folder / RECORDS, -(-HELD // row))
        self._written = -math.inf
        self._writing = 0.0

    def add_update(self, metrics: Mapping[str, Mapping[str, float]], times: int = 1) -> None:
        """Add metrics, {agent: {metric: value}}, to the means of the next test's row, as those of `times` updates."""
        for _ in range(times):  # a product may differ from these sums in the last bit
            self._means.add(metrics)

    def add_updates(self, agents: tuple[str, ...], metrics: tuple[str, ...], values: Array) -> None:
        """Add the metrics of R rounds of updates, [R, M, K], as `add_update` does for each round."""
        self._means.add_rows(agents, metrics, values)

    def sums_of(self, agent: str) -> dict[str, tuple[float, int]]:
        """Return (sum, count) of each metric of an agent over the updates since the last row of the tests."""
        return self._means.sums_of(agent)

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
        judged: Sequence[str],
        best: bool,
        num_unfinished: int,
        more: Mapping[str, float] | None = None,
    ) -> None:
        """Add the row of a test.

        returns: [P], each player's mean over the test's episodes.  more: values of further columns.
        """
        if (players := "+".join(judged)) not in self._judged:
            self._judged.append(players)
        outcome = (self._judged.index(players), best, num_unfinished)
        values = (episodes, env_steps, updates, gradient_steps, seconds, metric, *interval, *returns, *outcome)
        names = (*TEST, *self._returns, *OUTCOME)
        self._tests.add(dict(zip(names, map(float, values), strict=True)) | self._means.take() | {**(more or {})})

    def add_episodes(
        self,
        *,
        envs: Array,
        env_steps: int | Array,
        lengths: Array,
        seconds: float,
        returns: Array,
        records: Sequence[Mapping[str, Any]] = (),
        more: Sequence[Array] = (),
    ) -> None:
        """Add the rows of n training episodes, numbered in the order of their ends.

        env_steps: those of the run at the end of all of the episodes, or of each [n].
        envs, lengths: [n] int64.  returns: [P, n].  records: recorded values of each; none if nothing is recorded.
        more: values of the further columns, [n] each.
        """
        rows, first = len(envs), len(self._episodes)
        for i, values in enumerate(records):
            self._records.add(first + i, values)
        numbers = np.arange(first, first + rows)
        self._episodes.extend(rows, numbers, envs, env_steps, lengths, seconds, *returns, *more)

    @property
    def tests(self) -> pd.DataFrame:
        """A copy of the table of tests."""
        import pandas as pd

        fixed = [*TEST, *self._returns, *OUTCOME]
        measured = sorted(set(self._tests.names).difference(fixed))
        kinds = dict.fromkeys(WHOLE, np.int64) | OUTCOME
        columns: dict[str, Any] = {
            name: np.array(self._tests.column(name), np.float64).astype(kinds.get(name, np.float64))
            for name in (*fixed, *measured)
        }
        columns["judged"] = [self._judged[place] for place in columns["judged"]]
        return pd.DataFrame(columns, copy=False)

    @property
    def episodes(self) -> pd.DataFrame:
        """A copy of the table of episodes."""
        import pandas as pd

        rows = self._told(self._episodes.arrays())
        return pd.DataFrame(rows | self._records.reader().take(len(self._episodes)), copy=False)

    @property
    def num_tests(self) -> int:
        """Number of tests."""
        return self._tests.rows

    @property
    def num_episodes(self) -> int:
        """Number of finished training episodes."""
        return len(self._episodes)

    def state(self) -> State:
        """Return both tables and the running means for the next test's row."""
        result = State.joined(tests=self._tests.state(), episodes=self._episodes.state(), means=self._means.state())
        result.info["judged"] = list(self._judged)
        if self._records:
            result.add("records", self._records.state())
        return result

    def restore(self, state: State) -> None:
        """Restore what `state` returned; raises SaveError if files of episodes are missing or damaged."""
        self._tests.restore(state.part("tests"))
        counted = np.array([self._tests.column(name) for name in WHOLE])
        within(state.place("tests/rows"), counted, 0, MOST_COUNTED)
        if (counted != np.floor(counted)).any():
            raise SaveError(f"{state.place('tests/rows')}: {', '.join(WHOLE)} must be whole numbers")
        self._episodes.restore(state.part("episodes"))
        if "records" in state.info:
            self._records.restore(state.part("records"), len(self._episodes))
        self._means.restore(state.part("means"))
        self._judged = state.values("judged", str)
        if not set(self._tests.column("judged")) <= set(range(len(self._judged))):
            raise SaveError(f"a table of tests names {len(self._judged)} kinds of judged players, and uses others")

    def write(self, *, now: bool = False) -> None:
        """Write both tables into the run's folder, unless this would exceed WRITING_SHARE of the run's time.

        now: write in any case, as at the end of a run.
        """
        started = time.perf_counter()
        if self._folder is None or (not now and started - self._written < self._writing / WRITING_SHARE):
            return
        with replacing(self._folder / TESTS_FILE) as beside:
            write_table(self.tests, beside)
        with replacing(self._folder / EPISODES_FILE) as beside:
            self._write_episodes(beside)
        self._written = time.perf_counter()
        self._writing = self._written - started

    def _write_episodes(self, path: Path) -> None:
        """Write the table of episodes part by part, since it may exceed the memory; then release the memory used.

        Dictionary encoding is off: with few repeated values it doubles the time and takes most of the memory.
        """
        import pyarrow as pa
        import pyarrow.parquet as pq

        reader = self._records.reader()
        kinds = dict.fromkeys((*reader.textual, *self._texts), pa.string())
        parts = (
            pa.table({
                name: pa.array(values, kinds.get(name))
                for name, values in (self._told(part) | reader.take(len(part["episode"]))).items()
            })
            for part in self._episodes.parts()
        )  # fmt: skip
        first = next(parts)
        with pq.ParquetWriter(path, first.schema.with_metadata(METADATA), use_dictionary=False) as writer:
            for part in itertools.chain([first], parts):
                writer.write_table(part)
        pa.default_memory_pool().release_unused()

    def _told(self, rows: Mapping[str, Array]) -> dict[str, Array]:
        """Return columns of the table of episodes with texts in place of their indices."""
        return {name: self._texts[name][values] if name in self._texts else values for name, values in rows.items()}

    @property
    def _returns(self) -> tuple[str, ...]:
        return tuple(f"return/{name}" for name in self._names)
