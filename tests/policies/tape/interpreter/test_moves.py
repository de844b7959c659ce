"""Copies, entries at an index, gathered rows and transposes, by NumPy; nothing is read or written beside its place."""

import numpy as np
import pytest

from tests.policies.tape.executed import carry_out

RNG = np.random.default_rng(0)


@pytest.mark.parametrize("kind", [np.float32, np.int64])
@pytest.mark.parametrize("to", [1, 2])
@pytest.mark.parametrize("step", [0, 1, 3])
@pytest.mark.parametrize("columns", [1, 5, 33])
def test_copies_between_strides(kind, to, step, columns):
    x = RNG.integers(0, 99, (4, columns, max(step, 1))).astype(kind)
    out = np.full((4, columns, to), 77, kind)
    found = carry_out(
        "copy" if kind == np.float32 else "copy_integers", out, {"a": x}, rows=4, columns=columns, out_row=columns * to,
        out_column=to, a_row=columns * max(step, 1), a_column=step,
    )  # fmt: skip
    np.testing.assert_array_equal(found[..., 0], np.broadcast_to(x[..., 0] if step else x[:, :1, 0], (4, columns)))
    assert (found[..., 1:] == 77).all()


@pytest.mark.parametrize("to", [1, 2])
@pytest.mark.parametrize("step", [0, 1, 3])
def test_additions(to, step):
    x = RNG.integers(0, 99, (4, 7, max(step, 1))).astype(np.float32)
    found = carry_out("add_to", np.full((4, 7, to), 77, np.float32), {"a": x}, rows=4, columns=7, out_row=7 * to,
                      out_column=to, a_row=7 * max(step, 1), a_column=step)  # fmt: skip
    np.testing.assert_array_equal(found[..., 0], 77 + np.broadcast_to(x[..., 0] if step else x[:, :1, 0], (4, 7)))


def test_booleans_of_bytes():
    flags = np.array([[True, False, True, True], [False, False, True, False]])
    found = carry_out("from_bytes", np.full((2, 2), 77, np.float32), {"a": flags}, rows=2, columns=2, out_row=2,
                      a_row=4, a_column=2)  # fmt: skip
    assert found.tolist() == [[1, 1], [0, 1]]


def test_zeros():
    assert not carry_out("zero", np.full(19, 77, np.float32), {}, size=19).any()


@pytest.mark.parametrize("kind", [np.float32, np.int64, np.bool_])
def test_gathered_rows(kind):
    x, index = RNG.integers(0, 2, (6, 3)).astype(kind), np.array([5, 0, 0, 3])
    found = carry_out("gather", np.zeros((4, 3), kind), {"a": x, "index": index}, rows=4, size=x.strides[0])
    np.testing.assert_array_equal(found, x[index])


def test_entries_at_an_index():
    x, index = RNG.standard_normal((4, 3, 2), np.float32), np.array([2, 9, 0, 9, 1, 9, 2])
    found = carry_out("take", np.zeros(4, np.float32), {"a": x, "index": index}, rows=4, columns=3, a_row=6,
                      a_column=2, index_row=2)  # fmt: skip
    np.testing.assert_array_equal(found, x[range(4), index[::2], 0])


def test_numbers_put_at_an_index():
    g, index = np.array([5, 0, 7], np.float32), np.array([2, 0])
    found = carry_out("put", np.full((2, 3), 77, np.float32), {"a": g, "index": index}, rows=2, columns=3, a_row=2,
                      index_row=1)  # fmt: skip
    assert found.tolist() == [[0, 0, 5], [7, 0, 0]]
    found = carry_out("one_hot", np.full((2, 3), 77, np.float32), {"index": index}, rows=2, columns=3, index_row=1)
    assert found.tolist() == [[0, 0, 1], [1, 0, 0]]


def test_an_index_out_of_range_reads_and_writes_nothing():
    index, shape = np.array([3, -1]), {"rows": 2, "columns": 3, "index_row": 1}
    x, g = np.ones((2, 3), np.float32), np.ones(2, np.float32)
    taken = carry_out("take", np.zeros(2, np.float32), {"a": x, "index": index}, a_row=3, a_column=1, **shape)
    assert np.isnan(taken).all()
    assert not carry_out("put", np.ones((2, 3), np.float32), {"a": g, "index": index}, a_row=1, **shape).any()
    assert not carry_out("one_hot", np.ones((2, 3), np.float32), {"index": index}, **shape).any()


@pytest.mark.parametrize("rows", [1, 15, 16, 17, 48])
@pytest.mark.parametrize("columns", [1, 16, 35])
def test_transposes(rows, columns):
    x = RNG.standard_normal((rows, columns), np.float32)
    found = carry_out("transpose", np.zeros((columns, rows), np.float32), {"a": x}, rows=rows, columns=columns)
    np.testing.assert_array_equal(found, x.T)
