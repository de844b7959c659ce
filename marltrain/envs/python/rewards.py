"""Rewards and flags of environments: values that numpy or Python would take for numbers or for True are refused."""

from __future__ import annotations

from types import NoneType
from typing import Any

import numpy as np

from marltrain.core.errors import EnvError, shown
from marltrain.core.layout import NUMBERS

TEXT = (str, bytes)
"""Types that numpy converts to numbers and Python treats as True."""
USUAL = frozenset({float, int, bool, np.float64, np.float32, np.int64, np.int32, np.bool_})
"""Types of the usual rewards, which need no other check."""
_NO_NUMBERS = (
    *TEXT, complex, np.complexfloating, np.datetime64, np.timedelta64, list, tuple, dict, set, NoneType,
)  # fmt: skip
"""Types whose values are no real numbers, although numpy converts some of them in silence."""

_SCALARIZE = (
    "Add several objectives up, for example by a weighted sum in a wrapper around the environment: "
    "gymnasium.wrappers.TransformReward(env, lambda reward: float(weights @ reward)), or for players by name "
    "LinearizeReward of momaland"
)


def refuse_text(player: str, **values: Any) -> None:
    """Raise EnvError if one of a player's rewards or flags, given by name, is text."""
    for name, value in values.items():
        if isinstance(value, TEXT):
            expected = "a number" if name == "reward" else "True or False"
            raise EnvError(f"player {player!r}: {name} is the text {value!r}, expected {expected}")


def is_number(reward: Any) -> bool:
    """Return whether a reward is one real number."""
    if isinstance(reward, np.ndarray):
        return reward.ndim == 0 and reward.dtype.kind in NUMBERS
    return not isinstance(reward, _NO_NUMBERS) and not len(getattr(reward, "shape", ()))


def check_reward(player: str, reward: Any) -> None:
    """Raise EnvError unless a player's reward is one real number."""
    if type(reward) not in USUAL and not is_number(reward):
        refuse_text(player, reward=reward)
        shape = getattr(reward, "shape", None)
        single = bool(shape) and all(size == 1 for size in shape)  # type: ignore[union-attr]
        raise EnvError(
            f"player {player!r}: reward is {shown(reward)}, expected one real number. "
            f"{'Return reward.item()' if single else _SCALARIZE}"
        )
