"""Test episodes and their returns [episodes, players]: equal seeds in every test, greedy or sampled actions."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from marltrain.core.errors import in_line, warn
from marltrain.core.layout import Array
from marltrain.core.seeds import generator
from marltrain.core.spec import EnvSpec, Step
from marltrain.envs import VectorEnv
from marltrain.envs.faults import Fault, cut_by
from marltrain.envs.recorded import Recorded
from marltrain.envs.rotation import Rotation
from marltrain.trainer.collecting.episodes import DROPPED
from marltrain.trainer.collecting.rollout import Actors
from marltrain.trainer.evaluating.episode_log import EpisodeLog
from marltrain.trainer.evaluating.equal_rewards import EqualRewards
from marltrain.trainer.seats.seats import LearnerSeats

RESAMPLES = 2_000
AT_ONCE = 1_000_000
"""Values that are resampled at once: a limit of memory."""


@dataclass(frozen=True, eq=False)
class TestResult:
    """Result of a test. If `max_test_steps` cut it, episodes that had not begun are left out.

    returns: [episodes, players] float64, undiscounted sums. With test_agents, columns follow this list, not the seats.
    lengths: [episodes] int64, env steps.
    seats: [episodes, players] int64, index of the player that each column's agent controlled.
    names: the players' names.
    unfinished: [episodes] bool, episodes that were cut; their return and length count until the cut.
    records: attributes of the environment at the end of each episode (`record`), by name: [episodes] float64, nan for
      none; or objects, if some are texts.
    """

    __test__ = False  # for pytest: a result, not a test class

    returns: Array
    lengths: Array
    seats: Array
    names: tuple[str, ...]
    unfinished: Array
    records: Mapping[str, Array] = field(default_factory=dict)

    @property
    def num_unfinished(self) -> int:
        """Number of episodes that were cut."""
        return int(self.unfinished.sum())

    def __repr__(self) -> str:
        """Return the mean, its interval and the players' means in one line, without the arrays."""
        low, high = self.interval
        means = zip(map(in_line, self.names), self.returns.mean(0), strict=True)
        each = ", ".join(f"{name}: {value:.4g}" for name, value in means)
        return (
            f"TestResult(mean={self.mean:.4g}, interval=({low:.4g}, {high:.4g}), episodes={len(self.lengths)}, {each})"
        )

    @property
    def mean(self) -> float:
        """Mean return over episodes and players."""
        return float(self.returns.mean())

    @cached_property
    def interval(self) -> tuple[float, float]:
        """95 % bootstrap interval of `mean`, over episodes."""
        return bootstrap(self.returns.mean(1))

    @cached_property
    def outcomes(self) -> Array | None:
        """Outcomes [episodes, players]: 1 for a single winner, -1 for the other players then, 0 for a draw.

        None for games without winners: one player, or returns that do not sum to zero.
        """
        if self.returns.shape[1] < 2 or np.abs(self.returns.sum(1)).max(initial=0.0) > 1e-6:
            return None
        best = self.returns.max(1, keepdims=True)
        top = self.returns == best
        won = top & (top.sum(1, keepdims=True) == 1)
        return np.where(won, 1, np.where(won.any(1, keepdims=True), -1, 0))

    @property
    def wins(self) -> Array | None:
        """Number of episodes that each column won, [players] int64; None for games without winners."""
        return None if self.outcomes is None else (self.outcomes == 1).sum(0)

    @property
    def losses(self) -> Array | None:
        """Number of episodes that each column lost, [players] int64; None for games without winners."""
        return None if self.outcomes is None else (self.outcomes == -1).sum(0)

    @property
    def record_means(self) -> dict[str, float]:
        """Means of recorded numbers, by "record/<name>", and shares of recorded texts, by "record/<name>=<text>"."""
        means: dict[str, float] = {}
        for name, values in self.records.items():
            if values.dtype == object:
                texts = [str(value) for value in values]
                means |= {f"record/{name}={text}": texts.count(text) / len(texts) for text in sorted(set(texts))}
            elif np.isfinite(values).any():
                means[f"record/{name}"] = float(values[~np.isnan(values)].mean())
        return means

    def in_seat(self, column: int, player: str) -> TestResult:
        """Return the result of the episodes in which the agent of `column` controlled `player`."""
        chosen = self.seats[:, column] == self.names.index(player)
        arrays = (self.returns[chosen], self.lengths[chosen], self.seats[chosen])
        records = {name: values[chosen] for name, values in self.records.items()}
        return TestResult(*arrays, self.names, self.unfinished[chosen], records)


def bootstrap(values: Array, level: float = 0.95) -> tuple[float, float]:
    """Return the percentile bootstrap interval of the mean of `values` (Efron 1979), resampled with a fixed seed."""
    if len(values) < 2:
        return float("-inf"), float("inf")
    rng, size = generator(0, "bootstrap"), len(values)
    rows = max(1, AT_ONCE // size)
    parts = [min(rows, RESAMPLES - start) for start in range(0, RESAMPLES, rows)]
    means = np.concatenate([values[rng.integers(size, size=(part, size))].mean(1) for part in parts])
    low, high = np.quantile(means, [(1 - level) / 2, (1 + level) / 2])
    return float(low), float(high)


class TestInterrupted(Exception):  # noqa: N818  # nothing went wrong
    """A test was interrupted before its end."""


class Evaluation:
    """Plays tests in separate environments, on the same seeds every time."""

    def __init__(self, envs: VectorEnv, seed: int, max_steps: int | None) -> None:
        """Take environments with role "test" and the run's seed; max_steps: env steps of a test, None: no limit."""
        self.envs, self.seed, self.max_steps = envs, seed, max_steps
        self._warned = False

    def play(
        self,
        learners: Sequence[LearnerSeats],
        episodes: int,
        *,
        rotation: Rotation | None = None,
        sampled: bool = False,
        on_step: Callable[[int, int], Any] = lambda finished, steps: None,
        on_faults: Callable[[Sequence[Fault]], Any] = lambda faults: None,
        given_up: Callable[[], bool] = lambda: False,
        log: EpisodeLog | None = None,
        equal_rewards: EqualRewards | None = None,
    ) -> TestResult:
        """Play exactly `episodes` episodes: episode j runs in environment j mod E, as episode j // E there.

        After `max_steps` env steps the test is cut, with a warning; idle environments do not count.

        rotation: the agents' seats: episode j is its turn j; None: they keep their seats.
        sampled: agents act as they explore in training; False: without exploration.
        on_step: called after each batch step with (finished episodes, env steps) so far.
        on_faults: called with faults of environments; an episode dropped because of one does not count and is replayed.
        given_up: called before every step; if it returns True, TestInterrupted is raised.
        log: gets the seeds and actions of the finished episodes.
        equal_rewards: checks the rewards of teams in every step, and raises AgentError.
        """
        envs, spec = self.envs, self.envs.spec
        actors = Actors(spec, learners, envs.num_envs, "test")
        actors.explore(np.full(len(spec.players), sampled))
        envs.on_faults = on_faults
        step = envs.reset(self.seed)
        tally = _Tally(spec, step, episodes, rotation)
        if log is not None:
            log.start(spec, step, self.seed)
        steps = 0
        actors.cast.take_turns(tally.number)
        if rotation is not None:
            actors.rotate([rotation.rows_of(seated.players, tally.number) for seated in learners])
        while tally.open and not (self._used_up(steps) and tally.some):
            if given_up():
                raise TestInterrupted
            actors.decide(step)
            if log is not None:
                log.add(actors.actions)
            if equal_rewards is not None:
                equal_rewards.record_actions(step)
            envs.send(actors.actions)
            step = envs.recv()
            steps += tally.playing
            if envs.faults:
                tally.drop(cut_by(envs.faults))
            if equal_rewards is not None:
                equal_rewards.check(step, tally.lengths == DROPPED)
            if log is not None:
                log.follow(step, tally.number, (tally.lengths != DROPPED) & (tally.number < episodes))
            if tally.add(step, envs.recorded):
                actors.cast.take_turns(tally.number)
                if rotation is not None:
                    actors.rotate([rotation.rows_of(seated.players, tally.number) for seated in learners])
            on_step(tally.finished, steps)
        result = tally.result()
        if log is not None:
            log.numbers = np.flatnonzero(tally.episode_lengths)
        if tally.open:
            self._warn(result, episodes)
        return result

    def _used_up(self, steps: int) -> bool:
        return self.max_steps is not None and steps >= self.max_steps

    def _warn(self, result: TestResult, episodes: int) -> None:
        """Warn once about tests that are cut."""
        if self._warned:
            return
        self._warned = True
        warn(
            f"max_test_steps={self.max_steps:,} cut a test of {episodes:,} episodes: {result.num_unfinished:,} were "
            f"running, and count with their return so far; {episodes - len(result.returns):,} had not begun, and are "
            "left out. Limit the length of episodes (gymnasium.wrappers.TimeLimit), lower episodes_per_test, or raise "
            "max_test_steps"
        )


class _Tally:
    """Adds up returns and lengths of the test's episodes, and reorders the returns by line-up entry."""

    def __init__(self, spec: EnvSpec, first: Step, episodes: int, rotation: Rotation | None) -> None:
        self.spec, self.num_envs, self.episodes, self.rotation = spec, len(first.ended), episodes, rotation
        self.running = first.start_reward.astype(np.float64)
        self.lengths = np.zeros(self.num_envs, np.int64)
        self.number = np.arange(self.num_envs)
        self.playing = int((self.number < episodes).sum())  # environments with episodes left to play
        self.returns = np.zeros((episodes, len(spec.players)))
        self.episode_lengths = np.zeros(episodes, np.int64)
        self.finished = 0
        self.recorded: list[dict[str, Any]] = [{} for _ in range(episodes)]

    @property
    def open(self) -> bool:
        """Whether episodes are left to finish."""
        return self.finished < self.episodes

    @property
    def some(self) -> bool:
        """Whether at least one episode has begun, so that there is a result."""
        return self.finished > 0 or bool((self.lengths[: self.episodes] > 0).any())

    def drop(self, envs: Array) -> None:
        """Drop the running episodes of some environments, before their next Step is added; they are replayed."""
        self.lengths[envs] = DROPPED

    def add(self, step: Step, recorded: Sequence[Recorded]) -> bool:
        """Add one Step and the values recorded in it; return whether an episode ended."""
        values = dict(recorded)
        self.running += step.reward
        self.lengths += 1
        for e in np.flatnonzero(step.ended & (self.lengths > 0)).tolist():  # other episodes are dropped
            if self.number[e] < self.episodes:
                self._enter(e)
                self.recorded[self.number[e]] = values.get(e, {})
                self.finished += 1
            self.number[e] += self.num_envs
            self.lengths[e] = 0
        self.playing = int((self.number < self.episodes).sum())
        np.copyto(self.running, step.start_reward, where=step.ended)
        return bool(step.ended.any())

    def _seats(self, j: int) -> Array:
        """Return the player that each line-up entry controls in episode j, [P]."""
        if self.rotation is None:
            return np.arange(len(self.spec.players))
        seats: Array = self.rotation.seats(np.array([j]))[:, 0]
        return seats

    def _enter(self, e: int) -> None:
        """Store return and length of the episode that environment e plays."""
        j = int(self.number[e])
        self.returns[j] = self.running[self._seats(j), e]
        self.episode_lengths[j] = self.lengths[e]

    def result(self) -> TestResult:
        """Return the result; episodes that still run are cut."""
        unfinished = np.zeros(self.episodes, bool)
        for e in np.flatnonzero((self.number < self.episodes) & (self.lengths > 0)).tolist():
            self._enter(e)
            unfinished[self.number[e]] = True
        begun = np.flatnonzero(self.episode_lengths)
        seats = np.array([self._seats(j) for j in begun.tolist()])
        records = _columns([self.recorded[j] for j in begun.tolist()])
        arrays = (self.returns[begun], self.episode_lengths[begun], seats)
        return TestResult(*arrays, self.spec.names, unfinished[begun], records)


def _columns(rows: Sequence[Mapping[str, Any]]) -> dict[str, Array]:
    """Return values by name: float64 with nan for None and missing values; objects if some are texts."""
    columns = {}
    for name in dict.fromkeys(name for row in rows for name in row):
        values = [row.get(name) for row in rows]
        texts = any(isinstance(value, str) for value in values)
        columns[name] = np.array(values, object if texts else np.float64)
    return columns
