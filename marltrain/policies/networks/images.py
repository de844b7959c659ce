"""Images: how the axes of their arrays are read, and the scale of their values."""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium import spaces

from marltrain.core.layout import Array

AUTO, FIRST, LAST = "auto", "first", "last"
CHANNELS = (AUTO, FIRST, LAST)
"""Values of the setting `channels` of networks: the place of the channels among the three axes of an image."""
NONE, FRAMES_LAST, FRAMES_FIRST = "none", "frames, last", "frames, first"
"""Orders of axes without channels, and of stacked frames with channels after or before their height and width."""
Scale = tuple[float, float] | tuple[Array, Array]
"""Lowest values and spans of an image, as numbers, or as float32 arrays that have an axis of 1 where they are equal."""


def image_axes(shape: tuple[int, ...], stack: int, channels: str = AUTO) -> tuple[int, int, int, str]:
    """Return (channels, height, width, order of axes) of an image; stacked frames are channels, too.

    channels: "first" or "last" of three axes; "auto": see `channels_of`. It has no effect on frames of two axes.
    """
    frame = shape[1:] if stack > 1 else shape
    if len(frame) == 2:
        return stack, frame[0], frame[1], FIRST if stack > 1 else NONE
    place = channels_of(frame) if channels == AUTO else channels
    count, height, width = frame if place == FIRST else (frame[2], frame[0], frame[1])
    if stack > 1:
        place = FRAMES_FIRST if place == FIRST else FRAMES_LAST
    return stack * count, height, width, place


def channels_of(shape: tuple[int, ...]) -> str:
    """Return "first" or "last", the place of the channels among three axes.

    Two equal axes side by side are height and width: (8, 8, 17) has 17 channels. Otherwise the shorter of the outer
    axes holds the channels, the last one if they are equal.
    """
    outer, middle, inner = shape
    if outer == middle != inner:
        return LAST
    if middle == inner != outer:
        return FIRST
    return FIRST if outer < inner else LAST


def image_scale(space: spaces.Box) -> Scale:
    """Return the lowest values and the spans that map an image to 0 to 1; a span of 0 counts as 1."""
    low, high = space.low.astype(np.float32), space.high.astype(np.float32)
    span = np.where(high > low, high - low, np.float32(1))
    if (low == low.flat[0]).all() and (span == span.flat[0]).all():
        return float(low.flat[0]), float(span.flat[0])
    return _collapsed(low), _collapsed(span)


def _collapsed(values: Array) -> Array:
    """Return the values with one entry on each axis along which they are equal."""
    for axis in range(values.ndim):
        first: Any = values.take([0], axis)
        values = first if (values == first).all() else values
    return values
