"""Two tianshou algorithms against each other in one game: `python examples/from_tianshou.py`."""

from typing import Any

import torch
from gymnasium.spaces import Discrete
from tianshou.algorithm import DQN, PPO
from tianshou.algorithm.modelfree.dqn import DiscreteQLearningPolicy
from tianshou.algorithm.modelfree.reinforce import DiscreteActorPolicy
from tianshou.algorithm.optim import AdamOptimizerFactory
from tianshou.utils.net.common import Net
from tianshou.utils.net.discrete import DiscreteActor, DiscreteCritic

import marltrain as mt

GAME = "pettingzoo/classic/tictactoe_v3"
SEEN, MOVES = 3 * 3 * 2, 9  # a board of nine fields in two planes arrives as one vector


def make_dqn() -> DQN[Any]:
    """Make the first player's algorithm, as for tianshou's own trainer."""
    net = Net(state_shape=(SEEN,), action_shape=MOVES, hidden_sizes=[128, 128])
    policy = DiscreteQLearningPolicy(model=net, action_space=Discrete(MOVES), eps_training=0.1)
    return DQN(policy=policy, optim=AdamOptimizerFactory(lr=1e-3), n_step_return_horizon=3, target_update_freq=250)


def make_ppo() -> PPO:
    """Make the second player's; its networks need not know of legal moves."""
    actor = DiscreteActor(
        preprocess_net=Net(state_shape=(SEEN,), hidden_sizes=[128]), action_shape=MOVES, softmax_output=False
    )
    critic = DiscreteCritic(preprocess_net=Net(state_shape=(SEEN,), hidden_sizes=[128]))
    policy = DiscreteActorPolicy(actor=actor, action_space=Discrete(MOVES))
    return PPO(policy=policy, critic=critic, optim=AdamOptimizerFactory(lr=1e-3))


if __name__ == "__main__":
    steps = 20_000
    torch.manual_seed(0)  # tianshou's networks draw their weights from torch's global generator
    first = mt.OffPolicyAgent(make_dqn(), memory=mt.Replay(capacity=20_000), update_per_step=0.1)
    second = mt.OnPolicyAgent(make_ppo(), repeat_per_collect=4, update_freq=512, batch_size=64)
    trainer = mt.DecentralizedTrainer(GAME, steps_per_train=steps, test_freq=1000, seed=0)
    # one's gain is the other's loss, so tests show the DQN agent against random moves instead, in both seats
    result = trainer.train([first, second], learning_mask=[1, 1], test_agents=[first, mt.RandomAgent()])
    print("DQN against random moves:", [round(metric, 2) for metric in result["reward_metric_stats"]])
    mt.save("runs/two_tianshou_agents", [first, second])
    loaded = mt.load("runs/two_tianshou_agents", custom_objects={"DQN": make_dqn, "PPO": make_ppo})
    for seat, (mine, name) in enumerate(((loaded[0], "DQN first"), (loaded[1], "PPO second"))):
        line_up = [mine, mt.RandomAgent()] if seat == 0 else [mt.RandomAgent(), mine]
        lost = (trainer.test(line_up, episodes=500).returns[:, seat] < 0).mean()
        print(f"{name}: lost {lost:.1%} of 500 games against random moves")
