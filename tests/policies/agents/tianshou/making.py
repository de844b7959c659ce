"""tianshou algorithms of the smallest size, and a ragged game's streams to give them."""

from __future__ import annotations

import numpy as np
import torch
from gymnasium import spaces
from tianshou.algorithm import C51, DQN, PPO, SAC, DiscreteSAC
from tianshou.algorithm.modelfree.c51 import C51Policy
from tianshou.algorithm.modelfree.discrete_sac import DiscreteSACPolicy
from tianshou.algorithm.modelfree.dqn import DiscreteQLearningPolicy
from tianshou.algorithm.modelfree.reinforce import DiscreteActorPolicy, ProbabilisticActorPolicy
from tianshou.algorithm.modelfree.sac import AutoAlpha, SACPolicy
from tianshou.algorithm.optim import AdamOptimizerFactory
from tianshou.utils.net.common import Net
from tianshou.utils.net.continuous import ContinuousActorProbabilistic, ContinuousCritic
from tianshou.utils.net.discrete import DiscreteActor, DiscreteCritic
from torch.distributions import Independent, Normal

from marltrain.policies.memory.streams import Storage, Streams
from tests.policies.memory.worlds import Record, World, drive, one_group

HIDDEN = [16]


def adam(rate=1e-2):
    return AdamOptimizerFactory(lr=rate)


def body(inputs):
    return Net(state_shape=(inputs,), hidden_sizes=HIDDEN)


def dqn(inputs, actions, seed=0, **settings):
    torch.manual_seed(seed)
    net = Net(state_shape=(inputs,), action_shape=actions, hidden_sizes=HIDDEN)
    policy = DiscreteQLearningPolicy(model=net, action_space=spaces.Discrete(actions), eps_training=0.2)
    return DQN(policy=policy, optim=adam(), **{"target_update_freq": 20, "gamma": 0.9, **settings})


def c51(inputs, actions, seed=0):
    torch.manual_seed(seed)
    net = Net(state_shape=(inputs,), action_shape=actions, hidden_sizes=HIDDEN, softmax=True, num_atoms=11)
    policy = C51Policy(
        model=net, action_space=spaces.Discrete(actions), num_atoms=11, v_min=-2, v_max=12, eps_training=0.2
    )
    return C51(policy=policy, optim=adam(), gamma=0.9, target_update_freq=20)


def discrete_ppo(inputs, actions, seed=0, **settings):
    torch.manual_seed(seed)
    actor = DiscreteActor(preprocess_net=body(inputs), action_shape=actions, softmax_output=False)
    policy = DiscreteActorPolicy(actor=actor, action_space=spaces.Discrete(actions))
    critic = DiscreteCritic(preprocess_net=body(inputs))
    return PPO(policy=policy, critic=critic, optim=adam(), **{"gamma": 0.9, **settings})


def discrete_sac(inputs, actions, seed=0):
    torch.manual_seed(seed)
    actor = DiscreteActor(preprocess_net=body(inputs), action_shape=actions, softmax_output=False)
    critic = DiscreteCritic(preprocess_net=body(inputs), last_size=actions)
    policy = DiscreteSACPolicy(actor=actor, action_space=spaces.Discrete(actions))
    return DiscreteSAC(policy=policy, policy_optim=adam(), critic=critic, critic_optim=adam(), gamma=0.9, alpha=0.05)


def sac(inputs, space, seed=0):
    torch.manual_seed(seed)
    actor = ContinuousActorProbabilistic(preprocess_net=body(inputs), action_shape=space.shape, unbounded=True)
    both = Net(state_shape=(inputs,), action_shape=space.shape, hidden_sizes=HIDDEN, concat=True)
    alpha = AutoAlpha(-float(np.prod(space.shape)), 0.0, adam())
    policy = SACPolicy(actor=actor, action_space=space)
    critic = ContinuousCritic(preprocess_net=both)
    return SAC(policy=policy, policy_optim=adam(), critic=critic, critic_optim=adam(), alpha=alpha)


def box_ppo(inputs, space, seed=0):
    torch.manual_seed(seed)
    actor = ContinuousActorProbabilistic(preprocess_net=body(inputs), action_shape=space.shape, unbounded=True)

    def normal(loc_scale):
        return Independent(Normal(*loc_scale), 1)

    policy = ProbabilisticActorPolicy(actor=actor, dist_fn=normal, action_space=space)
    critic = DiscreteCritic(preprocess_net=body(inputs))
    return PPO(policy=policy, critic=critic, optim=adam())


DISCRETE = {"dqn": dqn, "c51": c51, "ppo": discrete_ppo, "discrete sac": discrete_sac}


def ragged(seed, on_step, steps=120, rows=20, columns=None, num_envs=3, masks=()):
    """Drive a random turn-based game with deaths through streams that wrap around, and through the slow record.

    `on_step(t, streams, record)` runs where a learner would learn.
    """
    spec = one_group()
    streams, record = Streams(spec, num_envs, {0: Storage(rows, columns or {})}), Record(spec, num_envs)
    drive(World(spec, num_envs, seed), streams, record, lambda t: on_step(t, streams, record), steps, masks=masks)


def places(ring, cells):
    """(player, environment, time) of each cell."""
    inner, env = np.divmod(np.asarray(cells), ring.num_envs)
    player, slot = np.divmod(inner, ring.capacity)
    return list(
        zip(player.tolist(), env.tolist(), (ring.now - (ring.now - slot) % ring.capacity).tolist(), strict=True)
    )


def row_at(record, player, env, time):
    """The slow record's row."""
    return next(row for row in record.rows[player] if (row.env, row.time) == (env, time))


def after(row):
    """What the slow record says followed a closed row: (observation, legal actions, whether it terminated, ended)."""
    if row.end is not None:
        terminated, obs, legal = row.end
        return obs, legal, terminated, True
    return row.next.obs, row.next.legal, False, False
