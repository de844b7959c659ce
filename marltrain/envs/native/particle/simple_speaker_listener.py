"""Speaker and listener: the speaker observes the goal landmark and sends messages; the listener moves.

The rules are those of MPE2's simple_speaker_listener_v4.
"""

from __future__ import annotations

from typing import Any

from marltrain.envs.native.arguments import truth, whole
from marltrain.envs.native.chance import integer
from marltrain.envs.native.game import Game
from marltrain.envs.native.particle.world import (
    distance,
    message_space,
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

SPEAKER, LISTENER, LANDMARK = 0, 1, 2
WORDS, LANDMARKS = 3, 3


class SimpleSpeakerListener(Game):
    """The reward of both is minus the squared distance of the listener to the goal."""

    name = "simple_speaker_listener_v4"

    def __init__(self, max_cycles: int = 25, continuous_actions: bool = False) -> None:
        """Declare the game with the original's arguments, except those for rendering and infos."""
        continuous = truth("continuous_actions", continuous_actions)
        heard = 2 + 2 * LANDMARKS + WORDS
        super().__init__(
            {
                "speaker_0": (observation_space(3), message_space(continuous, WORDS)),
                "listener_0": (observation_space(heard), move_space(continuous)),
            },
            fields={**world_fields(2, LANDMARKS), "goal": (int, (), (0, LANDMARKS - 1)), "said": (float, WORDS)},
            rules={
                "size": [0.075] * 2 + [0.04] * LANDMARKS,
                "solid": [False] * (2 + LANDMARKS),
                "accel": [0.0, 5.0],
                "top_speed": [0.0] * 2,
            },
            limit=whole("max_cycles", max_cycles),
            state_size=3 + heard,
        )

    @staticmethod
    def reset(s: Any, rules: Any) -> None:
        """Draw the goal, and place all entities at random in the square, at rest."""
        s.goal = integer(s, LANDMARKS)
        place_at_random(s, 0, LANDMARK + LANDMARKS, 1.0)
        s.said[:] = 0.0

    @staticmethod
    def step(s: Any, rules: Any) -> None:
        """Move the listener, read the speaker's message, and compute the reward."""
        set_forces(s, rules, s.action)
        move_agents(s, rules)
        read_message(s.said, s.action, SPEAKER, False)
        s.reward[:] = -(distance(s, LISTENER, LANDMARK + s.goal) ** 2)

    @staticmethod
    def observe(s: Any, rules: Any, p: int, obs: Any) -> None:
        """Write, for the speaker, the goal's color; for the listener, its velocity, the landmarks and the message.

        Landmarks are positions relative to the listener.
        """
        if p == SPEAKER:
            write_color(s.goal, 0.15, 0.65, obs, 0, 3)
            return
        at = see_velocity(s, p, obs, 0)
        at = see_all(s, p, LANDMARK, LANDMARK + LANDMARKS, obs, at)
        write_values(s.said, obs, at)
