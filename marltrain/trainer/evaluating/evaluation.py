"""Test episodes -> returns [episodes, players]: equal seeds in every test, no exploration."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import numpy as np

from marltrain.envs import VectorEnv
from marltrain.envs.faults import Fault, cut_by
from marltrain.layout import Array
from marltrain.random import generator
from marltrain.spec import EnvSpec, Step
from marltrain.trainer.collecting.rollout import Actors
from marltrain.trainer.reporting.faults import received
from marltrain.trainer.seats import Unit

RESAMPLES = 2_000
CALLER = 8
"""Frames from a warning in a test to the call of `train`."""


@dataclass(frozen=True, eq=False)
class TestResult:
    """What a test measured. Where `max_test_steps` cut it, episodes that had not begun are left out.

    returns: [episodes, players] float64, undiscounted sums; with a line-up, columns are its entries wherever they sat.
    lengths: [episodes] int64, env steps.
    seats: [episodes, players] int64, the player that each column's agent was.
    names: the players' names.
    unfinished: [episodes] bool, those that were cut: return and length are those until then.
    """

    __test__ = False  # for pytest: a result, not a test class

    returns: Array
    lengths: Array
    seats: Array
    names: tuple[str, ...]
    unfinished: Array

    @property
    def num_unfinished(self) -> int:
        """How many episodes were cut."""
        return int(self.unfinished.sum())

    def __repr__(self) -> str:
        """Return the mean, its interval and the players' means; the arrays stay in the object."""
        low, high = self.interval
        each = ", ".join(f"{name}: {value:.4g}" for name, value in zip(self.names, self.returns.mean(0), strict=True))
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
        """[episodes, players]: 1 for the one winner, -1 for those who lost to one, 0 for a draw.

        None where games have no winner: one player, or returns that do not sum to zero.
        """
        if self.returns.shape[1] < 2 or np.abs(self.returns.sum(1)).max(initial=0.0) > 1e-6:
            return None
        best = self.returns.max(1, keepdims=True)
        top = self.returns == best
        won = top & (top.sum(1, keepdims=True) == 1)
        return np.where(won, 1, np.where(won.any(1, keepdims=True), -1, 0))

    @property
    def wins(self) -> Array | None:
        """[players] int64: episodes that each column won; None where games have no winner."""
        return None if self.outcomes is None else (self.outcomes == 1).sum(0)

    @property
    def losses(self) -> Array | None:
        """[players] int64: episodes that each column lost; None where games have no winner."""
        return None if self.outcomes is None else (self.outcomes == -1).sum(0)

    def in_seat(self, column: int, player: str) -> TestResult:
        """Return the episodes in which a column's agent was that player."""
        chosen = self.seats[:, column] == self.names.index(player)
        arrays = (self.returns[chosen], self.lengths[chosen], self.seats[chosen])
        return TestResult(*arrays, self.names, self.unfinished[chosen])


def bootstrap(values: Array, level: float = 0.95) -> tuple[float, float]:
    """Return the percentile bootstrap interval of the mean of `values` (Efron 1979), resampled with a fixed seed."""
    if len(values) < 2:
        return float("-inf"), float("inf")
    rng = generator(0, "bootstrap")
    means = np.array([values[rng.integers(len(values), size=len(values))].mean() for _ in range(RESAMPLES)])
    low, high = np.quantile(means, [(1 - level) / 2, (1 + level) / 2])
    return float(low), float(high)


def rotations(spec: EnvSpec, unit: Unit, numbers: Array) -> Array:
    """Return where a unit's agents sit, [K, S, E] rows of their group, when environment e plays episode numbers[e].

    Episode j moves everyone j places on among the seats of equal spaces.
    """
    size = spec.groups[unit.group].size
    return (unit.rows[:, :, None] + numbers[None, None, :]) % size


class TestInterrupted(Exception):  # noqa: N818  # nothing went wrong
    """A test was not played to its end."""


class Evaluation:
    """Plays tests in environments of its own, on the same seeds every time."""

    def __init__(self, envs: VectorEnv, seed: int, max_steps: int | None) -> None:
        """Use `envs` (role "test"); `seed` is the run's.  max_steps: env steps of a test, None without a limit."""
        self.envs, self.seed, self.max_steps = envs, seed, max_steps
        self._warned = False

    def play(
        self,
        units: Sequence[Unit],
        episodes: int,
        *,
        rotate: bool = False,
        on_step: Callable[[int, int], Any] = lambda finished, steps: None,
        on_faults: Callable[[Sequence[Fault]], Any] = lambda faults: None,
        given_up: Callable[[], bool] = lambda: False,
        caller: int = CALLER,
    ) -> TestResult:
        """Play exactly `episodes` episodes: number j in environment j mod E, as the j // E-th there.

        Once the environments that still play have made `max_steps` env steps, the test is cut, with a warning.

        on_step: called after each batch step with (finished episodes, env steps) so far.
        on_faults: called with what befell environments; an episode given up for it does not count and is played anew.
        given_up: asked at every step; where it says so, GivenUp is raised.  caller: frames from a warning to the user.
        """
        envs, spec = self.envs, self.envs.spec
        actors = Actors(spec, units, envs.num_envs, "test")
        step = received(envs, partial(envs.reset, self.seed), on_faults)
        tally = _Tally(spec, step, episodes, rotate)
        steps = 0
        if rotate:
            actors.rotate([rotations(spec, unit, tally.number) for unit in units])
        while tally.open and not (self._used_up(steps) and tally.some):
            if given_up():
                raise TestInterrupted
            actors.decide(step)
            envs.send(actors.actions)
            step = received(envs, envs.recv, on_faults)
            steps += tally.playing
            if envs.faults:
                tally.drop(cut_by(envs.faults))
            if tally.add(step) and rotate:
                actors.rotate([rotations(spec, unit, tally.number) for unit in units])
            on_step(tally.finished, steps)
        result = tally.result()
        if tally.open:
            self._warn(result, episodes, caller)
        return result

    def _used_up(self, steps: int) -> bool:
        return self.max_steps is not None and steps >= self.max_steps

    def _warn(self, result: TestResult, episodes: int, caller: int) -> None:
        """Warn, once, of a test that was cut."""
        if self._warned:
            return
        self._warned = True
        warnings.warn(
            f"max_test_steps={self.max_steps:,} cut a test of {episodes:,} episodes: {result.num_unfinished:,} were "
            f"running, and count with their return so far; {episodes - len(result.returns):,} had not begun, and are "
            "left out. Limit the length of episodes (gymnasium.wrappers.TimeLimit), lower episodes_per_test, or raise "
            "max_test_steps",
            stacklevel=caller,
        )


class _Tally:
    """Adds up the returns of the episodes that count, and who sat where in them."""

    def __init__(self, spec: EnvSpec, first: Step, episodes: int, rotate: bool) -> None:
        self.spec, self.num_envs, self.episodes, self.rotate = spec, len(first.ended), episodes, rotate
        self.running = first.start_reward.astype(np.float64)
        self.lengths = np.zeros(self.num_envs, np.int64)
        self.number = np.arange(self.num_envs)
        self.playing = int((self.number < episodes).sum())  # environments whose share is not played yet
        self.returns = np.zeros((episodes, len(spec.players)))
        self.episode_lengths = np.zeros(episodes, np.int64)
        self.finished = 0

    @property
    def open(self) -> bool:
        return self.finished < self.episodes

    @property
    def some(self) -> bool:
        """Whether there is anything to make a result of."""
        return self.finished > 0 or bool((self.lengths[: self.episodes] > 0).any())

    def drop(self, envs: Array) -> None:
        """Forget the running episodes of some environments, before their Step is taken: they are played anew."""
        self.lengths[envs] = -1  # that Step is none of the new episode

    def add(self, step: Step) -> bool:
        """Take one Step; say whether an episode ended."""
        self.running += step.reward
        self.lengths += 1
        for e in np.flatnonzero(step.ended & (self.lengths > 0)).tolist():  # the others are dropped
            if self.number[e] < self.episodes:
                self._enter(e)
                self.finished += 1
            self.number[e] += self.num_envs
            self.lengths[e] = 0
        self.playing = int((self.number < self.episodes).sum())
        np.copyto(self.running, step.start_reward, where=step.ended)
        return bool(step.ended.any())

    def _seats(self, j: int) -> Array:
        """The player that each line-up entry is in episode j."""
        seats = np.arange(len(self.spec.players))
        if self.rotate:
            for group in self.spec.groups:
                players = np.array(group.players)
                seats[players] = np.roll(players, -j)
        return seats

    def _enter(self, e: int) -> None:
        """Write down the episode that environment e plays."""
        j = int(self.number[e])
        self.returns[j] = self.running[self._seats(j), e]
        self.episode_lengths[j] = self.lengths[e]

    def result(self) -> TestResult:
        """Return what was measured; episodes that still run are cut."""
        unfinished = np.zeros(self.episodes, bool)
        for e in np.flatnonzero((self.number < self.episodes) & (self.lengths > 0)).tolist():
            self._enter(e)
            unfinished[self.number[e]] = True
        begun = np.flatnonzero(self.episode_lengths)
        seats = np.array([self._seats(j) for j in begun.tolist()])
        return TestResult(self.returns[begun], self.episode_lengths[begun], seats, self.spec.names, unfinished[begun])
