"""LeagueRatings: a round robin of the learners and of the members of their pools, at the tests of a run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from marltrain.core.errors import ConfigError
from marltrain.core.settings import checked_arguments, setting, validate
from marltrain.policies.agents.agent import Agent
from marltrain.rivals.league_report import LeagueReport, draw_payoffs
from marltrain.rivals.rate_league import report_of
from marltrain.rivals.rated_now import TrainedLeague, trained_league
from marltrain.rivals.round_robin import play_pairs
from marltrain.rivals.saved_league import RatedPlayer
from marltrain.storage.checks import counted, of_type
from marltrain.storage.files import replacing
from marltrain.trainer.events.callbacks import Callback, Moment
from marltrain.trainer.reporting.figures import not_worth_a_run
from marltrain.trainer.reporting.table_files import write_table
from marltrain.trainer.settings import TrainerSettings

PAYOFFS_FILE, RATINGS_FILE = "payoffs.parquet", "ratings.parquet"
PICTURE = "league/payoffs"
IN_EQUILIBRIUM = 0.01
"""Least share of a player that counts as one of the Nash equilibrium."""


@dataclass(frozen=True, kw_only=True)
class RatingSettings:
    """Settings of `LeagueRatings`."""

    every: int = setting(1, doc="tests between two round robins", low=1)
    episodes: int = setting(20, doc="games of a pair from each seat", low=1)
    members: int = setting(8, doc="largest number of earlier versions that play", low=2)
    sampled: bool = setting(True, doc="agents act as they explore in training")
    resamples: int = setting(100, doc="of the bootstrap intervals", low=1)


class LeagueRatings(Callback):
    """Rates the learners of a run with an opponent pool or a league against its members, at its tests.

    Copies of the learners, of earlier versions and of the other members of the pool, and a random player meet in a
    round robin, at the first test and at every n-th one after it. The results go to:

    - the files payoffs.parquet (a row for each pair: `RoundRobin.pairs`) and ratings.parquet (one for each player:
      `RoundRobin.ratings`, with "learner" and "entered", the env step of the run at which a version was like this), in
      the run's folder; "env_steps" of both tables is that of the test;
    - the table of tests, TensorBoard and other loggers: `league/cycles`, the number of triples that win against each
      other in a circle, each result with a confidence of 95 %; `league/nash_players`, the number of players with a
      share of at least 1 % in the Nash equilibrium; and of each learner `league/rating/<learner>`, its Elo points more
      than the random player's, `league/nash/<learner>`, its share in the equilibrium, `league/nash_rating/<learner>`,
      its Elo points against it, and, except of exploiters, `league/regressions/<learner>`, the number of earlier
      versions that beat it;
    - TensorBoard and tracking services: the picture `league/payoffs` of the shares of points of all pairs.

    The rounds change nothing in training, and their random numbers are those of tests. `marltrain.league_report` rates
    players of different times of the run together, at its end.
    """

    only_watches = True

    @checked_arguments
    def __init__(
        self, *, every: int = 1, episodes: int = 20, members: int = 8, sampled: bool = True, resamples: int = 100
    ) -> None:
        """Check the numbers.

        every: tests between two round robins.  episodes: games of a pair from each of its seatings.
        members: largest number of earlier versions that play, spread evenly over those in the pool.
        sampled: agents draw their actions as in training.  resamples: of the bootstrap intervals.
        """
        self.settings = RatingSettings(
            every=every, episodes=episodes, members=members, sampled=sampled, resamples=resamples
        )
        validate(self.settings, "LeagueRatings")
        self._tests = 0
        self._pairs, self._ratings = list[dict[str, Any]](), list[dict[str, Any]]()
        self._league: TrainedLeague | None = None

    def prepare(self, settings: TrainerSettings, players: Mapping[str, Agent]) -> None:
        """Find the pool and its learners; raises ConfigError for a run without tests, and without two sides."""
        if not settings.tests:
            raise ConfigError("LeagueRatings plays at tests, and this run has none: give test_freq")
        self._league = trained_league(players)

    def on_train_start(self, moment: Moment) -> None:
        """Begin the tables; those of a resumed run are restored."""
        self._tests = 0
        self._pairs, self._ratings = [], []

    def on_test_end(self, moment: Moment) -> None:
        """Play the round robin if it is due; write its results."""
        due, self._tests = self._tests % self.settings.every == 0, self._tests + 1
        if not due or self._league is None:
            return
        own = self.settings
        players = self._league.players(own.members, moment.env_steps)
        teams = {player.name: player.agents for player in players}
        results = play_pairs(moment.trainer, teams, self._league.seats, own.episodes, sampled=own.sampled)
        report = report_of(results, [("", each) for each in players], "", resamples=own.resamples, seed=0)
        self._write(report, moment)
        for name, value in numbers_of(report, players).items():
            moment.log(f"league/{name}", value)
        with not_worth_a_run(PICTURE):
            moment.log_picture(PICTURE, draw_payoffs(report))

    def _write(self, report: LeagueReport, moment: Moment) -> None:
        """Add rows to both tables, and write them into the run's folder."""
        import pandas as pd

        rated = report.ratings.drop(columns=["run", "elo"]).rename(columns={"env_steps": "entered"}).reset_index()
        for kept, table in ((self._pairs, report.results.pairs()), (self._ratings, rated)):
            table.insert(0, "env_steps", moment.env_steps)
            kept += [dict(zip(table.columns, row, strict=True)) for row in table.itertuples(index=False)]
        for name, rows in ((PAYOFFS_FILE, self._pairs), (RATINGS_FILE, self._ratings)):
            with replacing(moment.run_dir / name) as beside:
                write_table(pd.DataFrame(rows), beside)

    def state_dict(self) -> dict[str, Any]:
        """Return the number of tests so far, and the rows of both tables."""
        return {"tests": self._tests, "pairs": self._pairs, "ratings": self._ratings}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore what `state_dict` returned."""
        self._tests = counted("the number of tests", state["tests"])
        self._pairs, self._ratings = (
            [of_type(f"a row of {name}", row, dict) for row in of_type(name, state[name], list)]
            for name in ("pairs", "ratings")
        )


def numbers_of(report: LeagueReport, players: Sequence[RatedPlayer]) -> dict[str, float]:
    """Return the numbers of a round robin, by the ends of their names; see `LeagueRatings`."""
    rating, share, against = (report.ratings[name].to_dict() for name in ("rating", "nash", "nash_rating"))
    random = next(rating[player.name] for player in players if player.random)
    beaten = report.regressions.groupby("final")["regresses"].sum().to_dict()
    in_equilibrium = sum(held >= IN_EQUILIBRIUM for held in share.values())
    numbers: dict[str, float] = {"cycles": len(report.cycles), "nash_players": in_equilibrium}
    for name, learner in ((player.name, player.learner) for player in players if player.final):
        own = {"rating": rating[name] - random, "nash": share[name], "nash_rating": against[name]}
        own |= {"regressions": beaten[name]} if name in beaten else {}
        numbers |= {f"{what}/{learner}": value for what, value in own.items()}
    return {name: float(value) for name, value in numbers.items()}
