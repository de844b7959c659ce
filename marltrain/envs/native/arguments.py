"""Checks of the arguments of native games' constructors."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from marltrain.core.errors import ConfigError, shown

LARGEST = 2**63 - 1
"""The largest integer that a rule can hold."""


def truth(name: str, value: Any) -> bool:
    """Return `value` as a bool; raises ConfigError for any other type."""
    if not isinstance(value, bool | np.bool_):
        raise ConfigError(f"{name} must be True or False, got {value!r}")
    return bool(value)


def whole(name: str, value: Any, least: int = 1, most: float = LARGEST) -> int:
    """Return `value` as an integer from `least` to `most`; raises ConfigError for anything else."""
    right = isinstance(value, int | np.integer) and not isinstance(value, bool)
    if not right or not least <= value <= most:
        bound = f"of at least {least}, below 2**63" if most == LARGEST else f"from {least} to {most}"
        raise ConfigError(f"{name} must be a whole number {bound}, got {shown(value)}")
    return int(value)


def number(name: str, value: Any, low: float = -math.inf, high: float = math.inf) -> float:
    """Return `value` as a finite float from `low` to `high`; raises ConfigError for anything else."""
    right = isinstance(value, int | float | np.integer | np.floating) and not isinstance(value, bool)
    if not right or not math.isfinite(value) or not low <= value <= high:
        raise ConfigError(f"{name} must be a number from {low} to {high}, got {value!r}")
    return float(value)
