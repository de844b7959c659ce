"""Continuous: base of the distributions of Box actions; the scale between [-1, 1] and the environment's units."""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium import spaces

from marltrain.core.errors import SpecError
from marltrain.core.layout import Array
from marltrain.core.spaces import action_bounds
from marltrain.policies.ops import Ops


class Continuous:
    """Base of the distributions over A numbers.

    In a bounded dimension, -1 and 1 correspond to the bounds of the Box. In an unbounded dimension, an action has the
    environment's units. A half-bounded dimension counts as unbounded, but actions are clipped to its bound.

    dims: A.  center, reach: [A] float64, the action 0 and the width of 1 in the environment's units.
    low, high: [A] float32, the bounds.
    """

    def __init__(self, space: spaces.Box) -> None:
        """Read the bounds from the space."""
        low, high = space.low.reshape(-1).astype(np.float64), space.high.reshape(-1).astype(np.float64)
        bounded = self.bounded = np.isfinite(low) & np.isfinite(high)
        self.dims = len(low)
        self.center = np.where(bounded, (np.where(bounded, low, 0) + np.where(bounded, high, 0)) / 2, 0.0)
        self.reach = np.where(bounded, (np.where(bounded, high, 1) - np.where(bounded, low, -1)) / 2, 1.0)
        self.low, self.high = action_bounds(space)
        self._center, self._width = self.center.tolist(), np.where(self.reach > 0, self.reach, 1.0).tolist()

    def to_units(self, action: Array) -> Array:
        """Scale actions [..., A] to the environment's units and clip them to its bounds; returns float32."""
        scaled = (self.center + self.reach * action).astype(np.float32)
        limited: Array = np.minimum(np.maximum(scaled, self.low), self.high)
        return limited

    def in_units(self, ops: Ops, action: Any) -> Any:
        """Return `to_units` of actions [..., A], in float32."""
        center, reach, low, high = (
            ops.tensor_like(action, values.tolist()) for values in (self.center, self.reach, self.low, self.high)
        )
        return ops.clip(center + reach * action, low, high)

    def scaled(self, ops: Ops, action: Any) -> Any:
        """Return stored actions [..., A] with the bounds at -1 and 1: the inverse of the scaling in `to_units`."""
        return (action - ops.tensor_like(action, self._center)) / ops.tensor_like(action, self._width)

    def from_units(self, ops: Ops, action: Any) -> Any:
        """Return stored actions [..., A] of a bounded Box, scaled and clipped to [-1, 1]."""
        return ops.clip(self.scaled(ops, action), -1.0, 1.0)

    def check_bounded(self, what: str) -> None:
        """Raise SpecError unless each dimension has two finite bounds."""
        if not self.bounded.all():
            i = int(np.argmin(self.bounded))
            raise SpecError(
                f"{what} needs two finite bounds in every dimension of a Box; dimension {i} of the action space goes "
                f"from {self.low[i]:g} to {self.high[i]:g}. Give the environment's action space finite bounds, or use "
                'the distribution "gaussian" where there is a choice'
            )
