"""League: main agents, their exploiters and a pool of earlier versions, trained in one run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from marltrain.core.errors import AgentError, ConfigError, shown
from marltrain.core.seeds import child_seed, chosen_seed
from marltrain.core.settings import checked_arguments, validate
from marltrain.core.spec import EnvSpec
from marltrain.policies.agents.agent import Agent
from marltrain.policies.agents.algorithm_agent import LearningAgent
from marltrain.policies.agents.beginners import beginner
from marltrain.policies.agents.matches import Matches
from marltrain.policies.agents.mixed import MixedAgent, named_members
from marltrain.policies.interface.joint import JointAlgorithm
from marltrain.rivals.laws import Law, law_name, law_of
from marltrain.rivals.league_pool import (
    EXPLOITER,
    LEAGUE_EXPLOITER,
    MAIN,
    LeaguePlayer,
    LeaguePool,
    LeagueSettings,
)

if TYPE_CHECKING:
    import pandas as pd

Exploiters = int | Sequence[Agent]
"""A number of new agents, or the agents."""


class League(Matches):
    """Main agents and exploiters that train in one run, each learner in a match of its own (Vinyals et al. 2019).

    `trainer.train(mt.League(agent), rotate=True)`

    A main agent plays against versions of all learners, and against main agents as they are. A main exploiter plays
    against one main agent as it is, a league exploiter against the versions. An exploiter that wins becomes a version,
    and begins again. The learner is the first player of its match, the pool plays all others; with rotate=True they
    change seats. The environments are divided among the matches. Learners of equal kind are computed together.

    learners: the learners, main agents first; match m is that of learner m.  pool: their opponents, an `mt.MixedAgent`.
    """

    @checked_arguments
    def __init__(
        self,
        agents: Agent | Sequence[Agent],
        *,
        exploiters: Exploiters = 1,
        league_exploiters: Exploiters = 1,
        members: Sequence[Agent] | Mapping[str, Agent] = (),
        choose: str | Law = "prioritized",
        every_steps: int = 50_000,
        size: int = 16,
        present: float = 0.35,
        wins: float = 0.7,
        least_games: int = 100,
        longest: int | None = None,
        reset: str = "initial",
        weighting: str = "hard",
        power: float = 2.0,
        leaves: str = "oldest",
        decay: float = 0.99,
        seed: int | None = None,
    ) -> None:
        """Make the learners and the pool; versions enter in training.

        agents: one or several main agents.
        exploiters: main exploiters, as a number (new agents with the settings of the main agents, in turn) or as
            agents. Exploiter i plays against main agent i mod their number.  league_exploiters: likewise.
        members: further players that always stay in the pool, as a list or by name.
        choose, weighting, power: how main agents and league exploiters draw a version, each by its own results; see
            `OpponentPool`.
        every_steps: env steps of the run (of all matches) between versions of the main agents.  size: largest number
            of versions.  leaves: the "oldest" version leaves a full pool, or the "weakest", by the main agents' scores.
            The newest version of each main agent stays.
        present: share of the main agents' games against main agents as they are, each equally often.
        wins: an exploiter begins again when it gets this share of the points, in the last 1 / (1 - decay) games, at
            least `least_games`.  longest: env steps of the run after which it begins again in any case; None: never.
        reset: the weights with which an exploiter begins again: "initial": those at the start of training; "new": newly
            drawn. Its hyperparameters and random numbers continue; so does a replay memory.
        decay: of scores: an earlier game counts this much of the next one.
        seed: of new exploiters; None: from the first main agent.  The draws are those of the run's seed.

        Raises AgentError for agents that cannot learn alone or have other spaces, and ConfigError for wrong settings.
        """
        law = law_of(choose, weighting, power, "League")
        settings = LeagueSettings(
            choose=law_name(choose), every_steps=every_steps, size=size, present=present, wins=wins,
            least_games=least_games, longest=longest, reset=reset, weighting=weighting, power=power, leaves=leaves,
            decay=decay,
        )  # fmt: skip
        validate(settings, "League")
        mains = _checked([agents] if isinstance(agents, Agent) else agents, "agents")
        if not mains:
            raise ConfigError("League: it needs at least one main agent, got none")
        if size < len(mains):
            raise ConfigError(
                f"League: the pool always holds a version of each main agent: expected size of at least {len(mains)}, "
                f"got size={size}"
            )
        own = mains[0].seed if seed is None else chosen_seed(seed, "League")
        found = [LeaguePlayer(f"{MAIN}_{i}", MAIN, agent) for i, agent in enumerate(mains)]
        for role, given in ((EXPLOITER, exploiters), (LEAGUE_EXPLOITER, league_exploiters)):
            for i, agent in enumerate(_made(given, role, mains, int(own or 0))):
                found.append(LeaguePlayer(f"{role}_{i}", role, agent, i % len(mains) if role == EXPLOITER else -1))
        if len({id(learner.agent) for learner in found}) < len(found):
            raise AgentError("League: each learner is an agent of its own, and one agent was given twice")
        if reset == "new" and (fixed := [learner for learner in found if not learner.agent.stackable]):
            raise ConfigError(f'League: reset="new" draws new weights, and {fixed[0].name} has a model of your own: '
                              'give reset="initial"')  # fmt: skip
        self.learners, self.names = found, tuple(learner.name for learner in found)
        self.pool = LeaguePool(found, named_members(members, "League"), law, settings, None)

    @property
    def agents(self) -> list[Agent]:
        """The learners' agents, and the pool."""
        return [*(learner.agent for learner in self.learners), self.pool]

    def __getitem__(self, name: str) -> LearningAgent:
        """Return the agent of a learner by its name, such as "main_0" or "exploiter_0"."""
        for learner in self.learners:
            if learner.name == name:
                return learner.agent
        raise ConfigError(f"League: no learner {name!r}; there are {', '.join(self.names)}")

    def seated(self, spec: EnvSpec) -> list[Agent]:
        """See `Matches`."""
        if len(spec.players) < 2 or len(spec.groups) > 1:
            kinds = "; ".join(f"{p.name}: {p.observation_space}, {p.action_space}" for p in spec.players)
            raise AgentError(
                f"League: its learners play against versions of each other, so all players of the game need equal "
                f"spaces, and there are at least two; {spec.name} has {kinds}"
            )
        return [*(learner.agent for learner in self.learners), *[self.pool] * (len(spec.players) - 1) * len(self.names)]

    def tested(self, spec: EnvSpec) -> list[Agent]:
        """Return the first main agent and, in all other seats, the pool, whose members play in turn."""
        return [self.learners[0].agent, *[self.pool] * (len(spec.players) - 1)]

    def table(self) -> pd.DataFrame:
        """Return a table of the learners' results, a row for each learner and opponent, since the learner began.

        Columns: "learner", "member" (number; -1 - i: learner i as it is), "name" of this opponent, "env_steps" (of the
        run, when the member entered), "games", "wins", "draws", "losses" and the mean "return" of the learner, "score":
        the share of its points in recent games, "rating": Elo points of the opponent, "share": its probability in the
        learner's next draw.
        """
        import pandas as pd

        tables = []
        for m, name in enumerate(self.names):
            numbers, shares = self.pool.opponents(m)
            columns = self.pool.standings.columns(m, numbers, self.names)
            tables.append(pd.DataFrame({"learner": name, "member": numbers, **columns, "share": shares}))
        return pd.concat(tables, ignore_index=True)

    def ratings(self) -> pd.DataFrame:
        """Return a table of the learners: their Elo points, and their results since they began.

        Columns: "learner", "role", "rating", "score" (share of the points in recent games), "games", "began" (env step
        of the run) and "resets" (how often it began again).
        """
        import pandas as pd

        pool, results = self.pool, self.pool.standings
        points, games = results.recent.T
        columns = {
            "learner": self.names, "role": [learner.role for learner in self.learners],
            "rating": results.ratings[: len(self.names)],
            "score": np.divide(points, games, out=np.full(len(games), np.nan), where=games > 0),
            "games": results.count, "began": pool.began, "resets": pool.resets,
        }  # fmt: skip
        return pd.DataFrame(columns)


def _made(given: Any, role: str, mains: Sequence[LearningAgent], seed: int) -> list[LearningAgent]:
    """Return the agents of a role: those that are given, or a number of new ones."""
    if isinstance(given, bool) or not isinstance(given, int):
        return _checked(given, f"{role}s")
    if given < 0:
        raise ConfigError(f"League: {role}s must be at least 0, got {given}")
    return [beginner(mains[i % len(mains)], child_seed(seed, role, i)) for i in range(given)]


def _checked(given: Any, what: str) -> list[LearningAgent]:
    """Return agents that can learn in matches of their own; raises AgentError for others."""
    agents = list(given) if isinstance(given, Sequence) and not isinstance(given, str) else [given]
    for agent in agents:
        if not isinstance(agent, LearningAgent):
            kind = "a set of policies" if isinstance(agent, MixedAgent) else shown(agent)
            raise AgentError(f"League: {what} are agents of marltrain's algorithms, which learn, got {kind}")
        needs = agent.algorithm.needs()
        if isinstance(agent.algorithm, JointAlgorithm) or needs.state or needs.joint_actions or needs.shared:
            raise AgentError(
                f"League: {what}: a {type(agent).__name__} learns with or from other players, and each learner of a "
                "league is alone in its match. Give agents of an algorithm for single agents, such as PPO or DQN"
            )
    return agents
