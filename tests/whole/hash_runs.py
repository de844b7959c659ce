"""A run by the public interface, and everything that it leaves; `hash_cases` has the runs, `hashes` their checksums."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from gymnasium import spaces
from gymnasium.vector.utils import batch_space

import marltrain as mt
from tests.whole.resuming import Case

Settings = dict[str, Any]
Left = list[Any]
"""What a run leaves: values, in a fixed order."""
CLOCK = "seconds"
"""The column of tables that depends on the clock."""
COUNTS = ("num_collected_steps", "num_collected_episodes", "num_gradient_steps", "num_updates")
METRIC, TABLES = "reward_metric_stats", ("history", "episodes")
TRAINER: Settings = {
    "num_train_envs": 4, "num_test_envs": 2, "update_freq": 40, "test_freq": 8, "episodes_per_test": 3,
    "steps_per_train": 240, "batch_size": 16, "seed": 3, "progress": False, "run_dir": False,
}  # fmt: skip
FILES = {"onnx": "policy.onnx", "torch": "policy.pt2", "saved_model": "policy"}


@dataclass(frozen=True)
class Run:
    """A run of agents of one algorithm, or of one for each player; a call makes it and returns what it leaves.

    args: the environment's.  learning, exploring: masks; None: all.  trainer: its settings, besides `TRAINER`.
    imitates: whether the agents get the demonstrations of a random player.  export: format of a file of the policy.
    """

    algo: Any
    env: Any
    settings: Settings
    args: Settings = field(default_factory=dict)
    learning: Sequence[int] | None = None
    exploring: Sequence[int] | None = None
    trainer: Settings = field(default_factory=dict)
    imitates: bool = False
    export: str | None = None

    def having(self, **settings: Any) -> Run:
        """Return the run with other settings of the agents."""
        return replace(self, settings={**self.settings, **settings})

    def __call__(self) -> Left:
        """Make the run."""
        agents = mt.make_agents(self.algo, self.env, env_args=self.args, seed=1, **self.settings, **self._shown())
        trainer = mt.DecentralizedTrainer(self.env, self.args, **{**TRAINER, **self.trainer})
        result = trainer.train(agents, self.learning or [1] * len(agents), self.exploring, plot=False)
        return [*left_by(agents, result), *([] if self.export is None else _from_files(agents[0], self.export))]

    def _shown(self) -> Settings:
        if not self.imitates:
            return {}
        played = mt.demonstrations(self.env, mt.make_agents("random", self.env, seed=1), episodes=4, seed=0)
        return {"demonstrations": next(iter(played.values()))}


@dataclass(frozen=True)
class Offline:
    """20 updates of one agent from episodes that the same agent recorded before."""

    algo: str
    env: Any
    settings: Settings

    def __call__(self) -> Left:
        """Make them."""
        (agent,) = mt.make_agents(self.algo, self.env, seed=1, **self.settings)
        with tempfile.TemporaryDirectory() as folder:
            settings = {**TRAINER, "steps_per_train": 40, "test_freq": None, "run_dir": folder + "/run"}
            mt.DecentralizedTrainer(self.env, **settings).train([agent], [1], plot=False)
            played = mt.dataset(folder + "/run", episodes=4, seed=0, explore=True)
        table = mt.train_offline(agent, next(iter(played.values())), updates=20, batch_size=16, seed=0)
        return [agent.state_dict(), actions(agent), table]


@dataclass(frozen=True)
class Resumed:
    """A run of `resuming` that is interrupted and resumed."""

    case: Case

    def __call__(self) -> Left:
        """Make it."""
        with tempfile.TemporaryDirectory() as folder:
            path, case = Path(folder) / "run", self.case
            case.run(path, case.at, callbacks=[mt.Checkpoint(every_steps=10_000, memory=True)])
            _, agents, result = case.run(path, case.steps, resume=path, again=True)
            return left_by(agents, result)


Made = Callable[[], Left]


def left_by(agents: Sequence[Any], result: Mapping[str, Any]) -> Left:
    """Return the state and the actions of each agent, the numbers of the result, and the tables."""
    tables = [result[name].drop(columns=CLOCK) for name in TABLES]
    kept = [[agent.state_dict(), actions(agent)] for agent in agents]
    return [*kept, np.array([result[name] for name in COUNTS]), np.array(result[METRIC]), *tables]


def observations(space: Any) -> Any:
    """Return six fixed observations of a space, of which the first move is legal."""
    batch = batch_space(space, 6)
    batch.seed(7)
    seen = batch.sample()
    if isinstance(space, spaces.Dict) and "action_mask" in space.spaces:
        seen["action_mask"][:, 0] = 1
    return seen


def actions(agent: Any) -> Left:
    """Return an agent's actions for fixed observations, at two steps of an episode, the second with exploration.

    A set of policies has none, since a member is drawn for each episode.
    """
    if isinstance(agent, mt.MixedAgent):
        return []
    seen = observations(agent.observation_space)
    if not isinstance(agent, mt.LearningAgent):
        return [np.asarray(agent.act(seen, explore=explore)) for explore in (False, True)]
    player: Settings = {"player": agent.identity[0]} if agent.identity else {}
    first, carry = agent.act_with_carry(seen, None, **player)
    return [first, agent.act_with_carry(seen, carry, explore=True, **player)[0]]


def _from_files(agent: Any, format: str) -> Left:
    """Return the state and actions of the agent, saved and loaded, and the actions of its exported policy."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder)
        mt.save(path / "agents", [agent])
        (loaded,) = mt.load(path / "agents")
        mt.export(agent, path / FILES[format], format=format, observations=8)
        policy = mt.load_exported(path / FILES[format])
        played, _ = policy.act(observations(agent.observation_space))
        return [loaded.state_dict(), actions(loaded), played]
