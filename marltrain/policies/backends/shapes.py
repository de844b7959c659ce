"""Numbers of rows for compiled backends: rounded up, so that ragged minibatches share graphs."""

from __future__ import annotations

SMALLEST = 32


def rounded_up(rows: int) -> int:
    """Return the next of 32, 36, 40, ..., 64, 72, 80, ...: eight steps to a doubling, so an eighth too many at most."""
    step = (1 << (rows - 1).bit_length()) // 16
    return -(-rows // step) * step if rows > SMALLEST else SMALLEST
