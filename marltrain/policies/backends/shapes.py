"""Rounding of minibatch sizes for compiled backends, so that minibatches of similar sizes share graphs."""

from __future__ import annotations

SMALLEST = 32


def rounded_up(rows: int) -> int:
    """Round up to one of 32, 36, 40, ..., 64, 72, 80, ...: eight steps per doubling, at most an eighth too many."""
    step = (1 << (rows - 1).bit_length()) // 16
    return -(-rows // step) * step if rows > SMALLEST else SMALLEST
