"""LeagueResults: results of the learners of a league against each other and against earlier versions; Elo ratings."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from marltrain.core.layout import Array
from marltrain.rivals.standings import COUNTS, POINTS, STEP, expected, restored_members, restored_numbers
from marltrain.storage.state import State

SUMS = ("returns", "points", "games")


class LeagueResults:
    """Results of each of L learners (rows) against opponents (columns): the L learners as they are, then N members.

    losses, draws, wins: [L, L + N] int64, of the learner of the row.  returns: [L, L + N] float64, sums of its returns.
    points, games: [L, L + N] float64, its points and number of games, in which every earlier game counts `decay` times
    as much as the next one.  recent: [L, 2], the same over all opponents.
    count: [L] int64, games since the learner began.
    names, env_steps: of all members so far, and env step of the run when each entered.
    ratings: [L + N] float64, Elo points, 0 at the start; of a version at first those of its learner.
    """

    losses: Array
    draws: Array
    wins: Array
    returns: Array
    points: Array
    games: Array

    def __init__(self, learners: int, decay: float) -> None:
        """Start without members."""
        self.learners, self.decay = learners, decay
        for name in COUNTS:
            setattr(self, name, np.zeros((learners, learners), np.int64))
        for name in SUMS:
            setattr(self, name, np.zeros((learners, learners)))
        self.recent, self.count = np.zeros((learners, 2)), np.zeros(learners, np.int64)
        self.ratings = np.zeros(learners)
        self.names, self.env_steps = list[str](), list[int]()

    def enter(self, name: str, env_steps: int = 0, rating: float = 0.0) -> None:
        """Add a member with the next number."""
        self.names.append(name)
        self.env_steps.append(env_steps)
        for name in (*COUNTS, *SUMS):
            held = getattr(self, name)
            setattr(self, name, np.concatenate([held, np.zeros((self.learners, 1), held.dtype)], 1))
        self.ratings = np.append(self.ratings, rating)

    def column(self, number: int) -> int:
        """Return the column of a member by its number, or of learner i by -1 - i."""
        return self.learners + number if number >= 0 else -1 - number

    def add(self, learner: int, number: int, mine: float, theirs: float) -> None:
        """Add a game of a learner against a member, or against a learner as it is (see `column`); with both returns."""
        column, outcome = self.column(number), 1 + int(np.sign(mine - theirs))
        points = POINTS[outcome]
        getattr(self, COUNTS[outcome])[learner, column] += 1
        self.returns[learner, column] += mine
        self.points[learner, column] = self.decay * self.points[learner, column] + points
        self.games[learner, column] = self.decay * self.games[learner, column] + 1
        self.recent[learner] = self.decay * self.recent[learner] + (points, 1.0)
        self.count[learner] += 1
        if column != learner:
            change = STEP * (points - float(expected(self.ratings[learner] - self.ratings[column])))
            self.ratings[learner] += change
            self.ratings[column] -= change

    def begin_again(self, learner: int) -> None:
        """Forget the results of a learner, and its rating."""
        for name in (*COUNTS, *SUMS):
            getattr(self, name)[learner] = 0
        self.recent[learner], self.count[learner], self.ratings[learner] = 0.0, 0, 0.0

    @property
    def played(self) -> Array:
        """Number of games, [L, L + N] int64."""
        total: Array = self.losses + self.draws + self.wins
        return total

    @property
    def scores(self) -> Array:
        """Share of a learner's points in recent games against each opponent, [L, L + N]; 0.5 without a game."""
        return np.divide(self.points, self.games, out=np.full(self.games.shape, 0.5), where=self.games > 0)

    def columns(self, learner: int, numbers: Array, names: Sequence[str]) -> dict[str, Any]:
        """Return the results of a learner against opponents by their numbers, as columns; names: of the learners."""
        at = [self.column(number) for number in numbers.tolist()]
        of = (self.played, self.wins, self.draws, self.losses, self.returns, self.scores)
        games, wins, draws, losses, returns, scores = (array[learner, at] for array in of)
        return {
            "name": [[*names, *self.names][j] for j in at],
            "env_steps": np.array([0] * self.learners + self.env_steps)[at],
            "games": games, "wins": wins, "draws": draws, "losses": losses,
            "return": np.divide(returns, games, out=np.full(len(at), np.nan), where=games > 0),
            "score": scores, "rating": self.ratings[at],
        }  # fmt: skip

    def of(self, learner: int) -> LearnerResults:
        """Return the results of one learner against members, as laws read them."""
        return LearnerResults(self, learner)

    def state(self) -> State:
        """Return all results."""
        arrays = {name: getattr(self, name).copy() for name in (*COUNTS, *SUMS, "recent", "count", "ratings")}
        return State({"names": list(self.names), "env_steps": list(self.env_steps)}, arrays)

    def restore(self, state: State, members: int) -> None:
        """Restore what `state` returned of this number of members; raises SaveError for values that do not fit."""
        shape = (self.learners, self.learners + members)
        numbers = restored_numbers(state, COUNTS, SUMS, shape)
        numbers |= restored_numbers(state, ("count",), (), shape[:1])
        numbers |= restored_numbers(state, (), ("ratings",), shape[1:])
        numbers |= restored_numbers(state, (), ("recent",), (self.learners, 2))
        for name, array in numbers.items():
            setattr(self, name, array)
        self.names, self.env_steps = restored_members(state, members)


class LearnerResults:
    """Results of one learner of a league against members, by their numbers; see `Results`."""

    def __init__(self, results: LeagueResults, learner: int) -> None:
        """Take the results of all learners, and the number of one."""
        self._results, self._learner = results, learner

    @property
    def played(self) -> Array:
        """See `Results`."""
        played: Array = self._results.played[self._learner, self._results.learners :]
        return played

    @property
    def scores(self) -> Array:
        """See `Results`."""
        own, first = self._results, self._results.learners
        games, points = own.games[self._learner, first:], own.points[self._learner, first:]
        return np.divide(points, games, out=np.full(len(games), 0.5), where=games > 0)

    @property
    def rating(self) -> Array:
        """See `Results`."""
        return self._results.ratings[self._results.learners :]

    @property
    def learners(self) -> float:
        """See `Results`."""
        return float(self._results.ratings[self._learner])
