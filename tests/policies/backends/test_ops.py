"""The names that algorithms are written in: numpy's, torch's and TensorFlow's against plain float64 and each other."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from itertools import product

import numpy as np
import pytest
from scipy import special

from marltrain.policies.backends import numpy_ops
from marltrain.policies.ops import FrameworkOps, Ops
from marltrain.policies.tape import ops as tape_ops
from tests.policies.backends.both import BOTH, on_both, slopes, value_and_gradients

RNG = np.random.default_rng(0)
X = RNG.standard_normal((3, 5, 4)).astype(np.float32) * 3

EXACT: dict[str, Callable[..., np.ndarray]] = {
    "exp": np.exp, "log": np.log, "sqrt": np.sqrt, "square": np.square, "absolute": np.abs, "tanh": np.tanh,
    "relu": lambda x: np.maximum(x, 0),
    "elu": lambda x: np.where(x > 0, x, np.exp(np.minimum(x, 0)) - 1),
    "silu": lambda x: x / (1 + np.exp(-x)),
    "gelu": lambda x: x * (1 + np.vectorize(math.erf)(x / math.sqrt(2))) / 2,
    "softplus": lambda x: np.log1p(np.exp(x)),
    "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "lgamma": special.gammaln, "digamma": special.digamma, "erf": special.erf, "cos": np.cos, "sin": np.sin,
}  # fmt: skip
ALONG: dict[str, Callable[..., np.ndarray]] = {
    "logsumexp": lambda x, axis: np.log(np.exp(x).sum(axis)),
    "softmax": lambda x, axis: np.exp(x) / np.exp(x).sum(axis, keepdims=True),
    "log_softmax": lambda x, axis: x - np.log(np.exp(x).sum(axis, keepdims=True)),
    "sum": np.sum, "mean": np.mean, "max": np.max,
}  # fmt: skip
TWO: dict[str, Callable[..., np.ndarray]] = {
    "minimum": np.minimum, "maximum": np.maximum,
    "concat": lambda x, y: np.concatenate([x, y], -1), "stack": lambda x, y: np.stack([x, y], 0),
}  # fmt: skip


def called(ops, name):
    """Return the operation as a function of its tensors alone."""
    if name == "concat":
        return lambda *parts: ops.concat(parts, -1)
    return (lambda *parts: ops.stack(parts, 0)) if name == "stack" else getattr(ops, name)


def names(module):
    return {n for n, value in vars(module).items() if callable(value) and n[0].islower() and not inspect.isclass(value)}


def assert_equal_to(exact, function, *arrays):
    """In every implementation: the value of a float64 function, and in the frameworks its slopes."""
    with np.errstate(divide="ignore"):
        expected, expected_slopes = exact(*(a.astype(np.float64) for a in arrays)), slopes(exact, *arrays)
    np.testing.assert_allclose(function(numpy_ops)(*arrays), expected, rtol=3e-6, atol=3e-6)
    for name, backend in BOTH.items():
        value, *grads = value_and_gradients(backend, function(backend.ops), *arrays)
        np.testing.assert_allclose(value, expected, rtol=3e-6, atol=3e-6, err_msg=name)
        for grad, slope in zip(grads, expected_slopes, strict=True):
            np.testing.assert_allclose(grad, slope, rtol=2e-5, atol=2e-5, err_msg=name)


def declared(protocol):
    """Return the operations of a protocol with the names of their arguments."""
    methods = {name: getattr(protocol, name) for name in dir(protocol) if name[0].islower()}
    return {name: list(inspect.signature(method).parameters)[1:] for name, method in methods.items()}


def differences(module, protocol):
    """Return the operations that a module lacks, those that the protocol lacks, and those of other arguments."""
    expected = declared(protocol)
    own = {name: value for name, value in vars(module).items() if inspect.isfunction(value) and name in expected}
    others = {
        name
        for name, function in own.items()
        if function.__module__ == module.__name__ and list(inspect.signature(function).parameters) != expected[name]
    }
    return expected.keys() - names(module), names(module) - expected.keys(), others


def test_each_implementation_has_the_operations_of_the_protocol():
    for module in (*(backend.ops for backend in BOTH.values()), tape_ops):
        assert differences(module, FrameworkOps) == (set(), set(), set())
    assert differences(numpy_ops, Ops) == (set(), set(), set())


def test_a_missing_operation_is_detected_on_both_sides(monkeypatch):
    def sinh(x):
        return x

    def take(x):
        return x

    sinh.__module__ = take.__module__ = numpy_ops.__name__
    monkeypatch.delattr(numpy_ops, "tanh")
    monkeypatch.setattr(numpy_ops, "sinh", sinh, raising=False)
    monkeypatch.setattr(numpy_ops, "take", take)
    assert differences(numpy_ops, Ops) == ({"tanh"}, {"sinh"}, {"take"})


@pytest.mark.parametrize("name", EXACT)
def test_elementwise(name):
    x = np.abs(X) + 0.1 if name in ("log", "sqrt", "lgamma", "digamma") else X
    assert_equal_to(EXACT[name], lambda ops: getattr(ops, name), x)


@pytest.mark.parametrize("name", ALONG)
@pytest.mark.parametrize("axis", [0, -1])
def test_along_an_axis(name, axis):
    assert_equal_to(lambda x: ALONG[name](x, axis), lambda ops: lambda x: getattr(ops, name)(x, axis), X)


@pytest.mark.parametrize("name", TWO)
def test_of_two(name):
    assert_equal_to(TWO[name], lambda ops: called(ops, name), X, X[..., ::-1].copy())


def test_large_values_neither_overflow_nor_vanish():
    x = np.array([[[200.0, 100.0, -300.0]]], np.float32)
    for ops, to, back in ((numpy_ops, np.asarray, np.asarray), *((b.ops, b.tensor, b.numpy) for b in BOTH.values())):
        assert back(ops.logsumexp(to(x), -1)).tolist() == [[200.0]]
        assert back(ops.log_softmax(to(x), -1)).tolist() == [[[0.0, -100.0, -500.0]]]
        assert back(ops.softmax(to(x), -1))[0, 0, 0] == 1.0
        assert back(ops.softplus(to(x))).tolist() == [[[200.0, 100.0, 0.0]]]


@on_both
@pytest.mark.parametrize("numbers", [2**13 - 1, 2**13])
def test_tanh_of_few_and_of_many_numbers(backend, numbers):
    """torch computes few and many in different ways."""
    x = np.linspace(-3, 3, numbers, dtype=np.float32)[None]
    value, grad = value_and_gradients(backend, backend.ops.tanh, x)
    exact = np.tanh(x.astype(np.float64))
    np.testing.assert_allclose(value, exact, rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(grad, 2 * exact * (1 - exact**2), rtol=1e-5, atol=1e-6)


@on_both
@pytest.mark.parametrize("name", ["relu", "elu", "absolute"])
def test_at_the_corner_the_slope_is_the_same(backend, name):
    zero = np.zeros((1, 1), np.float32)
    expected = 1.0 if name == "elu" else 0.0
    lifted = value_and_gradients(backend, lambda x: getattr(backend.ops, name)(x) + 0.5, zero)  # 2 * 0.5 * slope
    assert lifted[1].tolist() == [[expected]]


def test_choices_and_picks():
    """take along the last axis, where, only, clip, argmax: the first of equal values."""
    index = RNG.integers(4, size=(3, 5))
    where, tied = X > 0.5, np.array([[[1, 3, 3, 0], [2, 2, 2, 2]]], np.float32)
    for ops, to, back in ((numpy_ops, np.asarray, np.asarray), *((b.ops, b.tensor, b.numpy) for b in BOTH.values())):
        x = to(X.copy())
        assert np.array_equal(back(ops.take(x, to(index))), np.take_along_axis(X, index[..., None], -1)[..., 0])
        assert np.array_equal(back(ops.where(to(where), x, -x)), np.where(where, X, -X))
        for chosen in (where[..., 0], where[..., 0] | True):
            assert np.array_equal(back(ops.only(x, to(chosen))), X * chosen[..., None])
        assert np.array_equal(back(ops.clip(x, -1.0, 0.5)), np.clip(X, -1, 0.5))
        assert back(ops.argmax(to(tied), -1)).tolist() == [[1, 0]]
        assert [back(part).shape[-1] for part in ops.split(x, [1, 3])] == [1, 3]
        assert np.array_equal(back(ops.concat(ops.split(x, [1, 3]), -1)), X)
        assert back(ops.flag(x > 0)).dtype == np.float32
        assert not back(ops.zeros_like(x)).any() and (back(ops.ones_like(x)) == 1).all()


@on_both
def test_a_pick_sends_its_gradient_to_what_was_picked(backend):
    index = RNG.integers(4, size=(3, 5))
    _, grad = value_and_gradients(backend, lambda x: backend.ops.take(x, backend.tensor(index)), X)
    assert np.array_equal(grad, np.where(index[..., None] == np.arange(4), 2 * X, 0))


def test_the_last_axis_is_split_and_numbers_become_a_vector():
    assert_equal_to(lambda x: x.reshape(3, 5, 2, 2), lambda ops: lambda x: ops.unflatten(x, 2), X)
    for backend in BOTH.values():
        result = backend.ops.tensor_like(backend.tensor(X), [0.5, 2])
        assert backend.numpy(result).dtype == np.float32
        assert backend.numpy(result).tolist() == numpy_ops.tensor_like(X, [0.5, 2]).tolist() == [0.5, 2.0]


@on_both
def test_a_stopped_gradient_counts_as_a_constant(backend):
    _, grad = value_and_gradients(backend, lambda x: x * backend.ops.stop_gradient(x), X)
    np.testing.assert_allclose(grad, 2 * X**3, rtol=1e-5)


@pytest.mark.parametrize(("rows", "outputs"), [(5, 3), (70, 3), (5, 20)], ids=["few", "narrow and many", "wide"])
def test_linear(rows, outputs):
    """Also where torch widens a narrow layer."""
    x, weight, bias = (RNG.standard_normal(s).astype(np.float32) for s in ((2, rows, 4), (2, 4, outputs), (2, outputs)))
    assert_equal_to(lambda x, w, b: x @ w + b[:, None], lambda ops: ops.linear, x, weight, bias)


def test_constants_are_appended_to_every_row():
    constants = RNG.standard_normal((3, 2)).astype(np.float32)
    assert_equal_to(
        lambda x, c: np.concatenate([x, np.repeat(c[:, None], 5, 1)], -1),
        lambda ops: ops.append_constants,
        X,
        constants,
    )


def test_rows_of_agents_are_repeated_for_the_members_of_an_ensemble_and_separated():
    assert_equal_to(lambda x: np.repeat(x, 2, 0), lambda ops: lambda x: ops.repeat_agents(x, 2), X)
    pairs = np.concatenate([X, 2 * X], 0)
    assert_equal_to(lambda x: x.reshape(3, 2, 5, 4), lambda ops: lambda x: ops.unfold_agents(x, 2), pairs)
    assert_equal_to(lambda x: x, lambda ops: lambda x: ops.fold_agents(ops.unfold_agents(x, 2)), pairs)
    assert_equal_to(lambda x: x[:, None], lambda ops: ops.constants, X[:, 0].copy())


def test_sequences_are_split_into_steps_and_joined():
    """Two sequences of 3 rows: the rows 0 and 3, 1 and 4, 2 and 5."""
    x = RNG.standard_normal((2, 6, 4)).astype(np.float32)
    for i in range(3):
        assert_equal_to(lambda x, i=i: x[:, [i, i + 3]], lambda ops, i=i: lambda x: ops.time_steps(x, 3)[i], x)
    assert_equal_to(lambda x: x, lambda ops: lambda x: ops.joined_steps(ops.time_steps(x, 3)), x)
    assert [step.tolist() for step in numpy_ops.time_steps(np.arange(6)[None] > 4, 3)] == [
        [[False, False]], [[False, False]], [[False, True]],
    ]  # fmt: skip


def test_one_hot_vectors_and_constant_numbers():
    index = np.array([[2, 0], [1, 1]])
    for ops, tensor, numpy in (
        (numpy_ops, np.asarray, np.asarray),
        *((b.ops, b.tensor, b.numpy) for b in BOTH.values()),
    ):
        result = numpy(ops.one_hot(tensor(index), 3))
        assert result.dtype == np.float32
        assert result.tolist() == [[[0, 0, 1], [1, 0, 0]], [[0, 1, 0], [0, 1, 0]]]
        like = numpy(ops.tensor_like(tensor(X), [0.5, -2.0]))
        assert (like.tolist(), like.dtype) == ([0.5, -2.0], np.float32)


# Images ---------------------------------------------------------------------------------------------------------------


@on_both
def test_pixels_are_scaled(backend):
    pixels = np.array([[[0, 51, 255]]], np.uint8)
    scaled = backend.numpy(backend.ops.scaled_image(backend.tensor(pixels), 0.0, 255.0))
    assert scaled.dtype == np.float32
    assert scaled.tolist() == [[[0.0, pytest.approx(0.2), 1.0]]]
    scaled = backend.numpy(backend.ops.scaled_image(backend.tensor(pixels), 1.0, 50.0))
    assert scaled.tolist() == [[[pytest.approx(-0.02), 1.0, pytest.approx(5.08)]]]
    low, span = np.array([0, 1, 5], np.float32), np.array([1, 100, 1000], np.float32)
    scaled = backend.numpy(backend.ops.scaled_image(backend.tensor(pixels), low, span))
    assert scaled.dtype == np.float32
    assert scaled.tolist() == [[[0.0, 0.5, 0.25]]]


ORDERS = {
    "none": ((2, 3, 4, 5), lambda x: x[:, :, None]),
    "first": ((2, 3, 2, 4, 5), lambda x: x),
    "last": ((2, 3, 4, 5, 2), lambda x: np.moveaxis(x, -1, 2)),
    "frames, last": ((2, 3, 4, 5, 6, 2), lambda x: np.moveaxis(x, -1, 3).reshape(2, 3, 8, 5, 6)),
    "frames, first": ((2, 3, 4, 2, 5, 6), lambda x: x.reshape(2, 3, 8, 5, 6)),
}


@on_both
@pytest.mark.parametrize("order", ORDERS)
def test_channels_come_first(backend, order):
    shape, expected = ORDERS[order]
    x = RNG.standard_normal(shape).astype(np.float32)
    result = backend.numpy(backend.ops.channels_first(backend.tensor(x), order))
    assert np.array_equal(result, expected(x))
    assert backend.numpy(backend.ops.flatten(backend.tensor(x))).tolist() == x.reshape(2, 3, -1).tolist()


def convolved(stride, x, weight, bias):
    """Return tanh of a convolution by the definition: [K, B, C, H, W] with [K, O, C, h, w]."""
    (height, width), (high, wide) = x.shape[3:], weight.shape[3:]
    result = np.zeros((*x.shape[:2], weight.shape[1], (height - high) // stride + 1, (width - wide) // stride + 1))
    for row, column in product(range(result.shape[3]), range(result.shape[4])):
        seen = x[..., row * stride : row * stride + high, column * stride : column * stride + wide]
        result[..., row, column] = np.einsum("kbchw,kochw->kbo", seen, weight) + bias[:, None]
    return np.tanh(result)


@on_both
@pytest.mark.parametrize("stride", [1, 2])
def test_convolutions(backend, stride):
    """5 x 4 pixels under a kernel of 3 x 2: with stride 2 a column is left over."""
    shapes = (2, 3, 2, 5, 4), (2, 3, 2, 3, 2), (2, 3)
    arrays = [RNG.standard_normal(shape).astype(np.float32) for shape in shapes]
    value, *grads = value_and_gradients(backend, lambda *a: backend.ops.convolve(*a, stride, backend.ops.tanh), *arrays)
    np.testing.assert_allclose(value, convolved(stride, *(a.astype(float) for a in arrays)), rtol=1e-5, atol=1e-5)
    for grad, slope in zip(grads, slopes(lambda *a: convolved(stride, *a), *arrays), strict=True):
        np.testing.assert_allclose(grad, slope, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("seats", [1, 3])
def test_the_seats_of_agents_are_separated_and_joined(seats):
    """Two agents of `seats` seats with 4 rows each."""
    x = np.arange(2 * seats * 4 * 5, dtype=np.float32).reshape(2, seats * 4, 5)
    apart = x.reshape(2 * seats, 4, 5)
    np.testing.assert_array_equal(numpy_ops.seats_apart(x, seats), apart)
    np.testing.assert_array_equal(numpy_ops.seats_joined(apart, seats), x)
    for backend in BOTH.values():
        ops = backend.ops
        np.testing.assert_array_equal(backend.numpy(ops.seats_apart(backend.tensor(x), seats)), apart)
        np.testing.assert_array_equal(backend.numpy(ops.seats_joined(backend.tensor(apart), seats)), x)
