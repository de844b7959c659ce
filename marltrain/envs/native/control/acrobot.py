"""Acrobot: swing up two links by torque on their joint (Sutton 1996), with the rules of Gymnasium's Acrobot-v1."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from gymnasium import spaces

from marltrain.core.spec import LONE_PLAYER
from marltrain.envs.native.arguments import whole
from marltrain.envs.native.chance import uniform
from marltrain.envs.native.game import TERMINATED, Game
from marltrain.jit.compiling import inner

INTERVAL, GRAVITY = 0.2, 9.8
FASTEST_1, FASTEST_2 = 4 * math.pi, 9 * math.pi
# Both links have mass 1, length 1, the center of mass at half the length, and moment of inertia 1.


class Acrobot(Game):
    """Apply a torque (-1, 0, 1) to the joint; reward -1 per step until the free end is one link above the hinge."""

    name = "Acrobot-v1"
    api = "gymnasium"

    def __init__(self, max_episode_steps: int = 500) -> None:
        """Declare the game."""
        high = np.array([1.0, 1.0, 1.0, 1.0, FASTEST_1, FASTEST_2], np.float32)
        most = np.array([math.pi, math.pi, FASTEST_1, FASTEST_2])  # wrapping huge angles would never end
        super().__init__(
            {LONE_PLAYER: (spaces.Box(-high, high), spaces.Discrete(3))},
            fields={"now": (float, 4, (-most, most)), "slope": (float, (4, 4))},
            limit=whole("max_episode_steps", max_episode_steps),
        )

    @staticmethod
    def reset(s: Any, rules: Any) -> None:
        """Start hanging down, nearly at rest; values are rounded to float32 as in the original."""
        for i in range(4):
            s.now[i] = np.float32(uniform(s, -0.1, 0.1))

    @staticmethod
    def step(s: Any, rules: Any) -> None:
        """Integrate for 0.2 s with the fourth-order Runge-Kutta method."""
        torque = s.action[0] - 1.0
        slopes = s.slope
        differentiate(s.now, s.now, 0.0, torque, slopes[0])
        differentiate(s.now, slopes[0], INTERVAL / 2, torque, slopes[1])
        differentiate(s.now, slopes[1], INTERVAL / 2, torque, slopes[2])
        differentiate(s.now, slopes[2], INTERVAL, torque, slopes[3])
        for i in range(4):
            s.now[i] += INTERVAL / 6.0 * (slopes[0, i] + 2 * slopes[1, i] + 2 * slopes[2, i] + slopes[3, i])
        s.now[0], s.now[1] = wrapped(s.now[0]), wrapped(s.now[1])
        s.now[2] = min(max(s.now[2], -FASTEST_1), FASTEST_1)
        s.now[3] = min(max(s.now[3], -FASTEST_2), FASTEST_2)
        up = -math.cos(s.now[0]) - math.cos(s.now[1] + s.now[0]) > 1.0
        s.reward[0] = 0.0 if up else -1.0
        if up:
            s.over[0] = TERMINATED

    @staticmethod
    def observe(s: Any, rules: Any, p: int, obs: Any) -> None:
        """Write cosine and sine of both angles, and both angular velocities."""
        obs[0], obs[1] = math.cos(s.now[0]), math.sin(s.now[0])
        obs[2], obs[3] = math.cos(s.now[1]), math.sin(s.now[1])
        obs[4], obs[5] = s.now[2], s.now[3]


@inner
def differentiate(now: Any, along: Any, reach: float, torque: float, slope: Any) -> None:
    """Write the derivatives at `now + reach * along` (equations from Sutton and Barto's book)."""
    theta1, theta2 = now[0] + reach * along[0], now[1] + reach * along[1]
    speed1, speed2 = now[2] + reach * along[2], now[3] + reach * along[3]
    cos, sin = math.cos(theta2), math.sin(theta2)
    d1 = 0.25 + (1.25 + cos) + 2.0
    d2 = 0.25 + 0.5 * cos + 1.0
    phi2 = 0.5 * GRAVITY * math.cos(theta1 + theta2 - math.pi / 2)
    phi1 = -0.5 * speed2**2 * sin - speed2 * speed1 * sin + 1.5 * GRAVITY * math.cos(theta1 - math.pi / 2) + phi2
    turn2 = (torque + d2 / d1 * phi1 - 0.5 * speed1**2 * sin - phi2) / (1.25 - d2**2 / d1)
    slope[0], slope[1], slope[2], slope[3] = speed1, speed2, -(d2 * turn2 + phi1) / d1, turn2


@inner
def wrapped(angle: float) -> float:
    """Return an angle between -pi and pi."""
    while angle > math.pi:
        angle -= 2 * math.pi
    while angle < -math.pi:
        angle += 2 * math.pi
    return angle
