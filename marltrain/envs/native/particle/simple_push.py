"""Push: an agent goes to the one of two landmarks that it knows, an adversary pushes it away; by simple_push_v3."""

from __future__ import annotations

from typing import Any

from marltrain.envs.native.arguments import truth, whole
from marltrain.envs.native.chance import integer
from marltrain.envs.native.game import Game
from marltrain.envs.native.particle.world import (
    colour,
    distance,
    drift,
    moves,
    press,
    scatter,
    see,
    see_all,
    see_velocity,
    seen,
    world_fields,
)

ADVERSARY, AGENT, LANDMARK = 0, 1, 2
"""The second landmark comes last."""


class SimplePush(Game):
    """The agent pays for its distance to the goal; the adversary gains by that, and pays for its own."""

    name = "simple_push_v3"

    def __init__(self, max_cycles: int = 25, continuous_actions: bool = False) -> None:
        """Declare the game with the original's arguments, less those that only its pictures and infos need."""
        action_space = moves(truth("continuous_actions", continuous_actions))
        super().__init__(
            {"adversary_0": (seen(8), action_space), "agent_0": (seen(19), action_space)},
            fields={**world_fields(2, 2), "goal": (int, (), (LANDMARK, LANDMARK + 1))},
            rules={
                "size": [0.05] * 4,
                "solid": [True] * 2 + [False] * 2,
                "accel": [5.0] * 2,
                "top_speed": [0.0] * 2,
            },
            limit=whole("max_cycles", max_cycles),
            state_size=8 + 19,
        )

    @staticmethod
    def reset(s: Any, rules: Any) -> None:
        """Choose the goal, and put everything somewhere in the square, at rest."""
        s.goal = LANDMARK + integer(s, 2)
        scatter(s, 0, 4, 1.0)

    @staticmethod
    def step(s: Any, rules: Any) -> None:
        """Move both, and see how near they are to the goal."""
        press(s, rules, s.action)
        drift(s, rules)
        s.reward[AGENT] = -distance(s, AGENT, s.goal)
        s.reward[ADVERSARY] = -s.reward[AGENT] - distance(s, ADVERSARY, s.goal)

    @staticmethod
    def observe(s: Any, rules: Any, p: int, obs: Any) -> None:
        """Own velocity, landmarks, the other; the agent also sees the goal, its own colour and those of the landmarks.

        Of red, green and blue, a landmark is bright in one; the agent's colour is a paler shade of the goal's.
        """
        at = see_velocity(s, p, obs, 0)
        if p == AGENT:
            at = see(s, p, s.goal, obs, at)
            at = colour(s.goal - 1, 0.25, 0.75, obs, at, 3)
        at = see_all(s, p, LANDMARK, 4, obs, at)
        if p == AGENT:
            for landmark in range(LANDMARK, 4):
                at = colour(landmark - 1, 0.1, 0.9, obs, at, 3)
        see(s, p, 1 - p, obs, at)
