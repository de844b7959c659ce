"""A round robin: every pair of some agents plays a two-player game from both seats, and ratings of the results."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, permutations
from statistics import NormalDist
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from marltrain.core.errors import ConfigError, did_you_mean
from marltrain.core.layout import Array
from marltrain.core.spec import EnvSpec
from marltrain.envs.python.probe import probe
from marltrain.envs.registry import resolve
from marltrain.policies.agents.agent import Agent
from marltrain.rivals.ratings import ELO, bradley_terry, intervals, nash_average, score_bounds
from marltrain.trainer.decentralized import DecentralizedTrainer
from marltrain.trainer.evaluating.evaluation import TestResult
from marltrain.trainer.seats.by_player import Agents

if TYPE_CHECKING:
    import pandas as pd

WIN, DRAW, LOSS = range(3)
"""Places of the outcomes of a game."""


@dataclass(frozen=True)
class RoundRobin:
    """Results of the games of all pairs of N players.

    names: of the players.
    outcomes: [N, N, 3] int64, wins, draws and losses of player i against player j; the player with the higher return
      wins.
    returns: [N, N] float64, mean return of i against j; nan on the diagonal.
    errors: [N, N] float64, standard errors of the mean differences returns - returns.T; nan on the diagonal.
    """

    names: tuple[str, ...]
    outcomes: Array
    returns: Array
    errors: Array

    @property
    def scores(self) -> Array:
        """Share of the points of i against j, [N, N] float64: a win 1, a draw 0.5; nan on the diagonal."""
        with np.errstate(invalid="ignore"):
            shares: Array = self._points / self.outcomes.sum(2)
        return shares

    @property
    def _points(self) -> Array:
        return self.outcomes[..., WIN] + 0.5 * self.outcomes[..., DRAW]

    def ratings(self, prior: float = 0.5, resamples: int = 1000, level: float = 0.95, seed: int = 0) -> pd.DataFrame:
        """Return a table of the players, the best first.

        Columns: "rating" in Elo points, whose mean is 0, by a fit of the model of Bradley and Terry
        (`rivals.ratings.bradley_terry`), "low" and "high", its bootstrap interval, "score", the mean share of the
        points, "nash", the share of the player in the Nash equilibrium of choosing players, and "nash_rating", its
        Elo points against this equilibrium (`rivals.ratings.nash_average`).

        prior: points that both players of a pair get in addition.  resamples, level, seed: of the bootstrap.

        A rating is one number for each player: where results have `cycles`, it cannot predict who wins a pair, and
        "nash_rating" can still tell which players are not dominated.
        """
        import pandas as pd

        _check_bootstrap(prior, resamples, level)
        fitted = bradley_terry(self._points, prior)
        low, high = intervals(self.outcomes, prior, resamples, level, seed)
        share, against = nash_average(self._odds(prior))
        table = pd.DataFrame(
            {
                "rating": fitted, "low": low, "high": high, "score": np.nanmean(self.scores, 1), "nash": share,
                "nash_rating": ELO * against,
            },
            index=pd.Index(self.names, name="player"),
        )  # fmt: skip
        return table.sort_values("rating", ascending=False, kind="stable")

    def _odds(self, prior: float) -> Array:
        """Return the logarithms of the odds of i against j, [N, N] float64, antisymmetric."""
        points = self._points + prior
        if not (points[~np.eye(len(points), dtype=bool)] > 0).all():
            raise ConfigError(
                "a player without any point against another has no finite odds: expected prior= above 0, got 0"
            )
        odds: Array = np.log(points / points.T)
        return odds

    def payoffs(self) -> pd.DataFrame:
        """Return `scores` as a table: rows against columns."""
        import pandas as pd

        return pd.DataFrame(self.scores, index=list(self.names), columns=list(self.names))

    def pairs(self) -> pd.DataFrame:
        """Return a table with a row for each pair: its games, and of the first player the wins, draws and losses.

        Columns: "first", "second", "games", "wins", "draws", "losses", "score" (share of the points), "return" and
        "return_second": mean returns of both.
        """
        import pandas as pd

        i, j = np.triu_indices(len(self.names), 1)
        names, found = np.array(self.names, object), self.outcomes[i, j]
        return pd.DataFrame({
            "first": names[i], "second": names[j], "games": found.sum(1), "wins": found[:, WIN],
            "draws": found[:, DRAW], "losses": found[:, LOSS], "score": self.scores[i, j], "return": self.returns[i, j],
            "return_second": self.returns[j, i],
        })  # fmt: skip

    def cycles(self, level: float | None = None) -> list[tuple[str, str, str]]:
        """Return the triples (a, b, c) where a wins against b, b against c, and c against a: by more than half.

        Each cycle is named once; it begins with its first player in the order of `names`.

        level: the confidence of each of the three results (see `rivals.ratings.score_bounds`), at least 0.5; None: all
            results count.
        """
        ahead = np.nan_to_num(self.scores, nan=0.5) > 0.5
        if level is not None:
            if not 0.5 <= level < 1:
                raise ConfigError(f"cycles: expected a level of at least 0.5 and below 1, got {level}")
            ahead &= score_bounds(self.outcomes, level).T < 0.5  # the bound of the other's score
        found = [
            (i, j, k)
            for i, j, k in permutations(range(len(self.names)), 3)
            if i == min(i, j, k) and ahead[i, j] and ahead[j, k] and ahead[k, i]
        ]
        return [(self.names[i], self.names[j], self.names[k]) for i, j, k in found]

    def regressions(
        self, final: str, earlier: Sequence[str] | None = None, level: float = 0.95, *, by: str = "score"
    ) -> pd.DataFrame:
        """Return a table of the games of a final agent against earlier ones: whether it has become worse than one.

        Columns, for each earlier player: "games", "wins", "draws" and "losses" of the final agent, "score", its share
        of the points, "margin", its mean return less that of the earlier player, "high", an upper bound, and
        "regresses": whether the bound is below that of equal players. All bounds together hold with probability `level`
        (Bonferroni's correction).

        final, earlier: names of players; earlier None: all others.  level: at least 0.5, below 1.
        by: "score": the bound is of the score (`rivals.ratings.score_bounds`), equal players have 0.5.  "return": it is
            of the margin, by the normal distribution, equal players have 0: for games such as poker, in which amounts
            decide and not the number of games won.

        Games count as independent: greedy agents in a game without chance repeat one game, whose repetitions prove
        nothing. Raises ConfigError for unknown names, a level out of range and another `by`.
        """
        import pandas as pd

        others = [name for name in self.names if name != final] if earlier is None else list(earlier)
        self._check_regressions(final, others, level, by)
        own, of = self.names.index(final), [self.names.index(name) for name in others]
        found, margin, each = self.outcomes[own, of], (self.returns - self.returns.T)[own, of], (1 - level) / len(of)
        if by == "score":
            high, equal = score_bounds(found, 1 - each), 0.5
        else:
            high, equal = margin + NormalDist().inv_cdf(1 - each) * self.errors[own, of], 0.0
        return pd.DataFrame(
            {
                "games": found.sum(1), "wins": found[:, WIN], "draws": found[:, DRAW], "losses": found[:, LOSS],
                "score": self.scores[own, of], "margin": margin, "high": high, "regresses": high < equal,
            },
            index=pd.Index(others, name="player"),
        )  # fmt: skip

    def _check_regressions(self, final: str, others: Sequence[str], level: float, by: str) -> None:
        """Raise ConfigError for wrong arguments of `regressions`."""
        for name in (final, *others):
            if name not in self.names:
                raise ConfigError(
                    f"regressions: no player is called {name!r}.{did_you_mean(name, self.names)} Players: "
                    f"{', '.join(self.names)}"
                )
        if not others or final in others or not 0.5 <= level < 1:
            raise ConfigError(
                f"regressions: expected earlier players other than {final!r} and a level of at least 0.5 and below 1, "
                f"got {others}, level={level}"
            )
        if by not in ("score", "return"):
            raise ConfigError(f'regressions: expected by="score" or by="return", got {by!r}')

    def __repr__(self) -> str:
        """Return the table of ratings as text."""
        return self.ratings().to_string(float_format=lambda value: f"{value:.3g}")


def _check_bootstrap(prior: float, resamples: int, level: float) -> None:
    """Raise ConfigError for numbers out of range."""
    if not (prior >= 0 and resamples >= 1 and 0 < level < 1):
        raise ConfigError(
            "ratings: expected prior of at least 0, resamples of at least 1 and level between 0 and 1, got "
            f"prior={prior}, resamples={resamples}, level={level}"
        )


Sides = tuple[Sequence[str], Sequence[str]]
"""Names of the players of two teams."""


def round_robin(
    agents: Mapping[str, Agent | Sequence[Agent]],
    env: Any,
    env_args: Mapping[str, Any] | None = None,
    *,
    sides: Sides | None = None,
    episodes: int = 100,
    sampled: bool = True,
    num_test_envs: int = 16,
    seed: int = 0,
) -> RoundRobin:
    """Return the results of all pairs of some agents in a two-player game: `episodes` games from each seat.

    agents: name -> agent, at least two, whose spaces fit both seats; with `sides`, teams, as tuples of agents.
    env, env_args: as for `DecentralizedTrainer`; the two players have equal spaces.
    sides: of a game of two teams the names of their players. Agent k of a team plays player k of its side, and players
        k of both sides have equal spaces. The return of a team is the mean of those of its players.
    episodes: games of a pair from each of its two seatings, so a pair plays twice as many.
    sampled: agents act as they explore in training. Greedy agents often play the same game again and again: in a game
      without chance, sampled=False is a single game from each seat, and episodes=1 suffices.
    num_test_envs: environments that play at the same time.
    seed: of the games' random numbers; both seatings of all pairs have the same.

    Raises ConfigError for fewer than two agents, for a game that has not two players of equal spaces, and for sides and
    teams that do not fit it, and AgentError for agents of other spaces.
    """
    seats = _seats_of(probe(resolve(env, env_args)), sides)
    teams = {name: (given,) if isinstance(given, Agent) else tuple(given) for name, given in agents.items()}
    if len(teams) < 2:
        raise ConfigError(f"round_robin: expected at least two agents, got {list(agents)}")
    for name, team in teams.items():
        if len(team) != len(seats[0]):
            raise ConfigError(
                f"round_robin: expected {len(seats[0])} agents in each team, and {name!r} has {len(team)}"
            )
    trainer = DecentralizedTrainer(
        env, env_args=env_args, num_test_envs=num_test_envs, seed=seed, progress=False, run_dir=False
    )
    return play_pairs(trainer, teams, seats, episodes, sampled=sampled)


def _seats_of(spec: EnvSpec, sides: Sides | None) -> tuple[list[int], list[int]]:
    """Return the places of the players of both sides; raises ConfigError for another game."""
    given = [[name] for name in spec.names] if sides is None else [list(side) for side in sides]
    named = [name for side in given for name in side]
    fits = len(given) == 2 and len(given[0]) == len(given[1]) and sorted(named) == sorted(spec.names)
    seats = [[spec.names.index(name) for name in side] for side in given] if fits else []
    if not fits or any(spec.players[i].kind != spec.players[j].kind for i, j in zip(*seats, strict=True)):
        kinds = "; ".join(f"{player.name}: {player.kind}" for player in spec.players)
        what = "two players with equal spaces" if sides is None else f"two teams with equal spaces, {given}"
        raise ConfigError(f"round_robin: expected a game of {what}, and {spec.name!r} has {kinds}")
    return seats[0], seats[1]


class Tester(Protocol):
    """Plays tests, such as a `DecentralizedTrainer`."""

    def test(self, agents: Agents, episodes: int | None = None, sampled: bool = False) -> TestResult:
        """Return the result of a test of these agents."""


def play_pairs(
    tester: Tester,
    teams: Mapping[str, tuple[Agent, ...]],
    seats: tuple[Sequence[int], Sequence[int]],
    episodes: int,
    *,
    sampled: bool,
) -> RoundRobin:
    """Return the results of all pairs of teams; see `round_robin`.  seats: the places of the players of both sides."""
    names, count = tuple(teams), len(teams)
    outcomes = np.zeros((count, count, 3), np.int64)
    returns, errors = np.full((2, count, count), np.nan)
    for i, j in combinations(range(count), 2):
        own, other = _played(tester, (teams[names[i]], teams[names[j]]), seats, episodes, sampled=sampled)
        outcomes[i, j] = (own > other).sum(), (own == other).sum(), (own < other).sum()
        outcomes[j, i] = outcomes[i, j, ::-1]
        returns[i, j], returns[j, i] = own.mean(), other.mean()
        errors[i, j] = errors[j, i] = (own - other).std(ddof=1) / np.sqrt(own.size)
    return RoundRobin(names, outcomes, returns, errors)


def _played(
    tester: Tester,
    teams: tuple[Sequence[Agent], Sequence[Agent]],
    seats: tuple[Sequence[int], Sequence[int]],
    episodes: int,
    *,
    sampled: bool,
) -> Array:
    """Return the returns of two teams, [2, 2 * episodes] float64: games from both sides."""
    found = []
    for own, other in (seats, seats[::-1]):
        at = {**dict(zip(own, teams[0], strict=True)), **dict(zip(other, teams[1], strict=True))}
        returns = tester.test([at[seat] for seat in range(len(at))], episodes, sampled=sampled).returns
        found.append([returns[:, own].mean(1), returns[:, other].mean(1)])
    both: Array = np.concatenate(found, 1)
    return both
