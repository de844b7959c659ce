"""LeaguePool: the opponents in all matches of a league: versions that enter and leave, exploiters that begin again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from marltrain.core.errors import AgentError, ConfigError, SaveError
from marltrain.core.layout import Array
from marltrain.core.seeds import child_seed
from marltrain.core.settings import setting
from marltrain.policies.agents.agent import Agent
from marltrain.policies.agents.algorithm_agent import LearningAgent
from marltrain.policies.agents.beginners import begin_again, drawn_weights
from marltrain.policies.agents.mixed import MixedAgent, Record
from marltrain.policies.agents.restore import restore
from marltrain.policies.batches.batch import AgentState
from marltrain.rivals.laws import WEIGHTINGS, Law, probabilities
from marltrain.rivals.league_results import LeagueResults
from marltrain.rivals.standings import Standing
from marltrain.storage.checks import MOST_COUNTED, within
from marltrain.storage.state import State

if TYPE_CHECKING:
    import pandas as pd

MAIN, EXPLOITER, LEAGUE_EXPLOITER = "main", "exploiter", "league_exploiter"
"""Roles of learners, also the beginnings of their names."""
LEAVING = ("oldest", "weakest")
RESETS = ("initial", "new")


@dataclass(frozen=True, kw_only=True)
class LeagueSettings:
    """Settings of a `League`."""

    choose: str = setting("prioritized", doc="the law of the draws")
    every_steps: int = setting(50_000, doc="env steps between versions of main agents", low=1)
    size: int = setting(16, doc="largest number of versions", low=1)
    present: float = setting(0.35, doc="share of main agents' games against main agents", low=0.0, high=1.0)
    wins: float = setting(0.7, doc="share of the points at which an exploiter begins again", above=0.0, high=1.0)
    least_games: int = setting(100, doc="games of an exploiter before it begins again", low=1)
    longest: int | None = setting(None, doc="env steps after which an exploiter begins again", low=1)
    reset: str = setting("initial", doc="the weights with which exploiters begin again", choices=RESETS)
    weighting: str = setting("hard", doc="of prioritized choices", choices=WEIGHTINGS)
    power: float = setting(2.0, doc="exponent of the hard weighting", low=0.0, high=100.0)
    leaves: str = setting("oldest", doc="the version that leaves a full pool", choices=LEAVING)
    decay: float = setting(0.99, doc="weight of earlier games in scores", above=0.0, high=1.0)


@dataclass(frozen=True, eq=False)
class LeaguePlayer:
    """A learner of a league.  target: of an exploiter, the place of its main agent among the learners."""

    name: str
    role: str
    agent: LearningAgent
    target: int = -1


class LearnerRecord:
    """Record of a learner of a league against its opponents; see `Record`."""

    def __init__(self, pool: LeaguePool, learner: int) -> None:
        """Take the pool, and the number of the learner."""
        self._pool, self._learner = pool, learner

    def metrics(self) -> dict[str, float]:
        """Return the same as `OpponentPool.metrics`, and "resets": how often the learner began again."""
        numbers, _ = self._pool.opponents(self._learner)
        found = self._pool.standings.columns(self._learner, numbers, self._pool.names)
        played, ratings = found["games"] > 0, found["rating"]
        return {
            "elo/learner": float(self._pool.standings.ratings[self._learner]), "elo/highest": float(ratings.max()),
            "elo/mean": float(ratings.mean()), "elo/lowest": float(ratings.min()),
            "score": float(found["score"][played].mean()) if played.any() else np.nan,
            "members": float(len(numbers)), "resets": float(self._pool.resets[self._learner]),
        }  # fmt: skip

    def results(self) -> pd.DataFrame:
        """Return the same as `OpponentPool.results`; rows of learners as they are have the numbers -1 - i."""
        import pandas as pd

        pool = self._pool
        now, _ = pool.opponents(self._learner)
        main_only = pool.learners[self._learner].role == EXPLOITER
        ever = np.arange(0 if main_only else len(pool.standings.names))
        numbers = np.union1d(now, ever).astype(np.int64)
        columns = pool.standings.columns(self._learner, numbers, pool.names)
        return pd.DataFrame({"member": numbers, **columns, "in_pool": np.isin(numbers, now)})


class LeaguePool(MixedAgent):
    """The opponents of all learners of a league, in one seat of all matches; match m is that of learner m.

    Member -1 - i is learner i as it is at present.
    standings: results of all learners.
    began, resets: [L] int64, the env step at which each learner began, and how often it began again.
    """

    def __init__(
        self, learners: Sequence[LeaguePlayer], given: Mapping[str, Agent], law: Law, settings: LeagueSettings,
        seed: int | None,
    ) -> None:  # fmt: skip
        """Take the learners, main agents first, and players that always stay."""
        self.seed, self.learners, self.law, self.settings = seed, list(learners), law, settings
        self._begin(given)
        for learner in learners:
            self._adopt(learner.agent)
        self.mains = sum(learner.role == MAIN for learner in learners)
        for i, learner in enumerate(learners[: self.mains]):
            self.pool.add_present(-1 - i, learner.agent)
        self.standings = LeagueResults(len(learners), settings.decay)
        for name in given:
            self.standings.enter(name)
        self.began, self.resets = np.zeros(len(learners), np.int64), np.zeros(len(learners), np.int64)
        self._initial: dict[int, Mapping[str, Array]] = {}  # weights and moments of exploiters at their start
        self._counted = 0  # env steps at the last call of `collected`

    @property
    def names(self) -> list[str]:
        """The names of the learners."""
        return [learner.name for learner in self.learners]

    @property
    def shares(self) -> Array:
        """Probability of each member in the next draw of the first main agent against a member, [M] float64."""
        return self.shares_of(0)

    def shares_of(self, learner: int) -> Array:
        """Return the probability of each member in the next draw of a learner against a member, [M] float64."""
        members = Standing(self.standings.of(learner), self.pool.numbers, self.pool.env_steps)
        return probabilities(self.law, members, "League")

    def opponents(self, learner: int) -> tuple[Array, Array]:
        """Return the numbers of a learner's opponents, and their probabilities in its next draw, each [n]."""
        player, present = self.learners[learner], self.settings.present
        if player.role == EXPLOITER:
            return np.array([-1 - player.target]), np.ones(1)
        numbers, shares = self.pool.numbers, self.shares_of(learner)
        if player.role == LEAGUE_EXPLOITER or present == 0:
            return numbers, shares
        mains = np.full(self.mains, present / self.mains)
        return np.concatenate([-1 - np.arange(self.mains), numbers]), np.concatenate([mains, (1 - present) * shares])

    # what the trainer calls

    def records(self, label: str) -> Mapping[str, Record]:
        """Return the records of the learners by their names; see `MixedAgent.records`."""
        return {learner.name: LearnerRecord(self, m) for m, learner in enumerate(self.learners)}

    def check_run(self, line_up: Sequence[Agent], steps: int | None, episodes: int | None) -> None:
        """Raise an error if no version would ever enter, or outside of the league; see `MixedAgent.check_run`."""
        seated = {id(agent) for agent in line_up}
        if any(id(learner.agent) not in seated for learner in self.learners):
            raise AgentError("the pool of a League plays in the league's own matches: give train() the league")
        every = self.settings.every_steps
        if steps is not None and every > steps:
            raise ConfigError(
                f"League: no version would ever enter after the start: every_steps={every:,}, and training ends after "
                f"{steps:,} steps. Lower it, or train for longer"
            )

    def start(self, env_steps: int, episodes: int) -> None:
        """Add the first versions, and keep the weights of exploiters, in the first run; see `MixedAgent.start`.

        A learner that began in an earlier run with more env steps began, for this one, at its start.
        """
        self._counted, self.began = env_steps, np.minimum(self.began, env_steps)
        if not any(not member.given for member in self.members):
            for m in range(self.mains):
                self._enter(m, env_steps)
            for m, learner in enumerate(self.learners[self.mains :], self.mains):
                self._initial[m] = learner.agent.learner_.export(learner.agent.row).arrays

    def draw(self, matches: Array) -> Array:
        """See `MixedAgent.draw`."""
        chance, numbers = self._generator().random((2, len(matches))), np.empty(len(matches), np.int64)
        for m in np.unique(matches).tolist():
            own, learner = np.flatnonzero(matches == m), self.learners[m]
            if learner.role == EXPLOITER:
                numbers[own] = -1 - learner.target
                continue
            limits = self.shares_of(m).cumsum()
            limits[-1] = np.inf  # the sum may be rounded to less than 1
            numbers[own] = self.pool.numbers[limits.searchsorted(chance[0, own], side="right")]
            if learner.role == MAIN and (share := self.settings.present) > 0:
                which = (chance[1, own] / share * self.mains).astype(np.int64)
                numbers[own] = np.where(chance[1, own] < share, -1 - which, numbers[own])
        return numbers

    def finished(self, members: Array, own: Array, others: Array, matches: Array) -> None:
        """Add results; own: the opponents' returns.  See `MixedAgent.finished`."""
        rows = (members.tolist(), own.tolist(), others.tolist(), matches.tolist())
        for number, theirs, mine, match in zip(*rows, strict=True):
            self.standings.add(match, number, mine, theirs)

    def steps_left(self, env_steps: int) -> int:
        """Return the number of env steps until a version of the main agents is due, or an exploiter begins again."""
        every, longest = self.settings.every_steps, self.settings.longest
        left = every - env_steps % every
        if longest is None or self.mains == len(self.learners):
            return left
        return min(left, int(self.began[self.mains :].min()) + longest - env_steps)

    def collected(self, env_steps: int, episodes: int, playing: Array) -> Sequence[int]:
        """Add versions of main agents that are due; add versions of exploiters that begin again.

        Returns these exploiters.
        """
        before, every = self._counted, self.settings.every_steps
        self._counted = env_steps
        new = list(range(self.mains)) if before // every < env_steps // every else []
        again = [m for m in range(self.mains, len(self.learners)) if self._is_over(m, env_steps)]
        for m in (*new, *again):
            self._enter(m, env_steps)
        if new or again:
            self._leave()
            self.pool.forget(playing)
        for m in again:
            self._begin_again(m, env_steps)
        return again

    def _is_over(self, m: int, env_steps: int) -> bool:
        """Return whether an exploiter has won, or has trained for long enough."""
        s, (points, games) = self.settings, self.standings.recent[m]
        won = self.standings.count[m] >= s.least_games and points >= s.wins * games
        return bool(won) or (s.longest is not None and env_steps - self.began[m] >= s.longest)

    def _enter(self, m: int, env_steps: int) -> None:
        learner = self.learners[m]
        name = f"{learner.name} at {env_steps}"
        self.pool.add(learner.agent, name, env_steps, given=False)
        self.standings.enter(name, env_steps, float(self.standings.ratings[m]))

    def _leave(self) -> None:
        """Remove versions beyond the size of the pool; the newest one of each main agent stays."""
        versions = [member for member in self.members if not member.given]
        newest = {member.name.rpartition(" at ")[0]: member.number for member in versions}
        kept = {newest[learner.name] for learner in self.learners[: self.mains]}
        scores = self.standings.scores[: self.mains, self.standings.learners :].mean(0)
        leaving = [member.number for member in versions if member.number not in kept]
        if self.settings.leaves == "weakest":
            leaving.sort(key=lambda number: -scores[number])
        for number in leaving[: max(0, len(versions) - self.settings.size)]:
            self.pool.remove(number)

    def _begin_again(self, m: int, env_steps: int) -> None:
        """Give an exploiter its initial or new weights, and forget its results."""
        learner = self.learners[m]
        self.resets[m] += 1
        weights = self._initial[m]
        if self.settings.reset == "new":
            weights = drawn_weights(learner.agent, child_seed(int(self.seed or 0), learner.name, int(self.resets[m])))
        begin_again(learner.agent, weights)
        self.standings.begin_again(m)
        self.began[m] = env_steps

    # saving

    def state(self) -> AgentState:
        """Return the members, the results, the counts, and the initial weights of exploiters."""
        mixed = super().state()
        result = State(mixed.info, mixed.arrays)
        result.add("standings", self.standings.state())
        result.info |= {"counted": self._counted, "learners": self.names}
        result.arrays |= {"began": self.began.copy(), "resets": self.resets.copy()}
        kept = {self.learners[m].name: State({}, dict(arrays)) for m, arrays in self._initial.items()}
        result.add("initial", State.joined(**kept))
        return AgentState(result.info, result.arrays)

    def restore(self, state: AgentState) -> None:
        """Restore what `state` returned, in the pool of a league that was made with the same arguments."""
        names = self.names
        if (saved := state.names("learners")) != names:
            raise SaveError(f"{state.place('learners')} is {', '.join(saved)}, and this league has {', '.join(names)}")
        super().restore(state)
        self.standings.restore(state.part("standings"), state.part("pool").count("next"))
        self._counted = state.count("counted")
        for name in ("began", "resets"):
            values = within(state.place(name), state.array(name, np.int64, (len(names),)), 0, MOST_COUNTED)
            setattr(self, name, values.copy())
        kept = state.part("initial")
        self._initial = {names.index(name): kept.part(name).arrays for name in kept.info}

    def _restore_shares(self, state: State) -> None:
        """The shares follow from the results."""

    def _templates(self) -> list[Agent]:
        """See `MixedAgent`."""
        return [*(learner.agent for learner in self.learners), *super()._templates()]

    def _unknown(self, saved: AgentState) -> Agent:
        """See `MixedAgent`: such as one that was added in another process."""
        return restore(AgentState(saved.info, saved.arrays))
