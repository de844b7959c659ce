"""The interface of a device's memory that holds copies of the rows from which its learners read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np

from marltrain.core.layout import Array

Tensor = Any
"""A tensor of the framework."""


class RowMemory(Protocol):
    """Tables of rows in the memory of a GPU, see `memory.mirror`.

    name: that of the device.
    """

    name: str

    def free(self) -> float:
        """Return how many bytes are free."""

    def table(self, rows: int, shape: Sequence[int], dtype: np.dtype[np.generic]) -> Tensor:
        """Return a table [rows, *shape] of zeros; raises ConfigError if it does not fit."""

    def send(self, arrays: Sequence[Array]) -> list[Tensor]:
        """Return arrays as tensors on the device, by one copy."""

    def write(self, table: Tensor, axes: tuple[int, int, int], slots: slice, rows: Tensor) -> None:
        """Write rows [P, n, E, ...] into slots of a table, whose first rows have the axes (P, C, E)."""

    def replace(self, table: Tensor, index: Tensor, rows: Tensor) -> None:
        """Write rows [n, ...] into a table at `index` [n] int64."""

    def gather(self, table: Tensor, index: Tensor) -> Tensor:
        """Return rows of a table, [*index.shape, ...]."""

    def join(self, tensors: Sequence[Tensor]) -> Tensor:
        """Return tensors as one, joined along their last axis."""
