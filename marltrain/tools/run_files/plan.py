"""RunPlan: what a run is made from, as the command line and files of runs describe it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from marltrain.core.errors import ConfigError
from marltrain.envs import probe
from marltrain.policies.agents.agent import Agent
from marltrain.policies.agents.algorithm_agent import LearningAgent
from marltrain.policies.agents.fixed import RandomAgent
from marltrain.policies.agents.registry import registered_name
from marltrain.policies.agents.weights import holds_several
from marltrain.tools.run_files.line_up import beside_random, check_test_against, line_up
from marltrain.tools.run_files.settings import settings_of_agent, settings_of_trainer
from marltrain.tools.run_files.sharing import by_agent
from marltrain.trainer.decentralized import DecentralizedTrainer
from marltrain.trainer.events.callbacks import Callback
from marltrain.trainer.make_agents import make_agents
from marltrain.trainer.seats.sides import sides_of, teams_of
from marltrain.trainer.tuned import tuned


@dataclass(frozen=True)
class PlayerPlan:
    """The agent of a player, or of players by a pattern: its algorithm, its settings, and whether it learns."""

    algo: Any
    settings: Mapping[str, Any] = field(default_factory=dict)
    learns: bool | None = None
    explores: bool = True


@dataclass(frozen=True)
class RunPlan:
    """What a run is made from; None and empty values stand for the defaults.

    algo: algorithm of all players; `players` by name or pattern, if there are several.  settings: those of all agents.
    trainer: arguments of `DecentralizedTrainer`, beside `team_reward` and `run_dir`.
    weights: folder of initial weights, see `LearningAgent.load_weights`.
    self_play: one agent in all seats, tested against random ones.  test_against: who plays at random in tests, see
    `line_up`; None: no opponents, except in self-play.  tuned: begin with settings known to work.
    callbacks: in their order.
    """

    env: str
    env_args: Mapping[str, Any] = field(default_factory=dict)
    algo: Any = None
    players: Mapping[str, PlayerPlan] = field(default_factory=dict)
    settings: Mapping[str, Any] = field(default_factory=dict)
    trainer: Mapping[str, Any] = field(default_factory=dict)
    share: bool = False
    identify: bool = False
    self_play: bool = False
    tuned: bool = False
    backend: str | None = None
    teams: Any = None
    team_reward: Any = None
    test_against: Any = None
    weights: str | None = None
    run_dir: str | None = None
    callbacks: Sequence[Callback] = ()

    def joined(self) -> RunPlan:
        """Return the plan with one algorithm for all players if their agents are made alike, learn and explore."""
        plans = list(self.players.values())
        if any(plan.learns is False or not plan.explores for plan in plans):
            return self
        if not plans or any((plan.algo, plan.settings) != (plans[0].algo, plans[0].settings) for plan in plans):
            return self
        return replace(self, algo=plans[0].algo, settings={**self.settings, **plans[0].settings}, players={})

    def make(self) -> MadeRun:
        """Make the trainer and the agents; raises ConfigError, AgentError or SaveError if they do not fit."""
        if self.algo is None and not self.players:
            raise ConfigError("train: no algorithm is given: name one with --algo")
        for option, on in (("--tuned", self.tuned), ("--self-play", self.self_play)):
            if on and self.algo is None:
                raise ConfigError(f"{option} needs one algorithm for all players: --algo ALGO")
        check_test_against(self.test_against)
        if self.tuned and not isinstance(self.algo, str):
            raise ConfigError("--tuned: there are tuned settings for marltrain's own algorithms only")
        known = tuned(self.algo, self.env) if self.tuned else {"trainer": {}, "agents": {}}
        given = {"team_reward": self.team_reward, "run_dir": self.run_dir}
        trainer = DecentralizedTrainer(
            self.env, env_args=self.env_args, callbacks=self.callbacks,
            **{**known["trainer"], **self.trainer, **{name: v for name, v in given.items() if v is not None}},
        )  # fmt: skip
        flags = {"share": self.share or self.self_play, "identify": self.identify}
        arguments = {"teams": self.teams, "backend": self.backend, **{name: True for name, on in flags.items() if on}}
        kinds: Any = self.algo
        if self.algo is None:
            kinds = {name: (plan.algo, dict(plan.settings)) for name, plan in self.players.items()}
        agents = make_agents(
            kinds, self.env, env_args=self.env_args, seed=trainer.seed,
            **{**known["agents"], **self.settings, **{name: v for name, v in arguments.items() if v is not None}},
        )  # fmt: skip
        result = MadeRun(trainer, agents, self)
        if self.weights is not None:
            _load_weights(self.weights, agents, result.names)
        return result


@dataclass(frozen=True)
class MadeRun:
    """The trainer and the agents of a plan."""

    trainer: DecentralizedTrainer
    agents: list[Agent]
    plan: RunPlan

    @property
    def names(self) -> tuple[str, ...]:
        """The players' names."""
        return probe(self.trainer.setup.source).names

    def train(self, **more: Any) -> dict[str, Any]:
        """Train the agents, as `DecentralizedTrainer.train`; raises ConfigError if the plan lets no player learn."""
        own = [self.of(name) for name in self.names] if self.plan.players else []
        seats = zip(self.agents, own, strict=False)
        learns = [agent.learns if plan.learns is None else plan.learns for agent, plan in seats] or None
        if learns and not any(learns) and any(plan.learns is False for plan in own):
            raise ConfigError("train: no player learns: set learns = true for a player whose agent can learn")
        explores = [plan.explores for plan in own] if own else None
        mask = learns if learns and any(learns) else None  # the trainer says why no agent can learn
        return self.trainer.train(self.agents, mask, explores, **self._tests(learns), **more)

    def _tests(self, learns: Sequence[bool] | None) -> dict[str, Any]:
        """Return the arguments of `train` that say who plays the tests."""
        against = self.plan.test_against
        if against is None:
            return {"test_agents": beside_random(self.agents)} if self.plan.self_play else {}
        learns = [agent.learns for agent in self.agents] if learns is None else learns
        sides = sides_of(self.names, self.trainer.setup.team_reward, teams_of(self.agents, self.names))
        return line_up(against, self.agents, self.names, learns, sides)._asdict()

    def of(self, player: str) -> PlayerPlan:
        """Return the plan of a player: that of its name, else of the pattern that matches."""
        players = self.plan.players
        return players[player] if player in players else next(p for k, p in players.items() if fnmatchcase(player, k))

    def completed(self) -> RunPlan:
        """Return the plan with every setting of the trainer and of the agents, as they were made."""
        trainer = {**settings_of_trainer(self.trainer.settings), "seed": self.trainer.seed}
        if self.trainer.setup.display is not None:
            trainer["progress"] = self.trainer.setup.display
        plans = {}
        for name, agent in zip(self.names, self.agents, strict=True):
            given = self.of(name) if self.plan.players else PlayerPlan(self.plan.algo)
            plans[name] = replace(given, algo=_algo_of(agent), settings=settings_of_agent(name, agent))
        weights = None if self.plan.weights is None else str(Path(self.plan.weights).absolute())
        held = list(map(id, self.agents))
        shared = len(set(held)) < len(held)
        done = replace(
            self.plan, algo=None, players=plans, settings={}, trainer=trainer, tuned=False, weights=weights,
            share=shared, identify=any(agent.identity for agent in self.agents),
        )  # fmt: skip
        joined = done.joined()
        if not shared or (self.plan.algo is not None and joined.algo is not None):
            return joined
        return replace(done, players=by_agent(plans, held))


def _algo_of(agent: Agent) -> str:
    if isinstance(agent, RandomAgent):
        return "random"
    name = registered_name(type(agent))
    if name is None:
        raise ConfigError(f"train: a file cannot describe a {type(agent).__name__}: its class is code of your own")
    return name


def _load_weights(folder: str, agents: Sequence[Agent], names: Sequence[str]) -> None:
    """Load initial weights into every learning agent: those of its player, or of the folder's only agent."""
    several, done = holds_several(folder), set[int]()
    for name, agent in zip(names, agents, strict=True):
        if isinstance(agent, LearningAgent) and id(agent) not in done:
            done.add(id(agent))
            agent.load_weights(folder, player=name if several else None)
