"""Speaker and listener: one sees which landmark is the goal and talks, one hears it and moves.

By MPE2's simple_speaker_listener_v4.
"""

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
    say,
    scatter,
    see_all,
    see_velocity,
    seen,
    talks,
    tell,
    world_fields,
)

SPEAKER, LISTENER, LANDMARK = 0, 1, 2
WORDS, LANDMARKS = 3, 3


class SimpleSpeakerListener(Game):
    """Both pay for the square of the listener's distance to the goal."""

    name = "simple_speaker_listener_v4"

    def __init__(self, max_cycles: int = 25, continuous_actions: bool = False) -> None:
        """Declare the game with the original's arguments, less those that only its pictures and infos need."""
        continuous = truth("continuous_actions", continuous_actions)
        heard = 2 + 2 * LANDMARKS + WORDS
        super().__init__(
            {"speaker_0": (seen(3), talks(continuous, WORDS)), "listener_0": (seen(heard), moves(continuous))},
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
        """Choose the goal, and put everything somewhere in the square, at rest."""
        s.goal = integer(s, LANDMARKS)
        scatter(s, 0, LANDMARK + LANDMARKS, 1.0)
        s.said[:] = 0.0

    @staticmethod
    def step(s: Any, rules: Any) -> None:
        """Move the listener, hear the speaker, and see how near the goal is."""
        press(s, rules, s.action)
        drift(s, rules)
        say(s.said, s.action, SPEAKER, False)
        s.reward[:] = -(distance(s, LISTENER, LANDMARK + s.goal) ** 2)

    @staticmethod
    def observe(s: Any, rules: Any, p: int, obs: Any) -> None:
        """The speaker: the goal's colour. The listener: own velocity, landmarks as seen from there, what was said."""
        if p == SPEAKER:
            colour(s.goal, 0.15, 0.65, obs, 0, 3)
            return
        at = see_velocity(s, p, obs, 0)
        at = see_all(s, p, LANDMARK, LANDMARK + LANDMARKS, obs, at)
        tell(s.said, obs, at)
