"""Axes of image observations."""

from __future__ import annotations


def image_axes(shape: tuple[int, ...], stack: int) -> tuple[int, int, int, str]:
    """Return (channels, height, width, order of axes) of an image part."""
    if stack > 1:
        channels = shape[3] if len(shape) == 4 else 1
        return stack * channels, shape[1], shape[2], "stacked" if len(shape) == 4 else "first"
    if len(shape) == 2:
        return 1, shape[0], shape[1], "none"
    if shape[0] < shape[2]:  # the shorter of the outer axes holds the channels
        return shape[0], shape[1], shape[2], "first"
    return shape[2], shape[0], shape[1], "last"
