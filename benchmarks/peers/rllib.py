"""RLlib's new stack in one process: a module for each player (W1, W4, W2).

    .venv-peers/rllib/bin/python -m benchmarks.peers.rllib W1 [--seconds 30] [--seed 0] [--runners 2]

RLlib makes 17 minibatches of PPO instead of 16.
"""

from __future__ import annotations

import logging
import os

os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")

import ray
from ray.rllib.algorithms.algorithm_config import AlgorithmConfig
from ray.rllib.algorithms.dqn import DQNConfig
from ray.rllib.algorithms.ppo import PPOConfig
from ray.rllib.core.rl_module.default_model_config import DefaultModelConfig
from ray.rllib.core.rl_module.multi_rl_module import MultiRLModuleSpec
from ray.rllib.core.rl_module.rl_module import RLModuleSpec
from ray.rllib.env.wrappers.pettingzoo_env import ParallelPettingZooEnv
from ray.tune.registry import register_env

from benchmarks.peers import common
from benchmarks.peers.common import WATCH, Task
from benchmarks.peers.games import spread


def ppo(task: Task) -> AlgorithmConfig:
    """Return the configuration of PPO for W1 and W4."""
    return (
        PPOConfig()
        .env_runners(num_envs_per_env_runner=task.envs // max(task.runners, 1), rollout_fragment_length=common.STEPS)
        .training(
            train_batch_size_per_learner=task.envs * common.STEPS, num_epochs=common.EPOCHS,
            minibatch_size=task.envs * common.STEPS // common.MINIBATCHES, shuffle_batch_per_epoch=True,
            lr=common.PPO_RATE, gamma=common.GAMMA,
            lambda_=common.LAMBDA, clip_param=common.CLIP, entropy_coeff=common.ENTROPY, vf_loss_coeff=common.VALUE,
            vf_clip_param=1e9, grad_clip=common.MAX_NORM, use_kl_loss=False,
        )
    )  # fmt: skip


def dqn(task: Task) -> AlgorithmConfig:
    """Return the configuration of double DQN for W2."""
    return (
        DQNConfig()
        .env_runners(num_envs_per_env_runner=1, rollout_fragment_length=common.EVERY)
        .training(
            train_batch_size_per_learner=common.ROWS, training_intensity=None, lr=common.DQN_RATE, gamma=common.GAMMA,
            double_q=True, dueling=False, num_atoms=1, n_step=1, target_network_update_freq=common.TARGET_EVERY,
            num_steps_sampled_before_learning_starts=common.LEARNING_STARTS, grad_clip=None,
            epsilon=[[0, 1.0], [common.EPSILON_STEPS, common.EPSILON]],
            replay_buffer_config={"type": "MultiAgentEpisodeReplayBuffer", "capacity": common.REPLAY},
        )
    )  # fmt: skip


def configured(task: Task) -> AlgorithmConfig:
    """Return the algorithm with a separate module for each player, all in this process."""
    register_env("spread", lambda _: ParallelPettingZooEnv(spread(task.players)))
    players = [f"agent_{player}" for player in range(task.players)]
    config = dqn(task) if task.work == "W2" else ppo(task)
    activation = "relu" if task.work == "W2" else "tanh"
    return (
        config.environment("spread")
        .env_runners(num_env_runners=task.runners)
        .learners(num_learners=0)
        .multi_agent(policies=set(players), policy_mapping_fn=lambda player, *args, **kwargs: player)
        .rl_module(
            rl_module_spec=MultiRLModuleSpec(rl_module_specs={player: RLModuleSpec() for player in players}),
            model_config=DefaultModelConfig(
                fcnet_hiddens=[common.WIDTH] * 2, fcnet_activation=activation, vf_share_layers=False,
                head_fcnet_hiddens=[],
            ),
        )
        .reporting(min_time_s_per_iteration=0, min_sample_timesteps_per_iteration=0)
        .debugging(seed=task.seed, log_level="ERROR")
    )  # fmt: skip


def main() -> None:
    """Build the algorithm, and train until the time is over."""
    parser = common.parser_of(__doc__, ("W1", "W4", "W2"))
    common.add_runners(parser)
    task = common.task_of(__doc__, parser=parser)
    ray.init(num_cpus=1 + task.runners, include_dashboard=False, log_to_driver=False, logging_level=logging.ERROR)
    algorithm = configured(task).build_algo()
    learned = False
    while True:
        result = algorithm.train()
        if task.runners:  # other processes count for themselves
            WATCH.steps = int(result["env_runners"]["num_env_steps_sampled_lifetime"])
        learned = learned or task.work != "W2" or WATCH.steps > common.LEARNING_STARTS
        if learned and WATCH.lap(task.seconds):
            break
    common.report("rllib", task, ("ray", "torch", "mpe2"), networks="separate")
    algorithm.stop()
    ray.shutdown()


if __name__ == "__main__":
    main()
