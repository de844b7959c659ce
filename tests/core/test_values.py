"""Values that their conversion to arrays would change: which are refused, with which words, and which arrive."""

from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

from marltrain.core.errors import SpecError
from marltrain.core.layout import Layout

PICTURE = spaces.Box(0, 255, (2, 3), np.uint8)
BOARD = spaces.Box(1, 3, (2, 3), np.uint8)
PLANES = spaces.Box(np.zeros((2, 3, 2), np.uint8), np.tile(np.array([1, 9], np.uint8), (2, 3, 1)), dtype=np.uint8)
TALL = spaces.Box(-3, 5, (4,), np.int8)
WIDE = spaces.Box(-(2**31), 2**31 - 1, (2,), np.int32)
FLAGS = spaces.Box(0, 1, (3,), bool)  # type: ignore[arg-type]
DAYS = spaces.Discrete(7, start=1)
DIALS = spaces.MultiDiscrete([3, 4], start=[5, -1])
SWITCHES = spaces.MultiBinary(3)
FREE = spaces.Box(-np.inf, np.inf, (2,), np.float64)


def least(space):
    """An observation of the space: its least values, 0 where there are none."""
    if isinstance(space, spaces.Discrete | spaces.MultiDiscrete):
        return np.asarray(space.start)
    return np.zeros(space.shape) if space in (SWITCHES, FREE) else space.low


def changed(space, place, value):
    """An observation of the space in which one value is replaced."""
    array = least(space).astype(getattr(value, "dtype", np.float64 if isinstance(value, float) else np.int64))
    array[place] = value
    return array


def arrays(space):
    """The layout of a space, and an array for one observation."""
    layout = Layout(space)
    target = layout.empty((1,))
    assert isinstance(target, np.ndarray)
    return layout, target


def encoded(space, value):
    obs, _ = Layout(space).encode(value)
    assert isinstance(obs, np.ndarray)
    return obs


OUTSIDE: list[tuple[Any, ...]] = [
    (PICTURE, (1, 2), 0.5, r"entry \(1, 2\) is 0\.5, expected a whole number from 0 to 255 \(an image that was scaled"),
    (PICTURE, (0, 1), 2.5, r"entry \(0, 1\) is 2\.5, expected a whole number from 0 to 255 \(correct the observation"),
    (PICTURE, (0, 0), 300, r"entry \(0, 0\) is 300"),
    (PICTURE, (0, 0), -1, r"entry \(0, 0\) is -1"),
    (PICTURE, (0, 0), np.nan, r"entry \(0, 0\) is nan"),
    (PICTURE, (0, 0), np.inf, r"entry \(0, 0\) is inf"),
    (BOARD, (1, 0), np.uint8(4), r"entry \(1, 0\) is 4, expected a whole number from 1 to 3"),
    (BOARD, (1, 0), np.uint8(0), r"entry \(1, 0\) is 0, expected a whole number from 1 to 3"),
    (PLANES, (1, 2, 0), np.uint8(2), r"entry \(1, 2, 0\) is 2, expected a whole number from 0 to 1"),
    (PLANES, (1, 2, 1), np.uint8(10), r"entry \(1, 2, 1\) is 10, expected a whole number from 0 to 9"),
    (TALL, 3, 0.5, r"entry 3 is 0\.5, expected a whole number from -3 to 5"),
    (TALL, 3, np.nan, "entry 3 is nan"),
    (FLAGS, 1, 0.5, r"entry 1 is 0\.5, expected a whole number from 0 to 1"),
    (SWITCHES, 2, 0.5, r"entry 2 is 0\.5, expected a whole number from 0 to 1"),
    (DAYS, (), 0, "the value is 0, expected a whole number from 1 to 7"),
    (DAYS, (), 8, "the value is 8"),
    (DAYS, (), 1.5, r"the value is 1\.5"),
    (DAYS, (), np.nan, "the value is nan"),
    (DIALS, 0, 8, "entry 0 is 8, expected a whole number from 5 to 7"),
    (DIALS, 1, -2, "entry 1 is -2, expected a whole number from -1 to 2"),
    (DIALS, 1, 0.5, r"entry 1 is 0\.5"),
]
SHOWN: list[tuple[Any, ...]] = [
    (TALL, 0, np.int64(6), r"entry 0 is 6, expected a whole number from -3 to 5"),
    (TALL, 0, -4.0, r"entry 0 is -4\.0"),
    (SWITCHES, 0, np.int64(7), "entry 0 is 7, expected a whole number from 0 to 1"),
    (FREE, 1, np.nan, "entry 1 is nan, expected a finite number of float32"),
    (FREE, 1, 1e300, r"entry 1 is 1e\+300, expected a finite number of float32"),
]


@pytest.mark.parametrize(("space", "place", "value", "message"), OUTSIDE)
def test_a_value_that_its_array_would_hide_is_refused_when_it_is_written(space, place, value, message):
    layout, target = arrays(space)
    with pytest.raises(SpecError, match=f"observation leaves its space .*{message}"):
        layout.write(changed(space, place, value), target, 0)


@pytest.mark.parametrize(("space", "place", "value", "message"), OUTSIDE + SHOWN)
def test_a_value_outside_of_its_space_is_refused_when_it_is_encoded(space, place, value, message):
    wrong = changed(space, place, value)
    with pytest.raises(SpecError, match=f"observation leaves its space .*: {message}"):
        Layout(space).encode(wrong)
    named = Layout(spaces.Dict({"inner": spaces.Tuple([space])}))
    rows = np.stack([least(space).astype(wrong.dtype), wrong])
    with pytest.raises(SpecError, match=rf"observation part 'inner\.0' leaves its space .*: row 1: {message}"):
        named.encode({"inner": (rows,)})


@pytest.mark.parametrize("dtype", [np.uint8, np.int64, np.float32, np.float64, np.uint64])
@pytest.mark.parametrize("space", [PICTURE, BOARD, PLANES])
def test_whole_numbers_of_any_dtype_arrive_in_an_image(space, dtype):
    layout, target = arrays(space)
    for side in (space.low, space.high):
        layout.write(side.astype(dtype), target, 0)
        assert target.dtype == np.uint8
        np.testing.assert_array_equal(target[0], side)


def test_bool_pictures_and_lists_arrive():
    layout, target = arrays(PICTURE)
    layout.write(np.eye(2, 3, dtype=bool), target, 0)
    assert target[0].tolist() == [[1, 0, 0], [0, 1, 0]]
    layout.write([[1, 2, 3], [253, 254, 255]], target, 0)
    assert target[0].tolist() == [[1, 2, 3], [253, 254, 255]]


def test_values_at_the_bounds_arrive():
    for value, hot in ((1, 0), (7, 6), (7.0, 6), (np.int8(3), 2)):
        assert encoded(DAYS, value).argmax() == hot
    assert encoded(DIALS, [7, -1]).tolist() == [0, 0, 1, 1, 0, 0, 0]
    assert encoded(DIALS, [5, 2]).tolist() == [1, 0, 0, 0, 0, 0, 1]
    assert encoded(TALL, [-3, 5, 0.0, 1]).tolist() == [-3, 5, 0, 1]
    assert encoded(FREE, [3e38, -3e38]).tolist() == [np.float32(3e38), np.float32(-3e38)]


def test_integers_that_float32_rounds_past_a_bound_are_decoded_to_the_bound():
    """float32 rounds 2**31 - 1 to 2**31, which int32 does not hold; 2**24 + 1 becomes 2**24."""
    layout = Layout(WIDE)
    obs, _ = layout.encode(np.array([[2**31 - 1, 2**24 + 1], [-(2**31), -7]], np.int32))
    assert layout.decode(obs).tolist() == [[2**31 - 1, 2**24], [-(2**31), -7]]
    assert layout.decode(obs).dtype == np.int32


def test_the_bounds_of_a_vector_are_those_that_its_dtype_holds():
    layout = Layout(spaces.Tuple([spaces.Box(-np.inf, np.inf, (1,), np.float16), SWITCHES, DAYS]))
    assert layout.bounds is not None
    low, high = layout.bounds
    assert low.tolist() == [-65504, 0, 0, 0] + [-np.inf] * 7
    assert high.tolist() == [65504, 1, 1, 1] + [np.inf] * 7
