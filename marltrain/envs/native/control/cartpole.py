"""Cart-pole: balance a pole on a cart (Barto, Sutton, Anderson 1983), with the rules of Gymnasium's CartPole-v1."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from gymnasium import spaces

from marltrain.core.spec import LONE_PLAYER
from marltrain.envs.native.arguments import truth, whole
from marltrain.envs.native.bounds import FINITE
from marltrain.envs.native.chance import uniform
from marltrain.envs.native.game import TERMINATED, Game
from marltrain.jit.compiling import inner

GRAVITY, FORCE, INTERVAL = 9.8, 10.0, 0.02
HALF_LENGTH, POLE_MASS, TOTAL_MASS = 0.5, 0.1, 1.1
SHARE, LEVER = POLE_MASS / TOTAL_MASS, POLE_MASS * HALF_LENGTH / TOTAL_MASS  # multiplication is faster than division
FARTHEST, STEEPEST = 2.4, 12 * 2 * math.pi / 360
SMALL = 0.25
"""An angle larger than any of a standing pole. Up to it, short series give sine and cosine to the last bit but one."""


@inner
def cos_sin(angle: float) -> tuple[float, float]:
    """Return cosine and sine, faster than the library functions for small angles: `benchmarks/kernels.py`."""
    if abs(angle) > SMALL:
        return math.cos(angle), math.sin(angle)
    x = angle * angle
    xx = x * x  # paired terms have shorter dependency chains
    cos = 1 - x * (1 / 2) + xx * (1 / 24 - x * (1 / 720) + xx * (1 / 40320 - x * (1 / 3628800) + xx * (1 / 479001600)))
    sin = angle * (1 - x * (1 / 6) + xx * (1 / 120 - x * (1 / 5040) + xx * (1 / 362880 - x * (1 / 39916800))))
    return cos, sin


class CartPole(Game):
    """Push the cart left (0) or right (1); reward +1 per step until the pole falls or the cart leaves the track."""

    name = "CartPole-v1"
    api = "gymnasium"

    def __init__(self, sutton_barto_reward: bool = False, max_episode_steps: int = 500) -> None:
        """Declare the game; `sutton_barto_reward`: reward 0 per step and -1 at the end, instead of 1 and 1."""
        high = np.array([2 * FARTHEST, np.inf, 2 * STEEPEST, np.inf], np.float32)
        super().__init__(
            {LONE_PLAYER: (spaces.Box(-high, high), spaces.Discrete(2))},
            fields=dict.fromkeys(("x", "x_dot", "theta", "theta_dot"), (float, (), FINITE)),
            rules={"sutton_barto_reward": truth("sutton_barto_reward", sutton_barto_reward)},
            limit=whole("max_episode_steps", max_episode_steps),
        )

    @staticmethod
    def reset(s: Any, rules: Any) -> None:
        """Start near the middle, nearly upright."""
        s.x = uniform(s, -0.05, 0.05)
        s.x_dot = uniform(s, -0.05, 0.05)
        s.theta = uniform(s, -0.05, 0.05)
        s.theta_dot = uniform(s, -0.05, 0.05)

    @staticmethod
    def step(s: Any, rules: Any) -> None:
        """Push the cart and integrate for 0.02 s with Euler's method."""
        cos, sin = cos_sin(s.theta)
        force = FORCE if s.action[0] == 1 else -FORCE
        push = force * (1 / TOTAL_MASS) + LEVER * s.theta_dot**2 * sin
        turn = (GRAVITY * sin - cos * push) / (HALF_LENGTH * (4.0 / 3.0 - SHARE * cos**2))
        pull = push - LEVER * turn * cos
        s.x += INTERVAL * s.x_dot
        s.x_dot += INTERVAL * pull
        s.theta += INTERVAL * s.theta_dot
        s.theta_dot += INTERVAL * turn
        fallen = abs(s.x) > FARTHEST or abs(s.theta) > STEEPEST
        if fallen:
            s.over[0] = TERMINATED
        s.reward[0] = 1.0 if not rules.sutton_barto_reward else (-1.0 if fallen else 0.0)

    @staticmethod
    def observe(s: Any, rules: Any, p: int, obs: Any) -> None:
        """Write cart position and velocity, pole angle and angular velocity."""
        obs[0], obs[1], obs[2], obs[3] = s.x, s.x_dot, s.theta, s.theta_dot
