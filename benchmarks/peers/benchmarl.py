"""BenchMARL on TorchRL: independent PPO and Q-learning (W1, W4, W2), MAPPO (W5) and QMIX (W6).

    .venv-peers/benchmarl/bin/python -m benchmarks.peers.benchmarl W1 [--seconds 30] [--seed 0]

The game is mpe2's, in TorchRL's wrapper, the environments one after the other; BenchMARL's own copy of simple_spread
in VMAS has another form. No player shares its networks. BenchMARL's Q-learning and QMIX are not double, which is less
work than W2 and W6 require, and learn from the first rows on. The networks of QMIX's mixer have a hidden layer for V(s)
only.
"""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Callable
from typing import Any

import torch
from benchmarl.algorithms import IppoConfig, IqlConfig, MappoConfig, QmixConfig
from benchmarl.environments.pettingzoo.common import PettingZooClass
from benchmarl.experiment import Experiment, ExperimentConfig
from benchmarl.experiment.callback import Callback
from benchmarl.models.mlp import MlpConfig
from torchrl.envs.libs.pettingzoo import PettingZooWrapper

from benchmarks.peers import common
from benchmarks.peers.common import WATCH, Over, Task
from benchmarks.peers.games import spread

FOREVER = 10**9


class Spread(PettingZooClass):
    """The game as a BenchMARL task."""

    def get_env_fun(self, num_envs: int, continuous_actions: bool, seed: int | None, device: Any) -> Callable[[], Any]:
        """Return a function that makes one environment."""
        return lambda: PettingZooWrapper(
            spread(self.config["players"]), return_state=True, categorical_actions=True, seed=seed, device=device
        )  # fmt: skip


class Laps(Callback):
    """Records the end of every update; raises Over when the time is over."""

    def __init__(self, task: Task) -> None:
        super().__init__()
        self.task = task

    def on_train_end(self, training_td: Any, group: str) -> None:
        """Record the update; raise Over when the time is over."""
        if WATCH.lap(self.task.seconds):
            raise Over


def settings(task: Task, folder: str) -> ExperimentConfig:
    """Return BenchMARL's configuration of the work."""
    config = ExperimentConfig.get_from_yaml()
    rows = task.envs * common.STEPS
    own: dict[str, Any] = {
        "share_policy_params": False, "prefer_continuous_actions": False, "gamma": common.GAMMA, "evaluation": False,
        "render": False, "loggers": [], "create_json": False, "save_folder": folder, "max_n_frames": FOREVER,
        "clip_grad_norm": True, "clip_grad_val": common.MAX_NORM, "lr": common.PPO_RATE,
        "on_policy_collected_frames_per_batch": rows, "on_policy_n_envs_per_worker": task.envs,
        "on_policy_n_minibatch_iters": common.EPOCHS, "on_policy_minibatch_size": rows // common.MINIBATCHES,
    }  # fmt: skip
    if task.work in common.OF_Q_LEARNING:
        own |= {
            "lr": common.DQN_RATE, "soft_target_update": False, "clip_grad_val": None,
            "hard_target_update_frequency": common.TARGET_EVERY // common.EVERY, "exploration_eps_init": 1.0,
            "exploration_eps_end": common.EPSILON, "exploration_anneal_frames": common.EPSILON_STEPS,
            "off_policy_collected_frames_per_batch": common.EVERY, "off_policy_n_envs_per_worker": 1,
            "off_policy_n_optimizer_steps": 1, "off_policy_train_batch_size": common.ROWS,
            "off_policy_memory_size": common.REPLAY,
        }  # fmt: skip
    for name, value in own.items():
        setattr(config, name, value)
    return config


def algorithm(task: Task) -> Any:
    """Return the configuration of the algorithm of the work."""
    if task.work == "W2":
        return IqlConfig.get_from_yaml()
    if task.work == "W6":
        config = QmixConfig.get_from_yaml()
        config.mixing_embed_dim = common.MIXING_UNITS
        return config
    config = (MappoConfig if task.work == "W5" else IppoConfig).get_from_yaml()
    config.share_param_critic = False
    config.clip_epsilon, config.entropy_coef, config.critic_coef = common.CLIP, common.ENTROPY, common.VALUE
    config.lmbda, config.minibatch_advantage = common.LAMBDA, False
    return config


def model(task: Task) -> MlpConfig:
    """Return a network of two hidden layers."""
    activation = torch.nn.ReLU if task.work in common.OF_Q_LEARNING else torch.nn.Tanh
    return MlpConfig(num_cells=[common.WIDTH] * 2, activation_class=activation, layer_class=torch.nn.Linear)


def main() -> None:
    """Build the experiment, and train until the time is over."""
    task = common.task_of(__doc__, "W1", "W4", "W2", "W5", "W6")
    with tempfile.TemporaryDirectory() as folder, contextlib.suppress(Over):
        Experiment(
            task=Spread(name="SIMPLE_SPREAD", config={"players": task.players, "max_cycles": 25}),
            algorithm_config=algorithm(task), model_config=model(task), critic_model_config=model(task),
            seed=task.seed, config=settings(task, folder), callbacks=[Laps(task)],
        ).run()  # fmt: skip
    more = {"double": False} if task.work in common.OF_Q_LEARNING else {}
    common.report("benchmarl", task, ("benchmarl", "torchrl", "torch", "mpe2"), networks="separate", **more)


if __name__ == "__main__":
    main()
