"""Standings: results of learners against the members of a pool, and Elo ratings that follow them during training."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np

from marltrain.core.errors import SaveError
from marltrain.core.layout import Array
from marltrain.storage.checks import MOST_COUNTED, counted, finite, within
from marltrain.storage.state import State

STEP = 16.0
"""Largest change of a rating by one game, in Elo points."""
POINTS = (0.0, 0.5, 1.0)
"""Points of the learner for a loss, a draw and a win."""
COUNTS = ("losses", "draws", "wins")
SUMS = ("own", "others", "points", "games", "rating")


class Results(Protocol):
    """Results of learners against each member, by its number; see `Standing`."""

    @property
    def played(self) -> Array:
        """Number of games against each member, [N] int64."""

    @property
    def scores(self) -> Array:
        """Share of the learners' points in recent games against each member, [N] float64; 0.5 without a game."""

    @property
    def rating(self) -> Array:
        """Elo points of each member, [N] float64."""

    @property
    def learners(self) -> float:
        """Elo points of the learners."""


class Standing:
    """Members of a pool as a function `choose` sees them: arrays [M], in the order of their arrival.

    numbers: of the members.  env_steps: when each was added.
    """

    def __init__(self, results: Results, numbers: Array, env_steps: Array) -> None:
        """Take the results of all members so far, and the numbers of those in the pool."""
        self.numbers, self.env_steps, self._results = numbers, env_steps, results

    @property
    def games(self) -> Array:
        """Games that each has played in training, [M] int64."""
        played: Array = self._results.played[self.numbers]
        return played

    @property
    def scores(self) -> Array:
        """Share of the points of the learners against each, of recent games, [M] float64; 0.5 before the first game."""
        scores: Array = self._results.scores[self.numbers]
        return scores

    @property
    def ratings(self) -> Array:
        """Elo points of each, [M] float64."""
        ratings: Array = self._results.rating[self.numbers]
        return ratings

    @property
    def rating(self) -> float:
        """Elo points of the learners."""
        return self._results.learners

    @property
    def metrics(self) -> dict[str, float]:
        """Numbers for the tables of a run: see `OpponentPool.metrics`; nan where no member has played."""
        ratings, played = self.ratings, self.games > 0
        return {
            "elo/learner": self.rating, "elo/highest": float(ratings.max()), "elo/mean": float(ratings.mean()),
            "elo/lowest": float(ratings.min()), "score": float(self.scores[played].mean()) if played.any() else np.nan,
            "members": float(len(self.numbers)),
        }  # fmt: skip


class Standings:
    """Results of the learners against each member, by its number.

    names, env_steps: of each member, and env step of the run when it entered.
    losses, draws, wins: [N] int64, of the learners.  own, others: [N] float64, sums of the returns of the members and
    of the learners.  points, games: [N] float64, points of the learners and number of games, in which every earlier
    game counts `decay` times as much as the next one against this member.
    rating: [N] float64, Elo points.  learners: Elo points of the learners, 0 at the start.
    """

    def __init__(self, decay: float) -> None:
        """Start without members."""
        self.decay, self.learners = decay, 0.0
        self.names, self.env_steps = list[str](), list[int]()
        for name in COUNTS:
            setattr(self, name, np.zeros(0, np.int64))
        for name in SUMS:
            setattr(self, name, np.zeros(0))

    losses: Array
    draws: Array
    wins: Array
    own: Array
    others: Array
    points: Array
    games: Array
    rating: Array

    def __len__(self) -> int:
        """Return the number of members so far."""
        return len(self.wins)

    def enter(self, name: str = "", env_steps: int = 0) -> None:
        """Add a member, rated like the learners."""
        self.names.append(name)
        self.env_steps.append(env_steps)
        for name in (*COUNTS, *SUMS):
            setattr(self, name, np.append(getattr(self, name), 0))
        self.rating[-1] = self.learners

    def add(self, number: int, own: float, others: float) -> float:
        """Add a game against a member, with its return and the learners'; return the learners' points."""
        outcome = 1 + int(np.sign(others - own))
        points = POINTS[outcome]
        getattr(self, COUNTS[outcome])[number] += 1
        self.own[number] += own
        self.others[number] += others
        self.points[number] = self.decay * self.points[number] + points
        self.games[number] = self.decay * self.games[number] + 1
        change = STEP * (points - float(expected(self.learners - self.rating[number])))
        self.learners += change
        self.rating[number] -= change
        return points

    @property
    def played(self) -> Array:
        """Number of games against each member, [N] int64."""
        total: Array = self.losses + self.draws + self.wins
        return total

    @property
    def scores(self) -> Array:
        """Share of the learners' points in recent games against each member, [N] float64; 0.5 without a game."""
        return np.divide(self.points, self.games, out=np.full(len(self), 0.5), where=self.games > 0)

    def columns(self, numbers: Array) -> dict[str, Any]:
        """Return the results of members as columns of a table, see `OpponentPool.table`."""
        games = self.played[numbers]
        returns = np.divide(self.others[numbers], games, out=np.full(len(games), np.nan), where=games > 0)
        return {
            "name": [self.names[number] for number in numbers], "env_steps": np.array(self.env_steps, int)[numbers],
            "games": games, "wins": self.wins[numbers], "draws": self.draws[numbers], "losses": self.losses[numbers],
            "return": returns, "score": self.scores[numbers], "rating": self.rating[numbers],
        }  # fmt: skip

    def state(self) -> State:
        """Return all results."""
        arrays = {name: getattr(self, name).copy() for name in (*COUNTS, *SUMS)}
        return State(
            {"learners": float(self.learners), "names": list(self.names), "env_steps": list(self.env_steps)}, arrays
        )

    def restore(self, state: State, members: int) -> None:
        """Restore what `state` returned of this number of members; raises SaveError for values that do not fit."""
        for name, array in restored_numbers(state, COUNTS, SUMS, (members,)).items():
            setattr(self, name, array)
        self.names, self.env_steps = restored_members(state, members)
        self.learners = state.value("learners", float)
        if not np.isfinite(self.learners):
            raise SaveError(f"{state.place('learners')} must be finite, got {self.learners}")


def restored_numbers(
    state: State, counts: Sequence[str], sums: Sequence[str], shape: tuple[int, ...]
) -> dict[str, Array]:
    """Return copies of saved counts, int64, and sums, float64; raises SaveError for other shapes and values."""
    found = {
        name: within(state.place(name), state.array(name, np.int64, shape), 0, MOST_COUNTED) for name in counts
    } | {name: finite(state.place(name), state.array(name, np.float64, shape)) for name in sums}
    return {name: array.copy() for name, array in found.items()}


def restored_members(state: State, members: int) -> tuple[list[str], list[int]]:
    """Return the saved names of all members, and the env steps at which they entered.

    Raises SaveError for another number of members, and for values of another type.
    """
    names = state.values("names", str)
    steps = [counted(state.place("env_steps"), number) for number in state.values("env_steps", int)]
    if not len(names) == len(steps) == members:
        raise SaveError(
            f"{state.place('names')} and {state.place('env_steps')} must have a value for each of {members} members, "
            f"got {len(names)} and {len(steps)}"
        )
    return names, steps


def expected(difference: Array) -> Array:
    """Return the expected points of a player who is rated `difference` Elo points higher: 400 are odds of 10 to 1."""
    points: Array = 1 / (1 + 10 ** (-difference / 400.0))
    return points
