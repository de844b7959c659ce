"""Games whose answer is known: a chain's value, and naming what one sees."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from gymnasium import Env, spaces
from pettingzoo import ParallelEnv

import marltrain as mt
from tests.tiers import LONG
from tests.toys import Identity
from tests.trainer.running import trainer


class Chain(Env):
    """Nothing to see, 0.1 a step, for ever: cut after 10 steps by a limit, or wrongly told to have ended.

    (0.1, since beyond errors of 1 the Huber loss of DQN looks for a median and not for a mean.)
    """

    def __init__(self, truncate=True, box=False):
        self.truncate = truncate
        self.observation_space = spaces.Box(0, 1, (1,), np.float32)
        self.action_space = spaces.Box(-1, 1, (1,), np.float32) if box else spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        self.t = 0
        return np.ones(1, np.float32), {}

    def step(self, action):
        self.t += 1
        over = self.t == 10
        return np.ones(1, np.float32), 0.1, over and not self.truncate, over and self.truncate, {}


def value_of(agent):
    """What the agent expects from the only state: its critic's value, or its largest action value (of action 0)."""
    learner = agent.learner_
    nets, obs = learner.weights.nets, agent.backend.tensor(np.ones((1, 1, 1), np.float32))
    if "critic" in nets:
        actions = [0 * obs for _ in nets["critic"].plan.definition.vectors]
        return float(nets["critic"](obs, *actions)[0].detach().max())
    return float(learner.algorithm.values(agent.backend.ops, nets["q"](obs)).detach().max())


REPLAY: dict[str, Any] = {
    "learning_rate": 0.02, "tau": 0.15, "learning_starts": 0, "update_per_step": 0.15, "update_freq": 40,
    "batch_size": 32,
}  # fmt: skip
CHAIN: dict[str, dict[str, Any]] = {
    "ppo": {"critic_learning_rate": 0.02, "minibatches": 1, "max_grad_norm": None, "learning_rate": 0.0},
    "acer": {"learning_rate": 0.01, "optimizer": "adam", "batch_size": 40, "sequence_length": 3},
    "trpo": {"learning_rate": 0.02, "minibatches": 1, "epochs": 4, "max_grad_norm": None},
    "dqn": {"learning_rate": 0.01, "tau": 0.1, "learning_starts": 0, "update_per_step": 0.5, "epsilon": 1.0},
    "c51": {
        "learning_rate": 0.01,
        "tau": 0.1,
        "learning_starts": 0,
        "update_per_step": 0.5,
        "epsilon": 1.0,
        "v_min": -0.5,
        "v_max": 2.0,
        "atoms": 21,
    },
    "ddpg": REPLAY,
    "td3": {**REPLAY, "policy_delay": 1},
    "sac": {**REPLAY, "temperature": 1e-6},
}
IN_A_BOX = ("ddpg", "td3", "sac")


CHAINED = [("ppo", True), ("ppo", False), ("ddpg", True)]
"""Cases of the short tier: targets of rollouts, and of rows of a memory."""


@pytest.mark.parametrize(
    ("algo", "truncate"), [(algo, truncate) for algo in CHAIN for truncate in (True, False)] if LONG else CHAINED
)
def test_a_chain_cut_by_a_limit_is_worth_one_over_one_minus_gamma(algo, truncate):
    """0.1 / (1 - 0.9) = 1. Told that it ends, the ten equal-looking states are worth V = 0.1 + 0.9 (9/10) V, 0.526, by
    one-step targets, and by whole returns the mean of 1 - 0.9^k over k = 1 to 10, 0.414."""
    game = {"truncate": truncate, "box": algo in IN_A_BOX}
    agents = mt.make_agents(algo, Chain, env_args=game, seed=0, gamma=0.9, network=mt.MLP(hidden=()), **CHAIN[algo])
    trainer(Chain, game, num_train_envs=4, update_freq=40, steps_per_train=3000, batch_size=32).train(
        agents, [1], plot=False
    )
    value = value_of(agents[0])
    if truncate:
        assert value == pytest.approx(1.0, abs=0.03)
    else:
        assert 0.38 < value < 0.58


# Naming what one sees -------------------------------------------------------------------------------------------------

LEARNING: dict[str, dict[str, Any]] = {
    "a2c": {"network": mt.MLP(hidden=(16,)), "learning_rate": 0.01, "minibatches": 4, "gamma": 0.5},
    "acer": {
        "network": mt.MLP(hidden=(16,)),
        "learning_rate": 0.01,
        "gamma": 0.5,
        "optimizer": "adam",
        "batch_size": 40,
    },
    "mmd": {"network": mt.MLP(hidden=(16,)), "learning_rate": 0.01, "minibatches": 4, "gamma": 0.5},
    "ppo": {"network": mt.MLP(hidden=(16,)), "learning_rate": 0.01, "minibatches": 4, "gamma": 0.5},
    "trpo": {"network": mt.MLP(hidden=(16,)), "learning_rate": 0.01, "minibatches": 4, "gamma": 0.5, "max_kl": 0.02},
    "dqn": {
        "network": mt.MLP(hidden=(16,)),
        "learning_rate": 0.01,
        "gamma": 0.0,
        "learning_starts": 60,
        "epsilon": 0.3,
    },
    "sac": {**REPLAY, "network": mt.MLP(hidden=(16,)), "gamma": 0.0, "learning_starts": 60},
}
LEARNING["c51"] = {**LEARNING["dqn"], "v_min": -0.5, "v_max": 1.5, "atoms": 11}
LEARNING["rainbow"] = {**LEARNING["c51"], "n_step": 1}
GAME = {"players": 2, "length": 10}
IDENTITY = [("ppo", True), ("acer", False), ("dqn", False), ("sac", False)]
"""Cases of the short tier: of rollouts, of sequences, of a memory. The others have another step or another critic."""


@pytest.mark.parametrize(
    ("algo", "share"), [(algo, share) for algo in LEARNING for share in (False, True)] if LONG else IDENTITY
)
def test_the_identity_is_learned(algo, share):
    agents = mt.make_agents(algo, Identity, env_args=GAME, seed=0, share=share, **LEARNING[algo])
    result = trainer(
        Identity, GAME, num_train_envs=4, update_freq=80, steps_per_train=2000, episodes_per_test=20
    ).train(agents, [1, 1], plot=False)
    first, last = result["reward_metric_stats"]
    assert first < 8
    assert last >= 9.8


class Mirror(ParallelEnv):
    """Every player sees numbers, and gains by naming them: exactly (wheels) or nearly (levers in their own units)."""

    metadata = {"name": "mirror"}  # noqa: RUF012

    def __init__(self, levers: bool) -> None:
        self.levers, self.possible_agents = levers, ["left", "right"]
        self.acts = spaces.Box(0.0, 4.0, (2,), np.float32) if levers else spaces.MultiDiscrete([2, 3], start=[4, 0])
        self.seen = spaces.Box(-1, 1, (2,), np.float32) if levers else spaces.MultiDiscrete([2, 3], start=[4, 0])

    def observation_space(self, agent):
        return self.seen

    def action_space(self, agent):
        return self.acts

    def reset(self, seed=None, options=None):
        self.rng, self.t, self.agents = np.random.default_rng(seed), 0, list(self.possible_agents)
        return self._draw(), {name: {} for name in self.agents}

    def step(self, actions):
        self.t += 1
        rewards = {name: self._reward(action, self.shown[name]) for name, action in actions.items()}
        names, over = self.agents, self.t == 10
        self.agents = [] if over else names
        return (
            self._draw(),
            rewards,
            dict.fromkeys(names, False),
            dict.fromkeys(names, over),
            {name: {} for name in names},
        )

    def _reward(self, action, shown):
        if self.levers:  # -1 and 1 stand for 0 and 4
            return -float(np.square((action - 2) / 2 - shown).sum())
        return float((action == shown).sum())

    def _draw(self):
        low = self.rng.uniform(-1, 1, (2, 2)).astype(np.float32)
        wheels = np.stack([self.rng.integers(4, 6, 2), self.rng.integers(0, 3, 2)], 1)
        self.shown = dict(zip(self.possible_agents, low if self.levers else wheels, strict=True))
        return dict(self.shown)


@pytest.mark.parametrize(
    ("levers", "untrained", "trained", "policy"),
    [
        pytest.param(False, 14, 19.5, None, id="wheels"),
        *LONG
        * [
            pytest.param(True, -6, -1.0, None, id="levers"),
            pytest.param(True, -6, -1.0, "beta", id="levers by a Beta distribution"),
        ],
    ],
)
def test_ppo_learns_wheels_and_levers(levers, untrained, trained, policy):
    """Two wheels of 2 and 3 are worth 20 an episode (chance 8.3). A lever held at the middle costs 6.7."""
    settings = {**LEARNING["ppo"], "gamma": 0.0, "entropy_coef": 0.0, "log_std": -0.7, "network": mt.MLP(hidden=(32,))}
    settings["policy"] = policy
    agents = mt.make_agents("ppo", Mirror, env_args={"levers": levers}, seed=0, **settings)
    result = trainer(
        Mirror, {"levers": levers}, num_train_envs=8, update_freq=240, steps_per_train=6_000, episodes_per_test=20
    ).train(agents, [1, 1], plot=False)
    first, last = result["reward_metric_stats"]
    assert first < untrained
    assert last > trained


@pytest.mark.parametrize("algo", IN_A_BOX if LONG else ["ddpg"])
def test_levers_are_learned_from_a_memory(algo):
    settings = {
        **REPLAY,
        "network": mt.MLP((32,), "relu"),
        "gamma": 0.0,
        "learning_starts": 200,
        "update_per_step": 0.5,
    }
    agents = mt.make_agents(algo, Mirror, env_args={"levers": True}, seed=0, **settings)
    result = trainer(Mirror, {"levers": True}, num_train_envs=4, steps_per_train=2000, episodes_per_test=20).train(
        agents, [1, 1], plot=False
    )
    first, last = result["reward_metric_stats"]
    assert first < -6
    assert last > -0.5


def test_frozen_opponents_and_masks_leave_the_other_player_to_learn():
    agents = mt.make_agents("ppo", Identity, env_args=GAME, seed=0, **LEARNING["ppo"])
    agents[1] = mt.FrozenAgent(agents[1])
    result = trainer(
        Identity, GAME, num_train_envs=4, update_freq=80, steps_per_train=2000, episodes_per_test=20
    ).train(agents, [1, 0], plot=False)
    rows = result["history"][["return/player_0", "return/player_1"]]
    assert rows["return/player_0"].iloc[-1] >= 9.8
    assert rows["return/player_1"].iloc[-1] == rows["return/player_1"].iloc[0] < 8


@pytest.mark.parametrize("algo", ["ppo", *LONG * ["dqn"]])
def test_a_module_of_ones_own_learns(algo):
    import torch
    from torch import nn

    torch.manual_seed(0)
    own: dict[str, Any] = {"network": nn.Sequential(nn.Linear(3, 16), nn.Tanh(), nn.Linear(16, 3))}
    if algo == "ppo":
        own["critic_network"] = nn.Linear(3, 1)
    agents = mt.make_agents(algo, Identity, env_args=GAME, seed=0, **{**LEARNING[algo], **own})
    run = trainer(Identity, GAME, num_train_envs=4, update_freq=80, steps_per_train=2000, episodes_per_test=20)
    assert run.train(agents, [1, 1], plot=False)["reward_metric_stats"][-1] >= 9.8
