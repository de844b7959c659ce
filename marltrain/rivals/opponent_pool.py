"""OpponentPool: past versions of agents, and other players, as the opponents of learning agents."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from marltrain.core.errors import AgentError, ConfigError, SaveError, shown
from marltrain.core.layout import Array
from marltrain.core.seeds import chosen_seed
from marltrain.core.settings import checked_arguments, setting, validate
from marltrain.policies.agents.agent import Agent
from marltrain.policies.agents.mixed import MixedAgent, named_members
from marltrain.policies.agents.restore import restore
from marltrain.policies.batches.batch import AgentState
from marltrain.rivals.laws import WEIGHTINGS, Law, law_name, law_of, probabilities
from marltrain.rivals.standings import Standing, Standings
from marltrain.storage.checks import of_type
from marltrain.storage.state import State

if TYPE_CHECKING:
    import pandas as pd

EVERY_STEPS = 50_000
"""Env steps between versions if no rule is given."""
LEAVING = ("oldest", "weakest")


@dataclass(frozen=True, kw_only=True)
class PoolSettings:
    """Settings of an `OpponentPool`; choose: the name of the law or of the function."""

    choose: str = setting("prioritized", doc="the law of the draws")
    every_steps: int | None = setting(None, doc="env steps between new versions", low=1)
    every_episodes: int | None = setting(None, doc="episodes between new versions", low=1)
    beats: float | None = setting(None, doc="share of the points that adds a version", above=0.0, high=1.0)
    least_games: int = setting(100, doc="games against members before `beats` adds a version", low=1)
    size: int = setting(16, doc="largest number of versions", low=1)
    weighting: str = setting("hard", doc="of prioritized choices", choices=WEIGHTINGS)
    power: float = setting(2.0, doc="exponent of the hard weighting", low=0.0, high=100.0)
    present: float = setting(0.0, doc="share of the games against the agents as they are", low=0.0, high=1.0)
    leaves: str = setting("oldest", doc="the version that leaves a full pool", choices=LEAVING)
    decay: float = setting(0.99, doc="weight of earlier games in scores", above=0.0, high=1.0)


class OpponentPool(MixedAgent):
    """A seat's opponents: frozen versions of agents, of which each environment and episode draws one.

    `trainer.train([learner, mt.OpponentPool(learner)], learning_mask=[1, 0])`

    The pool starts with a copy of each agent, or with the given members. All members of one kind are computed together.
    The trainer records the member of each episode (`member/<player>` in the table of episodes), and the pool its
    results: see `table`. Checkpoints hold the pool; a resumed run is exact.
    """

    @checked_arguments
    def __init__(
        self,
        agents: Agent | Sequence[Agent | Sequence[Agent]] = (),
        *,
        members: Sequence[Agent | Sequence[Agent]] | Mapping[str, Agent | Sequence[Agent]] = (),
        choose: str | Law = "prioritized",
        every_steps: int | None = None,
        every_episodes: int | None = None,
        beats: float | None = None,
        least_games: int = 100,
        size: int = 16,
        weighting: str = "hard",
        power: float = 2.0,
        present: float = 0.0,
        leaves: str = "oldest",
        decay: float = 0.99,
        seed: int | None = None,
    ) -> None:
        """Add the given members; versions of `agents` are added in training.

        agents: one or several agents that train, of which versions enter; or teams, as tuples of agents: the pool then
            has as many `seats`, in which a version of a whole team plays, as in
            train([a, b, *OpponentPool([(a, b)]).seats], learning_mask=[1, 1, 0, 0]).
        members: further players (or teams) that always stay: agents of other runs, random and scripted players, as a
            list or by name.
        choose: how a member is drawn. "latest", "uniform", "prioritized": by the learners' score against each
            (fictitious self-play of Vinyals et al. 2019; British spelling is accepted), "rating": those of about the
            learners' Elo rating; or a function (`Standing`) -> weights [M].
        every_steps, every_episodes: env steps and episodes between versions.  beats: a version enters when the learners
            get this share of the points against the members, over the last 1 / (1 - decay) games, at least
            `least_games` since the last version. One of these rules suffices; without any, every 50,000 env steps.
        size: largest number of versions; then the oldest, or the weakest by the learners' score against it, leaves.
        weighting, power: of "prioritized": "hard" prefers members that are lost against, by (1 - score) ** power, and
            "even" those of equal strength, by score * (1 - score).
        present: share of the games in which the agents play as they are at present, unfrozen.
        decay: of scores: an earlier game counts this much of the next one against the same member.
        seed: of the draws; None: from the run.

        Raises ConfigError for a pool that would stay empty and for wrong settings, AgentError for objects that are no
        agents and for agents of different spaces.
        """
        named = named_members(members, "OpponentPool")
        given = {str(name): _team(each) for name, each in named.items()}
        self.teams = [_team(agents)] if isinstance(agents, Agent) else [_team(each) for each in agents]
        if not self.teams and not given:
            raise ConfigError("OpponentPool: nothing would ever fill it: give agents whose versions enter, or members=")
        if not self.teams and (every_steps, every_episodes, beats, present) != (None, None, None, 0.0):
            raise ConfigError(
                "OpponentPool: every_steps, every_episodes, beats and present are about versions of agents that train, "
                "and there are none: give agents, or leave them out"
            )
        if (every_steps, every_episodes, beats) == (None, None, None):
            every_steps = EVERY_STEPS
        self.choose = law_of(choose, weighting, power, "OpponentPool")
        self.settings = PoolSettings(
            choose=law_name(choose), every_steps=every_steps, every_episodes=every_episodes, beats=beats,
            least_games=least_games, size=size, weighting=weighting, power=power, present=present, leaves=leaves,
            decay=decay,
        )  # fmt: skip
        validate(self.settings, "OpponentPool")
        self.seed = None if seed is None else chosen_seed(seed, "OpponentPool")
        if len({len(team) for team in (*self.teams, *given.values())}) != 1:
            sizes = ", ".join(str(len(team)) for team in (*self.teams, *given.values()))
            raise ConfigError(f"OpponentPool: all teams of a pool have equal numbers of agents, got {sizes}")
        self._begin({name: team[0] for name, team in given.items()})
        size_of_team = len(next(iter((*self.teams, *given.values()))))
        self._mates = [
            TeamSeat(self, place, {name: team[place] for name, team in given.items()})
            for place in range(1, size_of_team)
        ]
        for i, team in enumerate(self.teams):
            for seat, agent in zip(self.seats, team, strict=True):
                seat._adopt(agent)
                if present > 0:
                    seat.pool.add_present(-1 - i, agent)
        self.standings, self.now = Standings(decay), Standings(decay)
        for name in given:
            self.standings.enter(name)
        for i in range(len(self.teams) if present > 0 else 0):
            self.now.enter("now" if len(self.teams) == 1 else f"agent {i} now")
        self._counted = (0, 0)  # env steps and episodes of the last call of `collected`
        self._games, self._recent = 0, np.zeros(2)  # games since the last version; recent (points, games)

    @property
    def seats(self) -> list[MixedAgent]:
        """The agents for the seats of a team: the pool itself, and its mates."""
        return [self, *self._mates]

    @property
    def sides(self) -> Sequence[Sequence[Agent]]:
        """See `MixedAgent`."""
        return [self.seats, *self.teams] if self._mates else ()

    @property
    def shares(self) -> Array:
        """Probability of each member in the next draw against a member, [M] float64."""
        return probabilities(self.choose, self.standing, "OpponentPool")

    @property
    def standing(self) -> Standing:
        """The members with their results, as `choose` gets them."""
        return Standing(self.standings, self.pool.numbers, self.pool.env_steps)

    def add(self, agent: Agent | Sequence[Agent], name: str) -> int:
        """Add a copy of an agent (or of a team) that always stays, as `members=` does; return its number.

        Call it between two calls of `train`, for example for an exploiter of the learner.
        """
        team = _team(agent)
        if len(team) != len(self.seats):
            raise ConfigError(
                f"OpponentPool: a member has an agent for each of {len(self.seats)} seats, got {len(team)}"
            )
        for seat, one in zip(self.seats, team, strict=True):
            seat._adopt(one)
            member = seat.pool.add(one, name)
        self.standings.enter(name)
        return member.number

    def table(self) -> pd.DataFrame:
        """Return a table of the members in the pool, by their numbers.

        Columns: "name", "env_steps" (of the run, when it entered), "games", "wins", "draws", "losses" and the mean
        "return" of the learners against it, "score": the share of their points in recent games, "rating": Elo points of
        the member, and "share": its probability in the next draw. The learners' rating is `standings.learners`.
        With `present`, the rows -1 - i are those of agent i as it is.
        """
        import pandas as pd

        numbers, present = self.pool.numbers, self.settings.present
        own = pd.DataFrame({"member": numbers, **self.standings.columns(numbers), "share": (1 - present) * self.shares})
        others = self._now().assign(share=present / max(1, len(self.now)))
        return pd.concat([others, own] if len(others) else [own]).set_index("member")

    def results(self) -> pd.DataFrame:
        """Return a table of all members so far, also of those that have left the pool ("in_pool" is False).

        A run writes it into `members.parquet`. Its other columns are "member", the number, and those of `table` but
        "share"; -1 - i is agent i as it is.
        """
        import pandas as pd

        numbers = np.arange(len(self.standings))
        in_pool = np.isin(numbers, self.pool.numbers)
        own = pd.DataFrame({"member": numbers, **self.standings.columns(numbers), "in_pool": in_pool})
        others = self._now().assign(in_pool=True)
        return pd.concat([others, own], ignore_index=True) if len(others) else own

    def _now(self) -> pd.DataFrame:
        """Return the rows of the agents as they are, which have the learners' rating."""
        import pandas as pd

        places = np.arange(len(self.now))
        columns = {**self.now.columns(places), "rating": self.standings.learners}
        return pd.DataFrame({"member": -1 - places, **columns})

    def metrics(self) -> dict[str, float]:
        """Return the numbers of the pool in the tables of a run and in TensorBoard, after "<player of the pool>/".

        "elo/learner": Elo points of the learners; "elo/highest", "elo/mean", "elo/lowest": of the members; "score": the
        learners' share of the points in recent games, a mean over the members that have played; "members": how many.
        """
        return self.standing.metrics if len(self.pool) else {}

    # what the trainer calls

    def check_run(self, line_up: Sequence[Agent], steps: int | None, episodes: int | None) -> None:
        """Raise an error if no version would ever enter; see `MixedAgent.check_run`."""
        trained = {id(agent) for agent in line_up}
        for agent in (agent for team in self.teams for agent in team):
            if id(agent) not in trained:
                raise AgentError(
                    f"OpponentPool: its agent {agent!r} is not among the agents of this call, so no new version of it "
                    "would ever enter. Give members=[agent] for an agent that does not train"
                )
        if any(id(seat) not in trained for seat in self.seats):
            raise AgentError(
                f"OpponentPool: the pool of teams plays {len(self.seats)} seats, and not all of them are among the "
                "agents of this call: give *pool.seats"
            )
        s = self.settings
        late = [
            f"every_{what}={every:,}, and training ends after {budget:,} {what}"
            for what, every, budget in (("steps", s.every_steps, steps), ("episodes", s.every_episodes, episodes))
            if every is not None and budget is not None and every > budget
        ]
        rules = sum(rule is not None for rule in (s.every_steps, s.every_episodes, s.beats))
        if self.teams and len(late) == rules:
            raise ConfigError(
                f"OpponentPool: no version would ever enter after the start: {'; '.join(late)}. Lower it, train for "
                "longer, or give the opponents with members="
            )

    def start(self, env_steps: int, episodes: int) -> None:
        """Add the first versions, if the pool has no member; see `MixedAgent.start`."""
        self._counted = (env_steps, episodes)
        if not len(self.pool):
            self._enter(env_steps)

    def draw(self, matches: Array) -> Array:
        """See `MixedAgent.draw`; -1 - i stands for agent i as it is at present."""
        numbers = super().draw(matches)
        if self.settings.present > 0:
            chance = self._generator().random((2, len(matches)))
            which = (chance[1] * len(self.teams)).astype(np.int64)
            numbers = np.where(chance[0] < self.settings.present, -1 - which, numbers)
        return numbers

    def finished(self, members: Array, own: Array, others: Array, matches: Array) -> None:
        """Add results to the standings; games against present agents count for no rating and no rule."""
        for number, mine, theirs in zip(members.tolist(), own.tolist(), others.tolist(), strict=True):
            if number >= 0:
                points = self.standings.add(number, mine, theirs)
                self._recent = self.settings.decay * self._recent + (points, 1.0)
                self._games += 1
            else:
                self.now.add(-1 - number, mine, theirs)

    def steps_left(self, env_steps: int) -> int:
        """See `MixedAgent`."""
        every = self.settings.every_steps
        return sys.maxsize if every is None else every - env_steps % every

    def collected(self, env_steps: int, episodes: int, playing: Array) -> Sequence[int]:
        """Add versions that are due, and remove others for them."""
        s, before, now = self.settings, self._counted, (env_steps, episodes)
        if now == before or not self.teams:
            return ()
        self._counted = now
        rules = zip((s.every_steps, s.every_episodes), before, now, strict=True)
        if any(every and then // every < count // every for every, then, count in rules) or self._beaten():
            self._enter(env_steps)
            for seat in self.seats:
                seat.pool.forget(playing)
        return ()

    def _beaten(self) -> bool:
        """Return whether the learners have the share of points that adds a version."""
        s, (points, games) = self.settings, self._recent
        return s.beats is not None and self._games >= s.least_games and bool(points >= s.beats * games)

    def _enter(self, env_steps: int) -> None:
        """Add a version of each agent or team; remove versions beyond the size of the pool."""
        new = []
        for i, team in enumerate(self.teams):
            name = f"at {env_steps}" if len(self.teams) == 1 else f"agent {i} at {env_steps}"
            for seat, agent in zip(self.seats, team, strict=True):
                member = seat.pool.add(agent, name, env_steps, given=False)
            new.append(member.number)
            self.standings.enter(name, env_steps)
        self._games, self._recent = 0, np.zeros(2)
        versions = [member.number for member in self.members if not member.given]
        scores = self.standings.scores
        while len(versions) > max(self.settings.size, len(new)):
            old = [number for number in versions if number not in new]
            leaver = old[0] if self.settings.leaves == "oldest" else max(old, key=lambda number: scores[number])
            versions.remove(leaver)
            for seat in self.seats:
                seat.pool.remove(leaver)

    # saving

    def state(self) -> AgentState:
        """Return the members, their results, and the counts of the rules."""
        mixed = super().state()
        result = State(mixed.info, mixed.arrays)
        result.add("standings", self.standings.state())
        result.add("now", self.now.state())
        result.info |= {"counted": list(self._counted), "games": self._games, "recent": self._recent.tolist()}
        return AgentState(result.info, result.arrays)

    def restore(self, state: AgentState) -> None:
        """Restore what `state` returned, in a pool that was made with the same arguments."""
        super().restore(state)
        self.standings.restore(state.part("standings"), state.part("pool").count("next"))
        self.now.restore(state.part("now"), len(self.now))
        counted = [of_type(state.place("counted"), count, int) for count in state.values("counted", int)]
        recent = [of_type(state.place("recent"), value, float) for value in state.values("recent", float)]
        if len(counted) != 2 or len(recent) != 2:
            raise SaveError(f"{state.place('counted')} and {state.place('recent')} have 2 numbers each")
        self._counted, self._recent = (counted[0], counted[1]), np.array(recent)
        self._games = state.count("games")

    def _restore_shares(self, state: State) -> None:
        """The shares follow from the standings."""

    def _templates(self) -> list[Agent]:
        """See `MixedAgent`."""
        return [*(team[0] for team in self.teams), *super()._templates()]

    def _unknown(self, saved: AgentState) -> Agent:
        """See `MixedAgent`: such as one that `add` added in another process."""
        return restore(AgentState(saved.info, saved.arrays))


class TeamSeat(MixedAgent):
    """A further seat of a pool of teams: its members play with those of equal numbers in the first seat."""

    def __init__(self, first: OpponentPool, place: int, given: Mapping[str, Agent]) -> None:
        """Add the given members.  first: the pool.  place: of this seat in the teams."""
        self.seed, self._first, self._place = None, first, place
        self._begin(given)

    @property
    def leader(self) -> MixedAgent:
        """The pool."""
        return self._first

    @property
    def shares(self) -> Array:
        """See `MixedAgent`."""
        return self._first.shares

    def check_run(self, line_up: Sequence[Agent], steps: int | None, episodes: int | None) -> None:
        """Raise AgentError without the pool's first seat."""
        if all(agent is not self._first for agent in line_up):
            raise AgentError("OpponentPool: the first seat of a pool of teams is not in this call: give *pool.seats")

    def _restore_shares(self, state: State) -> None:
        """The shares follow from the standings."""

    def _templates(self) -> list[Agent]:
        """See `MixedAgent`."""
        return [*(team[self._place] for team in self._first.teams), *super()._templates()]

    def _unknown(self, saved: AgentState) -> Agent:
        """See `OpponentPool`."""
        return self._first._unknown(saved)


def _team(given: Any) -> tuple[Agent, ...]:
    """Return a team of agents; an agent alone is a team of one."""
    team = (given,) if not isinstance(given, Sequence) else tuple(given)
    for agent in team:
        if not isinstance(agent, Agent) or isinstance(agent, MixedAgent):
            raise AgentError(f"OpponentPool: agents and members are agents or tuples of agents, got {shown(agent)}")
    return team
