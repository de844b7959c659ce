"""Pendulum: swing it up and hold it upright, with the rules of Gymnasium's Pendulum-v1."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from gymnasium import spaces

from marltrain.core.spec import LONE_PLAYER
from marltrain.envs.native.arguments import number, whole
from marltrain.envs.native.bounds import FINITE
from marltrain.envs.native.chance import uniform
from marltrain.envs.native.game import Game

INTERVAL, FASTEST = 0.05, 8.0
# As in the original, the torque stays in float32, the dtype of the action.
STRONGEST, THREE, WEIGHT = np.float32(2.0), np.float32(3.0), np.float32(0.001)


class Pendulum(Game):
    """Apply a torque to a pendulum; the cost grows with the angle from upright, the speed and the torque."""

    name = "Pendulum-v1"
    api = "gymnasium"

    def __init__(self, g: float = 10.0, max_episode_steps: int = 200) -> None:
        """Declare the game; `g`: the acceleration of gravity, m/s^2."""
        high = np.array([1.0, 1.0, FASTEST], np.float32)
        super().__init__(
            {LONE_PLAYER: (spaces.Box(-high, high), spaces.Box(-STRONGEST, STRONGEST, (1,)))},
            fields={"theta": (float, (), FINITE), "theta_dot": (float, (), (-FASTEST, FASTEST))},
            rules={"g": number("g", g)},
            limit=whole("max_episode_steps", max_episode_steps),
        )

    @staticmethod
    def reset(s: Any, rules: Any) -> None:
        """Start at a random angle with a low angular velocity."""
        s.theta = uniform(s, -math.pi, math.pi)
        s.theta_dot = uniform(s, -1.0, 1.0)

    @staticmethod
    def step(s: Any, rules: Any) -> None:
        """Write the reward of the current state and torque, then integrate for 0.05 s."""
        torque = min(max(s.action[0, 0], -STRONGEST), STRONGEST)
        off = (s.theta + math.pi) % (2 * math.pi) - math.pi
        s.reward[0] = -(off**2 + 0.1 * s.theta_dot**2 + WEIGHT * (torque * torque))
        faster = s.theta_dot + (3 * rules.g / 2 * math.sin(s.theta) + THREE * torque) * INTERVAL
        s.theta_dot = min(max(faster, -FASTEST), FASTEST)
        s.theta += s.theta_dot * INTERVAL

    @staticmethod
    def observe(s: Any, rules: Any, p: int, obs: Any) -> None:
        """Write cosine and sine of the angle, and the angular velocity."""
        obs[0], obs[1], obs[2] = math.cos(s.theta), math.sin(s.theta), s.theta_dot
