"""tianshou's multi-agent algorithms: players take turns, and a dispatcher calls each player's algorithm (W1, W4, W2).

    .venv-peers/tianshou/bin/python -m benchmarks.peers.tianshou W1 [--seconds 30] [--seed 0]

Its collector counts turns: an environment step of three players is three turns. All players share one replay buffer. A
sample contains a third of its rows per player on average, so the rows of a gradient step are right on average.
"""

from __future__ import annotations

import contextlib
from typing import Any

import torch
from tianshou.algorithm import DQN, PPO
from tianshou.algorithm.modelfree.dqn import DiscreteQLearningPolicy
from tianshou.algorithm.modelfree.reinforce import DiscreteActorPolicy
from tianshou.algorithm.multiagent.marl import MultiAgentOffPolicyAlgorithm, MultiAgentOnPolicyAlgorithm
from tianshou.algorithm.optim import AdamOptimizerFactory
from tianshou.data import Collector, VectorReplayBuffer
from tianshou.env import DummyVectorEnv
from tianshou.env.pettingzoo_env import PettingZooEnv
from tianshou.trainer import OffPolicyTrainerParams, OnPolicyTrainerParams
from tianshou.utils.net.common import Net
from tianshou.utils.net.discrete import DiscreteActor, DiscreteCritic

from benchmarks.peers import common
from benchmarks.peers.common import WATCH, Over, Task
from benchmarks.peers.games import spread_in_turns

FOREVER = 10**9
WIDTHS = [common.WIDTH] * 2


class Seen(Net):
    """A network for the dispatcher's observations, which hold the observation, the player's name and the mask."""

    def forward(self, obs: Any, state: Any = None, info: Any = None) -> tuple[Any, Any]:
        """Return the outputs for the observation, without name and mask."""
        return super().forward(obs.obs, state, info)


def ppo(env: PettingZooEnv) -> PPO:
    """Return one player's PPO."""
    size, space = env.observation_space.shape, env.action_space
    bodies = [Seen(state_shape=size, hidden_sizes=WIDTHS, activation=torch.nn.Tanh) for _ in range(2)]
    actor = DiscreteActor(preprocess_net=bodies[0], action_shape=space.n, softmax_output=False)
    policy = DiscreteActorPolicy(
        actor=actor, action_space=space, dist_fn=lambda logits: torch.distributions.Categorical(logits=logits)
    )  # fmt: skip
    return PPO(
        policy=policy, critic=DiscreteCritic(preprocess_net=bodies[1]), gamma=common.GAMMA, gae_lambda=common.LAMBDA,
        optim=AdamOptimizerFactory(lr=common.PPO_RATE), eps_clip=common.CLIP, vf_coef=common.VALUE,
        ent_coef=common.ENTROPY, max_grad_norm=common.MAX_NORM, max_batchsize=FOREVER,
    )  # fmt: skip


def dqn(env: PettingZooEnv) -> DQN[Any]:
    """Return one player's double DQN."""
    net = Net(state_shape=env.observation_space.shape, action_shape=env.action_space.n, hidden_sizes=WIDTHS)
    policy = DiscreteQLearningPolicy(model=net, action_space=env.action_space, eps_training=0.2)
    return DQN(
        policy=policy, optim=AdamOptimizerFactory(lr=common.DQN_RATE), gamma=common.GAMMA, is_double=True,
        target_update_freq=common.TARGET_EVERY // common.EVERY, huber_loss_delta=1.0,
    )  # fmt: skip


def train(task: Task) -> None:
    """Train until the time is over; raises Over."""
    make, players = lambda: PettingZooEnv(spread_in_turns(task.players)), task.players
    env, envs = make(), DummyVectorEnv([make] * task.envs)
    envs.seed(task.seed)

    def lap(_: int, turns: int) -> None:
        if turns and WATCH.lap(task.seconds):
            raise Over

    usual: dict[str, Any] = {
        "max_epochs": 1, "epoch_num_steps": FOREVER, "training_fn": lap, "verbose": False, "show_progress": False,
    }  # fmt: skip
    if task.work == "W2":
        off = MultiAgentOffPolicyAlgorithm(algorithms=[dqn(env) for _ in range(players)], env=env)
        memory = VectorReplayBuffer(common.REPLAY * players, 1)
        collector: Collector[Any] = Collector(off, envs, memory, exploration_noise=True)
        collector.reset()
        collector.collect(n_step=common.LEARNING_STARTS * players, random=True)
        turns = common.EVERY * players
        off.run_training(OffPolicyTrainerParams(
            training_collector=collector, collection_step_num_env_steps=turns, batch_size=common.ROWS * players,
            update_step_num_gradient_steps_per_sample=1 / turns, **usual,
        ))  # fmt: skip
    else:
        on = MultiAgentOnPolicyAlgorithm(algorithms=[ppo(env) for _ in range(players)], env=env)
        turns = task.envs * common.STEPS * players
        on.run_training(OnPolicyTrainerParams(
            training_collector=Collector(on, envs, VectorReplayBuffer(turns, task.envs)),
            collection_step_num_env_steps=turns, update_step_num_repetitions=common.EPOCHS,
            batch_size=task.envs * common.STEPS // common.MINIBATCHES, **usual,
        ))  # fmt: skip


def main() -> None:
    """Train, and print the results."""
    task = common.task_of(__doc__, "W1", "W4", "W2")
    torch.manual_seed(task.seed)
    with contextlib.suppress(Over):
        train(task)
    common.report("tianshou", task, ("tianshou", "torch", "mpe2"), networks="separate")


if __name__ == "__main__":
    main()
