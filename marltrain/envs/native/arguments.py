"""Checks of what a native game's constructor is given."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from marltrain.errors import ConfigError, shown

LARGEST = 2**63 - 1
"""The largest whole number that a rule can be."""


def truth(name: str, value: Any) -> bool:
    """Return True or False; raises ConfigError for anything else."""
    if not isinstance(value, bool | np.bool_):
        raise ConfigError(f"{name} must be True or False, got {value!r}")
    return bool(value)


def whole(name: str, value: Any, least: int = 1, most: float = LARGEST) -> int:
    """Return a whole number from `least` to `most`; raises ConfigError for anything else."""
    right = isinstance(value, int | np.integer) and not isinstance(value, bool)
    if not right or not least <= value <= most:
        bound = f"of at least {least}, below 2**63" if most == LARGEST else f"from {least} to {most}"
        raise ConfigError(f"{name} must be a whole number {bound}, got {shown(value)}")
    return int(value)


def number(name: str, value: Any, low: float = -math.inf, high: float = math.inf) -> float:
    """Return a finite number from `low` to `high`; raises ConfigError for anything else."""
    right = isinstance(value, int | float | np.integer | np.floating) and not isinstance(value, bool)
    if not right or not math.isfinite(value) or not low <= value <= high:
        raise ConfigError(f"{name} must be a number from {low} to {high}, got {value!r}")
    return float(value)
