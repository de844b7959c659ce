"""Goals in observations: the parts "achieved_goal" and "desired_goal" of a Dict, as in Gymnasium-Robotics."""

from __future__ import annotations

from gymnasium import spaces

from marltrain.core.errors import ConfigError
from marltrain.core.layout import Layout, Part
from marltrain.policies.memory.config import Replay

ACHIEVED, DESIRED = "achieved_goal", "desired_goal"


def goal_parts(layout: Layout, who: str) -> tuple[Part, Part]:
    """Return the parts (achieved, desired) of an observation.

    who: who needs them, for the error.  Raises ConfigError unless there are both, as equal Boxes of numbers or
    MultiBinary.
    """
    parts = {part.name: part for part in layout.parts}
    missing = [name for name in (ACHIEVED, DESIRED) if name not in parts]
    if missing:
        raise ConfigError(
            f"{who} needs observations that are a Dict of observation, {ACHIEVED} and {DESIRED}; "
            f"{' and '.join(missing)} {'is' if len(missing) == 1 else 'are'} missing in {layout.space}"
        )
    achieved, desired = parts[ACHIEVED], parts[DESIRED]
    kinds = [(type(part.space), part.space.shape) for part in (achieved, desired)]
    fitting = isinstance(achieved.space, spaces.Box | spaces.MultiBinary) and not (achieved.image or desired.image)
    if kinds[0] != kinds[1] or not fitting:
        raise ConfigError(
            f"{who}: {ACHIEVED} and {DESIRED} must be Boxes of numbers or MultiBinary of one shape, got "
            f"{achieved.space} and {desired.space}"
        )
    return achieved, desired


def check_goals(who: str, layout: Layout, replay: Replay, *, reads_triplets: bool) -> None:
    """Raise ConfigError for observations without the goals that a part of the memory reads, or for unused triplets.

    reads_triplets: `Algorithm.reads_triplets`.
    """
    for part in replay.with_goals:
        goal_parts(layout, f"{who}: {part}")
    if replay.triplets is not None and not reads_triplets:
        raise ConfigError(
            f"{who}: memory has triplets={replay.triplets}, which its losses do not read: leave triplets= "
            "out. A custom algorithm whose losses read them has reads_triplets = True"
        )
