"""Simple: one agent is to go to one landmark; by MPE2's simple_v3."""

from __future__ import annotations

from typing import Any

from marltrain.envs.native.arguments import truth, whole
from marltrain.envs.native.game import Game
from marltrain.envs.native.particle.world import (
    distance,
    drift,
    moves,
    press,
    scatter,
    see,
    see_velocity,
    seen,
    world_fields,
)

LANDMARK = 1


class Simple(Game):
    """The agent pays for the square of its distance to the landmark."""

    name = "simple_v3"

    def __init__(self, max_cycles: int = 25, continuous_actions: bool = False) -> None:
        """Declare the game with the original's arguments, less those that only its pictures and infos need."""
        super().__init__(
            {"agent_0": (seen(4), moves(truth("continuous_actions", continuous_actions)))},
            fields=world_fields(1, 1),
            rules={"size": [0.05] * 2, "solid": [False] * 2, "accel": [5.0], "top_speed": [0.0]},
            limit=whole("max_cycles", max_cycles),
            state_size=4,
        )

    @staticmethod
    def reset(s: Any, rules: Any) -> None:
        """Put both somewhere in the square, at rest."""
        scatter(s, 0, 2, 1.0)

    @staticmethod
    def step(s: Any, rules: Any) -> None:
        """Move, and pay for the distance that is left."""
        press(s, rules, s.action)
        drift(s, rules)
        s.reward[0] = -(distance(s, 0, LANDMARK) ** 2)

    @staticmethod
    def observe(s: Any, rules: Any, p: int, obs: Any) -> None:
        """Own velocity, and the landmark as seen from here."""
        see(s, p, LANDMARK, obs, see_velocity(s, p, obs, 0))
