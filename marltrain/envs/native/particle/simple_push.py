"""Push: an agent moves to its goal, one of two landmarks; an adversary pushes it away; rules of simple_push_v3."""

from __future__ import annotations

from typing import Any

from marltrain.envs.native.arguments import truth, whole
from marltrain.envs.native.chance import integer
from marltrain.envs.native.game import Game
from marltrain.envs.native.particle.world import (
    distance,
    move_agents,
    move_space,
    observation_space,
    place_at_random,
    see,
    see_all,
    see_velocity,
    set_forces,
    world_fields,
    write_color,
)

ADVERSARY, AGENT, LANDMARK = 0, 1, 2
"""Indices of the entities; LANDMARK is the first of the two landmarks."""


class SimplePush(Game):
    """The agent's reward is minus its distance to the goal; the adversary's is that distance minus its own."""

    name = "simple_push_v3"

    def __init__(self, max_cycles: int = 25, continuous_actions: bool = False) -> None:
        """Declare the game with the original's arguments, except those for rendering and infos."""
        action_space = move_space(truth("continuous_actions", continuous_actions))
        super().__init__(
            {"adversary_0": (observation_space(8), action_space), "agent_0": (observation_space(19), action_space)},
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
        """Draw the goal, and place all entities at random in the square, at rest."""
        s.goal = LANDMARK + integer(s, 2)
        place_at_random(s, 0, 4, 1.0)

    @staticmethod
    def step(s: Any, rules: Any) -> None:
        """Move both agents and compute the rewards from the distances to the goal."""
        set_forces(s, rules, s.action)
        move_agents(s, rules)
        s.reward[AGENT] = -distance(s, AGENT, s.goal)
        s.reward[ADVERSARY] = -s.reward[AGENT] - distance(s, ADVERSARY, s.goal)

    @staticmethod
    def observe(s: Any, rules: Any, p: int, obs: Any) -> None:
        """Write own velocity and the relative positions of landmarks and the other agent.

        The good agent also observes the goal, its own color and the landmarks' colors. A landmark is bright in one of
        red, green and blue; the agent's color is a paler shade of the goal's.
        """
        at = see_velocity(s, p, obs, 0)
        if p == AGENT:
            at = see(s, p, s.goal, obs, at)
            at = write_color(s.goal - 1, 0.25, 0.75, obs, at, 3)
        at = see_all(s, p, LANDMARK, 4, obs, at)
        if p == AGENT:
            for landmark in range(LANDMARK, 4):
                at = write_color(landmark - 1, 0.1, 0.9, obs, at, 3)
        see(s, p, 1 - p, obs, at)
