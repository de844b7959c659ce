"""Views hold the offsets, shapes and strides that numpy computes."""

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from marltrain.policies.tape.views import View, view_of, whole

NUMBERS = np.arange(400)
SHAPES = st.lists(st.integers(1, 4), min_size=0, max_size=4).map(tuple)


def read(view: View) -> np.ndarray:
    bytes_apart = [8 * stride for stride in view.strides]
    return np.lib.stride_tricks.as_strided(NUMBERS[view.offset :], view.shape, bytes_apart)


@st.composite
def pairs(draw: st.DrawFn) -> tuple[View, np.ndarray]:
    """A view after some steps, and numpy's array after the same."""
    view = whole(draw(SHAPES))
    array = NUMBERS[: view.size].reshape(view.shape)
    for _ in range(draw(st.integers(0, 4))):
        step = draw(st.sampled_from(["move", "slice", "repeat", "expand"]))
        axis = draw(st.integers(0, max(len(view.shape) - 1, 0)))
        if step == "expand":
            view, array = view.expanded(axis), np.expand_dims(array, axis)
        elif step == "repeat":
            shape = (draw(st.integers(1, 3)), *view.shape)
            view, array = view.broadcast(shape), np.broadcast_to(array, shape)
        elif view.shape and step == "move":
            view, array = view.moved(0, axis), np.moveaxis(array, 0, axis)
        elif view.shape and view.shape[axis] > 1:
            cut = draw(st.sampled_from([slice(1, None), slice(None, -1), slice(None, None, 2), slice(-2, None)]))
            index = (slice(None),) * axis + (cut,)
            view, array = view.indexed(index), array[index]
    return view, array


@settings(derandomize=True, deadline=None, max_examples=300)
@given(pairs())
def test_steps_give_the_entries_of_numpy(pair):
    view, array = pair
    assert view.shape == array.shape
    np.testing.assert_array_equal(read(view), array)
    assert view == view_of(view.offset, view.shape, view.strides)  # equal views compare equal
    np.testing.assert_array_equal(read(view.once()), array[tuple(slice(0, 1 if i in view.repeated else None)
                                                                 for i in range(array.ndim))])  # fmt: skip


@settings(derandomize=True, deadline=None, max_examples=300)
@given(pairs(), st.data())
def test_reshaped_is_a_view_exactly_where_numpy_needs_no_copy(pair, data):
    view, array = pair
    factors = data.draw(st.permutations([n for n in view.shape if n > 1] + [1]))
    joins = data.draw(st.integers(1, len(factors)))
    shape = (int(np.prod(factors[:joins])), *factors[joins:])
    made = view.reshaped(shape)
    try:
        expected = np.reshape(array, shape, copy=False)
    except ValueError:
        assert made is None
    else:
        assert made is not None and made.shape == expected.shape
        np.testing.assert_array_equal(read(made), expected)


def test_places_of_an_index():
    view = whole((3, 4, 5))
    assert view.indexed((1, ..., None)) == View(20, (4, 5, 1), (5, 1, 0))
    assert view.indexed((-1, slice(1, 3), -2)) == View(40 + 5 + 3, (2,), (5,))
    assert view.indexed((..., 2)) == View(2, (3, 4), (20, 5))


@pytest.mark.parametrize(("index", "kind"), [((3,), IndexError), ((0, 0, 0, 0), IndexError),
                                             ((slice(None, None, -1),), ValueError)])  # fmt: skip
def test_wrong_index_raises(index, kind):
    with pytest.raises(kind, match=r"3|4|-1"):
        whole((3, 4, 5)).indexed(index)


@pytest.mark.parametrize("shape", [(3, 5), (4,), (2, 3)])
def test_shapes_that_do_not_fit_raise(shape):
    with pytest.raises(ValueError, match="3, 4"):
        whole((3, 4)).broadcast(shape)
