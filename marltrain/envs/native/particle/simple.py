"""Simple: one agent moves to one landmark; the rules are those of MPE2's simple_v3."""

from __future__ import annotations

from typing import Any

from marltrain.envs.native.arguments import truth, whole
from marltrain.envs.native.game import Game
from marltrain.envs.native.particle.world import (
    distance,
    move_agents,
    move_space,
    observation_space,
    place_at_random,
    see,
    see_velocity,
    set_forces,
    world_fields,
)

LANDMARK = 1


class Simple(Game):
    """The reward is minus the squared distance of the agent to the landmark."""

    name = "simple_v3"

    def __init__(self, max_cycles: int = 25, continuous_actions: bool = False) -> None:
        """Declare the game with the original's arguments, except those for rendering and infos."""
        super().__init__(
            {"agent_0": (observation_space(4), move_space(truth("continuous_actions", continuous_actions)))},
            fields=world_fields(1, 1),
            rules={"size": [0.05] * 2, "solid": [False] * 2, "accel": [5.0], "top_speed": [0.0]},
            limit=whole("max_cycles", max_cycles),
            state_size=4,
        )

    @staticmethod
    def reset(s: Any, rules: Any) -> None:
        """Place the agent and the landmark at random in the square, at rest."""
        place_at_random(s, 0, 2, 1.0)

    @staticmethod
    def step(s: Any, rules: Any) -> None:
        """Move the agent and compute the reward."""
        set_forces(s, rules, s.action)
        move_agents(s, rules)
        s.reward[0] = -(distance(s, 0, LANDMARK) ** 2)

    @staticmethod
    def observe(s: Any, rules: Any, p: int, obs: Any) -> None:
        """Write own velocity and the relative position of the landmark."""
        see(s, p, LANDMARK, obs, see_velocity(s, p, obs, 0))
