"""XuanCe: independent PPO and double Q-learning (W1, W4, W2), MAPPO (W5) and QMIX (W6), in one process.

    .venv-peers/xuance/bin/python -m benchmarks.peers.xuance W1 [--seconds 30] [--seed 0]

No player shares its networks. XuanCe 1.4 imports MPE from a module that PettingZoo no longer has, so the game is
registered as a custom environment.
"""

from __future__ import annotations

import contextlib
import tempfile
from argparse import Namespace
from pathlib import Path
from typing import Any

import numpy as np
import xuance
from xuance.common import MultiAgentBaseCallback, load_yaml
from xuance.environment import REGISTRY_MULTI_AGENT_ENV, RawMultiAgentEnv, make_envs
from xuance.torch.agents import IPPO_Agents, IQL_Agents, MAPPO_Agents, QMIX_Agents

from benchmarks.peers import common
from benchmarks.peers.common import WATCH, Over, Task
from benchmarks.peers.games import spread

FOREVER = 10**9
CONFIGS = Path(xuance.__file__).parent / "configs"
AGENTS = {
    "W1": ("ippo", IPPO_Agents), "W4": ("ippo", IPPO_Agents), "W2": ("iql", IQL_Agents), "W5": ("mappo", MAPPO_Agents),
    "W6": ("qmix", QMIX_Agents),
}  # fmt: skip
"""Name of the configuration, and the class of the agents, of each work."""


class Spread(RawMultiAgentEnv):
    """The game with XuanCe's environment interface."""

    def __init__(self, config: Namespace) -> None:
        super().__init__()
        self.env = spread(config.players)
        self.env.reset(config.env_seed)
        self.agents, self.num_agents = self.env.agents, self.env.num_agents
        self.state_space = self.env.state_space
        self.observation_space = {player: self.env.observation_space(player) for player in self.agents}
        self.action_space = {player: self.env.action_space(player) for player in self.agents}
        self.max_episode_steps = self.env.unwrapped.max_cycles
        self.individual_episode_reward = dict.fromkeys(self.agents, 0.0)
        self._steps = 0

    def reset(self) -> tuple[Any, dict[str, Any]]:
        """Begin an episode."""
        obs, infos = self.env.reset()
        self.individual_episode_reward = dict.fromkeys(self.agents, 0.0)
        self._steps = 0
        return obs, {"infos": infos, "individual_episode_rewards": self.individual_episode_reward}

    def step(self, actions: dict[str, Any]) -> tuple[Any, ...]:
        """Make an environment step."""
        obs, rewards, terminated, _, infos = self.env.step(actions)
        for player, reward in rewards.items():
            self.individual_episode_reward[player] += reward
        self._steps += 1
        data = {"infos": infos, "individual_episode_rewards": self.individual_episode_reward}
        return obs, rewards, terminated, self._steps >= self.max_episode_steps, data

    def state(self) -> Any:
        """Return the state of the whole game."""
        return self.env.state()

    def agent_mask(self) -> dict[str, bool]:
        """Return a mask in which all agents are active."""
        return dict.fromkeys(self.agents, True)

    def avail_actions(self) -> dict[str, Any]:
        """Return a mask in which all actions are legal."""
        return {player: np.ones(self.action_space[player].n, np.bool_) for player in self.agents}

    def render(self, *args: Any) -> Any:
        """Draw the game."""
        return self.env.render()

    def close(self) -> None:
        """Close the game."""
        self.env.close()


class Laps(MultiAgentBaseCallback):
    """Records the end of every update; raises Over when the time is over."""

    def __init__(self, task: Task) -> None:
        super().__init__()
        self.task = task

    def on_train_epochs_end(self, current_step: int, **_: Any) -> None:
        """Record the update; raise Over when the time is over."""
        if WATCH.lap(self.task.seconds):
            raise Over


def ppo(task: Task) -> dict[str, Any]:
    """Return the settings for W1, W4 and W5."""
    return {
        "policy": "Categorical_MAAC_Policy", "representation_hidden_size": [common.WIDTH],
        "actor_hidden_size": [common.WIDTH], "critic_hidden_size": [common.WIDTH], "activation": "tanh",
        "buffer_size": task.envs * common.STEPS, "n_epochs": common.EPOCHS, "n_minibatch": common.MINIBATCHES,
        "learning_rate": common.PPO_RATE, "vf_coef": common.VALUE, "ent_coef": common.ENTROPY,
        "clip_range": common.CLIP, "gae_lambda": common.LAMBDA, "use_value_clip": False, "use_value_norm": False,
        "use_huber_loss": False, "grad_clip_norm": common.MAX_NORM, "use_global_state": task.work == "W5",
    }  # fmt: skip


def dqn(task: Task) -> dict[str, Any]:
    """Return the settings for W2 and W6."""
    return {
        "representation_hidden_size": [common.WIDTH], "q_hidden_size": [common.WIDTH], "activation": "relu",
        "buffer_size": common.REPLAY, "batch_size": common.ROWS, "learning_rate": common.DQN_RATE, "double_q": True,
        "end_greedy": common.EPSILON, "decay_step_greedy": common.EPSILON_STEPS,
        "start_training": common.LEARNING_STARTS, "training_frequency": common.EVERY,
        "sync_frequency": common.TARGET_EVERY // common.EVERY,
        "hidden_dim_mixing_net": common.MIXING_UNITS, "hidden_dim_hyper_net": common.HYPER_UNITS,
    }  # fmt: skip


def configured(task: Task, folder: str) -> Namespace:
    """Return XuanCe's default configuration for this game, with the settings of the work."""
    kind, _ = AGENTS[task.work]
    own = dqn(task) if task.work in common.OF_Q_LEARNING else ppo(task)
    config = {**load_yaml(str(CONFIGS / "basic.yaml")), **load_yaml(str(CONFIGS / kind / "mpe/simple_spread_v3.yaml"))}
    config.pop("normalize", None)
    return Namespace(**{
        **config, **own, "env_name": "spread", "env_id": "simple_spread_v3", "players": task.players,
        "env_seed": task.seed, "seed": task.seed, "parallels": task.envs, "vectorize": "DummyVecMultiAgentEnv",
        "continuous_action": False, "use_parameter_sharing": False, "gamma": common.GAMMA, "running_steps": FOREVER,
        "render": False, "render_mode": None, "device": "cpu", "log_dir": folder, "model_dir": folder,
    })  # fmt: skip


def main() -> None:
    """Build the agents, and train until the time is over."""
    task = common.task_of(__doc__, *AGENTS)
    REGISTRY_MULTI_AGENT_ENV["spread"] = Spread
    with tempfile.TemporaryDirectory() as folder, contextlib.suppress(Over):
        config = configured(task, folder)
        _, kind = AGENTS[task.work]
        kind(config, make_envs(config), callback=Laps(task)).train(FOREVER)
    common.report("xuance", task, ("xuance", "torch", "mpe2"), networks="separate")


if __name__ == "__main__":
    main()
