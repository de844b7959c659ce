"""Agents of every algorithm that can be exported, and random observations for them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from gymnasium import spaces

import marltrain as mt
from marltrain.policies.agents.registry import ALGORITHMS, agent_class

FLAT = spaces.Box(-1, 1, (5,), np.float32)
MASKED = spaces.Dict({"observation": FLAT, "action_mask": spaces.MultiBinary(4)})
MIXED = spaces.Dict(
    {
        "direction": spaces.Discrete(3, start=1),
        "pockets": spaces.MultiDiscrete([2, 3], start=[0, 4]),
        "speed": spaces.Box(-2, 2, (), np.float32),
        "view": spaces.Box(0, 255, (9, 8, 3), np.uint8),
        "wheels": spaces.Box(-1, 1, (2, 2), np.float32),
    }
)
BOARD = spaces.Box(np.zeros((6, 6, 9), np.uint8), np.tile(np.arange(9, dtype=np.uint8), (6, 6, 1)), dtype=np.uint8)
"""Nine planes of 6 x 6 with bounds of their own, the first of which is constant."""
FOUR, WHEELS = spaces.Discrete(4, start=2), spaces.MultiDiscrete([2, 3], start=[1, 5])
ARM = spaces.Box(np.array([[-1, -3]], np.float32), np.array([[2, 5]], np.float32))
NETWORK, RECURRENT = mt.MLP((8, 6)), mt.GRU((8,), units=6)
CONVOLUTIONS = mt.CNN((8,), filters=((4, 3, 2),))


TEAM = {"team_size": 2, "state_size": 7}
CENTRAL = {"state_size": 7}
JOINT = {**TEAM, "joint_action_size": 8}
SETTINGS: dict[str, dict[str, Any]] = {
    "coma": {**CENTRAL, "joint_action_size": 8}, "maa2c": CENTRAL, "mappo": CENTRAL, "maddpg": JOINT, "masac": JOINT,
    "matd3": JOINT, "qmix": TEAM, "vdac": TEAM, "vdn": {"team_size": 2}, "wqmix": TEAM,
}  # fmt: skip
BOX_ONLY = ("ddpg", "td3")
GOALS = spaces.Dict({name: spaces.Box(-1, 1, (2,)) for name in ("observation", "achieved_goal", "desired_goal")})
LEARN_FROM_OTHERS = ("bc", "gail")
"""Algorithms that need demonstrations; their policies are those of other algorithms."""
Make = Callable[..., Any]


def of_registry(name: str, **more: Any) -> Any:
    """Return a small agent of a registered algorithm, with masked Discrete actions, or a Box if it takes no other."""
    observed = GOALS if name == "trl" else FLAT if name in BOX_ONLY else MASKED
    action = ARM if name in BOX_ONLY else FOUR
    settings = {"network": NETWORK, **SETTINGS.get(name, {}), **more}
    return agent_class(name)(observed, action, seed=3, **settings)


def named() -> list[str]:
    """Return the names of the algorithms that need no demonstrations."""
    return [name for name in ALGORITHMS if name not in LEARN_FROM_OTHERS]


CASES: dict[str, Make] = {
    "ppo": lambda **k: mt.PPO(MASKED, FOUR, seed=1, network=NETWORK, normalize_observations=True, **k),
    "ppo, parts": lambda **k: mt.PPO(MIXED, WHEELS, seed=1, network=CONVOLUTIONS, **k),
    "ppo, box": lambda **k: mt.PPO(FLAT, ARM, seed=1, network=NETWORK, **k),
    "ppo, beta": lambda **k: mt.PPO(FLAT, ARM, seed=1, network=NETWORK, policy="beta", **k),
    "ppo, gru": lambda **k: mt.PPO(MASKED, FOUR, seed=1, network=RECURRENT, **k),
    "dqn": lambda **k: mt.DQN(MASKED, FOUR, seed=1, network=NETWORK, dueling=True, **k),
    "dqn, noisy": lambda **k: mt.DQN(FLAT, FOUR, seed=1, network=NETWORK, noisy=0.5, **k),
    "dqn, lstm": lambda **k: mt.DQN(FLAT, FOUR, seed=1, network=mt.LSTM((8,), units=5), **k),
    "dqn, images": lambda **k: mt.DQN(MIXED["view"], FOUR, seed=1, network=CONVOLUTIONS, **k),
    "ppo, board": lambda **k: mt.PPO(BOARD, FOUR, seed=1, network=CONVOLUTIONS, **k),
    "c51": lambda **k: mt.C51(FLAT, FOUR, seed=1, network=NETWORK, **k),
    "sac": lambda **k: mt.SAC(FLAT, ARM, seed=1, network=NETWORK, **k),
    "sac, discrete": lambda **k: mt.SAC(MASKED, FOUR, seed=1, network=NETWORK, **k),
    "sac, gru": lambda **k: mt.SAC(FLAT, ARM, seed=1, network=RECURRENT, exploration="ornstein_uhlenbeck", **k),
    "ddpg": lambda **k: mt.DDPG(FLAT, ARM, seed=1, network=NETWORK, exploration="ornstein_uhlenbeck", **k),
    "identity": lambda **k: mt.PPO(FLAT, FOUR, seed=1, network=NETWORK, identity=("hare", "wolf"), **k),
}  # fmt: skip
"""Agents by what is special about them; each takes further settings, such as the backend."""


def with_statistics(agent: Any) -> Any:
    """Give an agent running statistics of a mean that is large beside its deviation; return it."""
    statistics = agent.learner_.weights.statistics["observation"]
    statistics.mean[:], statistics.variance[:], statistics.count[:] = 0.3, 0.25, 10.0
    return agent
