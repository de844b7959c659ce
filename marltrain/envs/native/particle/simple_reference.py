"""Reference: two agents move and send messages; each knows the other's goal landmark; rules of simple_reference_v3."""

from __future__ import annotations

from typing import Any

from marltrain.envs.native.arguments import number, truth, whole
from marltrain.envs.native.chance import integer
from marltrain.envs.native.game import Game
from marltrain.envs.native.particle.world import (
    distance,
    move_agents,
    move_space,
    observation_space,
    place_at_random,
    read_message,
    see_all,
    see_velocity,
    set_forces,
    world_fields,
    write_color,
    write_values,
)

WORDS, LANDMARKS = 10, 3


class SimpleReference(Game):
    """An agent's penalty is a mix of the other's distance to its goal and the mean of both distances."""

    name = "simple_reference_v3"

    def __init__(self, local_ratio: float = 0.5, max_cycles: int = 25, continuous_actions: bool = False) -> None:
        """Declare the game with the original's arguments, except those for rendering and infos."""
        size = 2 + 2 * LANDMARKS + 3 + WORDS
        sides = (observation_space(size), move_space(truth("continuous_actions", continuous_actions), WORDS))
        super().__init__(
            {"agent_0": sides, "agent_1": sides},
            fields={
                **world_fields(2, LANDMARKS),
                "goal": (int, 2, (0, LANDMARKS - 1)),
                "said": (float, (2, WORDS)),
            },
            rules={
                "size": [0.05] * (2 + LANDMARKS),
                "solid": [False] * (2 + LANDMARKS),
                "accel": [5.0] * 2,
                "top_speed": [0.0] * 2,
                "local_ratio": number("local_ratio", local_ratio, 0.0, 1.0),
            },
            limit=whole("max_cycles", max_cycles),
            state_size=2 * size,
        )

    @staticmethod
    def reset(s: Any, rules: Any) -> None:
        """Draw the goals, and place all entities at random in the square, at rest.

        `goal[a]` is the landmark that agent `a` observes and the other agent moves to.
        """
        for a in range(2):
            s.goal[a] = integer(s, LANDMARKS)
        place_at_random(s, 0, 2 + LANDMARKS, 1.0)
        s.said[:, :] = 0.0

    @staticmethod
    def step(s: Any, rules: Any) -> None:
        """Move both agents, read both messages, and compute the rewards from the distances to the goals."""
        set_forces(s, rules, s.action)
        move_agents(s, rules)
        for a in range(2):
            read_message(s.said[a], s.action, a, True)
            s.reward[a] = -distance(s, 1 - a, 2 + s.goal[a])
        shared = (s.reward[0] + s.reward[1]) / 2
        for a in range(2):
            s.reward[a] = shared * (1 - rules.local_ratio) + s.reward[a] * rules.local_ratio

    @staticmethod
    def observe(s: Any, rules: Any, p: int, obs: Any) -> None:
        """Write own velocity, relative positions of landmarks, the color of the other's goal, and its last message."""
        at = see_velocity(s, p, obs, 0)
        at = see_all(s, p, 2, 2 + LANDMARKS, obs, at)
        at = write_color(s.goal[p], 0.25, 0.75, obs, at, 3)
        write_values(s.said[1 - p], obs, at)
