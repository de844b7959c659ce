"""Sums, largest entries and softmax along an axis, by NumPy and torch; any strides, NaN and infinities."""

import numpy as np
import pytest
import torch

from marltrain.policies.tape.interpreter.reductions import scratch_size
from tests.policies.tape.executed import carry_out

SIZES = [1, 2, 5, 15, 16, 17, 33, 100]


@pytest.mark.parametrize("operation", ["sum", "max"])
@pytest.mark.parametrize("length", SIZES)
@pytest.mark.parametrize("inner", [1, 2, 19])
@pytest.mark.parametrize("gap", [0, 1])
def test_along_the_middle_axis(operation, length, inner, gap):
    x = np.random.default_rng(0).standard_normal((3, length, inner, 1 + gap), np.float32)
    found = carry_out(
        operation, np.full((3, inner), 77, np.float32), {"a": x}, outer=3, length=length, inner=inner,
        a_outer=length * inner * (1 + gap), a_length=inner * (1 + gap), a_inner=1 + gap,
    )  # fmt: skip
    exact = getattr(x[..., 0].astype(np.float64), operation)(1)
    np.testing.assert_allclose(found, exact, rtol=1e-6, atol=1e-5 if operation == "sum" else 0)


def rowwise(operation, x, *, kind=np.float32, gap=0):
    """Return an operation on the rows of x, with `gap` other numbers behind each."""
    rows, columns = x.shape
    wide = np.full((rows, columns + gap), 1e9, np.float32)
    wide[:, :columns] = x
    shape = x.shape if operation == "log_softmax" else (rows,)
    scratch = np.zeros(scratch_size(rows, columns), np.float32)
    return carry_out(operation, np.full(shape, 77, kind), {"a": wide, "scratch": scratch}, rows=rows, columns=columns,
                     a_row=columns + gap, a_column=1)  # fmt: skip


@pytest.mark.parametrize("columns", SIZES)
@pytest.mark.parametrize("scale", [1.0, 1e4])
def test_softmax(columns, scale):
    x = (scale * np.random.default_rng(0).standard_normal((7, columns))).astype(np.float32)
    tensor = torch.from_numpy(x).double()
    np.testing.assert_allclose(rowwise("log_softmax", x, gap=2), tensor.log_softmax(-1).numpy(), rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(rowwise("logsumexp", x, gap=2), tensor.logsumexp(-1).numpy(), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("columns", [4, 21])
def test_softmax_of_what_is_not_finite(columns):
    x = np.zeros((5, columns), np.float32)
    x[0, 1], x[1, 1], x[2], x[3, 2], x[4, 0] = np.inf, -np.inf, -np.inf, np.nan, -1e9
    tensor = torch.from_numpy(x)
    np.testing.assert_allclose(rowwise("log_softmax", x), tensor.log_softmax(-1).numpy(), rtol=1e-6)
    np.testing.assert_allclose(rowwise("logsumexp", x), tensor.logsumexp(-1).numpy(), rtol=1e-6)


@pytest.mark.parametrize("columns", SIZES)
def test_first_of_the_largest(columns):
    x = np.random.default_rng(0).integers(0, 3, (9, columns)).astype(np.float32)
    assert rowwise("argmax", x, kind=np.int64, gap=1).tolist() == x.argmax(1).tolist()


@pytest.mark.parametrize("at", [0, 3, 15, 16, 20])
def test_nan_is_the_largest(at):
    x = np.zeros((2, 21), np.float32)
    x[:, 5], x[1, at] = np.inf, np.nan
    assert rowwise("argmax", x, kind=np.int64).tolist() == [5, at]
    found = carry_out("max", np.zeros(2, np.float32), {"a": x}, outer=2, length=21, inner=1, a_outer=21, a_length=1)
    np.testing.assert_array_equal(found, [np.inf, np.nan])
