"""Axes that are joined, and the matrices that cover them."""

import numpy as np
from hypothesis import given, settings, strategies as st

from marltrain.policies.tape.assembly.strides import is_plain, joined
from marltrain.policies.tape.views import View, whole


def test_axes_that_go_on_evenly_are_joined():
    axes = joined((2, 1, 3, 4), (12, 0, 4, 1), (0, 0, 8, 2))
    assert axes.sizes == (2, 12)
    assert axes.strides == ((12, 1), (0, 2))


def test_a_single_entry_has_no_axes():
    axes = joined((1, 1), (0, 0))
    assert axes.sizes == () and axes.vector() == (1, [0])
    assert list(axes.matrices()) == [([0], 1, 1, [(0, 1)])]


def test_one_matrix_for_each_index_of_the_shortest_axis():
    axes = joined((2, 5, 3), (15, 3, 1), (1, 2, 10))
    assert axes.count == 2
    assert list(axes.matrices()) == [
        ([0, 0], 5, 3, [(3, 1), (2, 10)]),
        ([15, 1], 5, 3, [(3, 1), (2, 10)]),
    ]


def test_plain_views():
    assert is_plain(View(5, (2, 1, 3), (3, 0, 1)))
    assert not is_plain(View(0, (2, 3), (6, 2)))
    assert not is_plain(View(0, (2, 3), (0, 1)))


SHAPES = st.lists(st.integers(1, 4), min_size=0, max_size=5)


@settings(deadline=None)
@given(SHAPES, st.data())
def test_matrices_cover_every_entry_once(shape, data):
    strides = [data.draw(st.lists(st.integers(0, 5), min_size=len(shape), max_size=len(shape))) for _ in range(2)]
    own = whole(shape).strides
    expected = {(sum(i * s for i, s in zip(index, own, strict=True)),
                 *(sum(i * s for i, s in zip(index, other, strict=True)) for other in strides))
                for index in np.ndindex(*shape)}  # fmt: skip
    axes = joined(shape, own, *strides)
    found = [
        tuple(offset + i * row + j * column for offset, (row, column) in zip(offsets, pairs, strict=True))
        for offsets, rows, columns, pairs in axes.matrices()
        for i in range(rows)
        for j in range(columns)
    ]
    assert len(found) == len(expected) and set(found) == expected
    assert len(list(axes.matrices())) == axes.count
