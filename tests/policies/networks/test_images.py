"""How the axes of images are read, and the scale of their values, worked out by hand."""

import numpy as np
import pytest
from gymnasium import spaces

from marltrain.policies.networks.images import channels_of, image_axes, image_scale

READ = [
    ((84, 84, 4), "last"), ((4, 84, 84), "first"), ((210, 160, 3), "last"), ((3, 210, 160), "first"),
    ((8, 8, 17), "last"), ((17, 8, 8), "first"), ((6, 7, 2), "last"), ((2, 6, 7), "first"), ((3, 3, 4), "last"),
    ((5, 5, 5), "last"), ((7, 5, 7), "last"), ((1, 6, 9), "first"), ((9, 6, 1), "last"),
]  # fmt: skip


@pytest.mark.parametrize(("shape", "expected"), READ)
def test_the_channels_are_found(shape, expected):
    assert channels_of(shape) == expected


@pytest.mark.parametrize(
    ("shape", "stack", "channels", "expected"),
    [
        ((5, 6), 1, "auto", (1, 5, 6, "none")),
        ((5, 6), 1, "first", (1, 5, 6, "none")),
        ((8, 8, 17), 1, "auto", (17, 8, 8, "last")),
        ((8, 8, 17), 1, "first", (8, 8, 17, "first")),
        ((3, 9, 8), 1, "last", (8, 3, 9, "last")),
        ((4, 84, 84), 4, "auto", (4, 84, 84, "first")),
        ((4, 84, 80), 4, "last", (4, 84, 80, "first")),
        ((2, 9, 8, 3), 2, "auto", (6, 9, 8, "frames, last")),
        ((2, 3, 9, 8), 2, "auto", (6, 9, 8, "frames, first")),
        ((2, 8, 8, 17), 2, "auto", (34, 8, 8, "frames, last")),
        ((2, 8, 8, 17), 2, "first", (16, 8, 17, "frames, first")),
    ],
)
def test_axes_of_frames_and_of_a_users_choice(shape, stack, channels, expected):
    assert image_axes(shape, stack, channels) == expected


def test_one_scale_for_equal_bounds():
    assert image_scale(spaces.Box(0, 2, (3, 3), np.uint8)) == (0.0, 2.0)
    assert image_scale(spaces.Box(10, 250, (3, 3, 2), np.uint8)) == (10.0, 240.0)
    assert image_scale(spaces.Box(7, 7, (3, 3), np.uint8)) == (7.0, 1.0)


def test_a_scale_for_each_plane_and_for_each_entry():
    low, high = np.zeros((2, 3, 4), np.uint8), np.tile(np.array([1, 9, 4, 0], np.uint8), (2, 3, 1))
    low[..., 2] = 3
    lowest, span = image_scale(spaces.Box(low, high, dtype=np.uint8))
    assert np.asarray(lowest).tolist() == [[[0, 0, 3, 0]]]
    assert np.asarray(span).tolist() == [[[1, 9, 1, 1]]]
    high = np.arange(1, 7, dtype=np.uint8).reshape(2, 3)
    lowest, span = image_scale(spaces.Box(np.zeros_like(high), high, dtype=np.uint8))
    assert np.asarray(lowest).tolist() == [[0]]
    assert np.asarray(span).tolist() == [[1, 2, 3], [4, 5, 6]]
    assert np.asarray(span).dtype == np.float32
