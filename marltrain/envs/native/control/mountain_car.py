"""Mountain car: drive out of a valley by swinging (Moore 1990), with the rules of Gymnasium's MountainCar-v0."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from gymnasium import spaces

from marltrain.core.spec import LONE_PLAYER
from marltrain.envs.native.arguments import number, whole
from marltrain.envs.native.chance import uniform
from marltrain.envs.native.game import TERMINATED, Game

LEFTMOST, RIGHTMOST, GOAL, FASTEST = -1.2, 0.6, 0.5, 0.07
FORCE, GRAVITY = 0.001, 0.0025


class MountainCar(Game):
    """Push a car left (0), not at all (1) or right (2); reward -1 per step until it reaches the hilltop."""

    name = "MountainCar-v0"
    api = "gymnasium"

    def __init__(self, goal_velocity: float = 0, max_episode_steps: int = 200) -> None:
        """Declare the game; `goal_velocity`: the minimum velocity at the goal."""
        low, high = (np.array(side, np.float32) for side in ((LEFTMOST, -FASTEST), (RIGHTMOST, FASTEST)))
        super().__init__(
            {LONE_PLAYER: (spaces.Box(low, high), spaces.Discrete(3))},
            fields={"position": (float, (), (LEFTMOST, RIGHTMOST)), "velocity": (float, (), (-FASTEST, FASTEST))},
            rules={"goal_velocity": number("goal_velocity", goal_velocity)},
            limit=whole("max_episode_steps", max_episode_steps),
        )

    @staticmethod
    def reset(s: Any, rules: Any) -> None:
        """Start near the bottom of the valley, at rest."""
        s.position = uniform(s, -0.6, -0.4)
        s.velocity = 0.0

    @staticmethod
    def step(s: Any, rules: Any) -> None:
        """Push and move the car; the wall on the left stops it."""
        faster = s.velocity + (s.action[0] - 1) * FORCE - math.cos(3 * s.position) * GRAVITY
        s.velocity = min(max(faster, -FASTEST), FASTEST)
        s.position = min(max(s.position + s.velocity, LEFTMOST), RIGHTMOST)
        if s.position == LEFTMOST and s.velocity < 0.0:
            s.velocity = 0.0
        s.reward[0] = -1.0
        if s.position >= GOAL and s.velocity >= rules.goal_velocity:
            s.over[0] = TERMINATED

    @staticmethod
    def observe(s: Any, rules: Any, p: int, obs: Any) -> None:
        """Write position and velocity."""
        obs[0], obs[1] = s.position, s.velocity
