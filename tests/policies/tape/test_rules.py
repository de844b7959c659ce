"""The gradient of every operation is that of torch: any strides, broadcasting, ties and limits."""

import inspect
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from marltrain.policies.tape.operations import OPERATIONS
from marltrain.policies.tape.rules import RULES
from marltrain.policies.tape.symbols import Symbol
from tests.policies.tape.evaluate import ELEMENTWISE, OTHERS
from tests.policies.tape.leaves import Leaves, moved

ELEMENT: dict[str, Callable[..., Any]] = {
    "add": lambda ops, x, y: x + y,
    "subtract": lambda ops, x, y: x - y,
    "multiply": lambda ops, x, y: x * y,
    "divide": lambda ops, x, y: x / (ops.square(y) + 0.5),
    "minimum": lambda ops, x, y: ops.minimum(x, y),
    "maximum": lambda ops, x, y: ops.maximum(x, y),
    "where": lambda ops, x, y, z: ops.where(x > y, y, z),
    "where a number": lambda ops, x, y: ops.where(y >= 0.5, x, 0.0),
    "where by logic": lambda ops, x, y, z: ops.where(((x < y) | (y <= z)) & ~(z == 0.0) | (x != z), x, y),
    "clip": lambda ops, x, y, z: ops.clip(x + (y - y) + (z - z), y, z),  # torch: x has the shape of the result
    "clip by numbers": lambda ops, x: ops.clip(x, -0.5, 1.0),
    "negative": lambda ops, x: -x,
    "exp": lambda ops, x: ops.exp(x),
    "log": lambda ops, x: ops.log(x * x + 0.3),
    "sqrt": lambda ops, x: ops.sqrt(x * x + 0.3),
    "square": lambda ops, x: ops.square(x),
    "absolute": lambda ops, x: ops.absolute(x),
    "tanh": lambda ops, x: ops.tanh(x),
    "sigmoid": lambda ops, x: ops.sigmoid(x),
    "relu": lambda ops, x: ops.relu(x),
    "elu": lambda ops, x: ops.elu(x),
    "silu": lambda ops, x: ops.silu(x),
    "gelu": lambda ops, x: ops.gelu(x),
    "softplus": lambda ops, x: ops.softplus(x),
    "cos": lambda ops, x: ops.cos(x),
    "sin": lambda ops, x: ops.sin(x),
    "erf": lambda ops, x: ops.erf(x),
    "lgamma": lambda ops, x: ops.lgamma(x * x + 0.3),
    "digamma": lambda ops, x: ops.digamma(x * x + 0.3),
    "powers": lambda ops, x: x**3 - 2 * x**5 + (x**2 + 1) ** -2 + (x**2 + 1) ** 0.5,
    "flag": lambda ops, x, y: ops.flag(x > y) * x + ops.flag(ops.isfinite(y)) * y,
    "numbers": lambda ops, x: (3 - 2 * x) / 2 + 1 / (x * x + 1),
    "constants": lambda ops, x: ops.zeros_like(x) + ops.ones_like(x) * x,
    "stop_gradient": lambda ops, x, y: ops.stop_gradient(x) * y + ops.stop_gradient(ops.exp(x)) * x + ops.exp(x),
}  # fmt: skip
"""Operations entry by entry, of arguments that are broadcast."""
ALONG: dict[str, Callable[..., Any]] = {
    "sum": lambda ops, x, axis: ops.sum(x, axis),
    "mean": lambda ops, x, axis: ops.mean(x, axis),
    "max": lambda ops, x, axis: ops.max(x, axis),
    "logsumexp": lambda ops, x, axis: ops.logsumexp(x, axis),
    "softmax": lambda ops, x, axis: ops.softmax(x, axis),
    "log_softmax": lambda ops, x, axis: ops.log_softmax(x, axis),
    "concat": lambda ops, x, axis: ops.concat([x, ops.exp(x), x], axis),
    "stack": lambda ops, x, axis: ops.stack([x, x * x], axis),
    "argmax": lambda ops, x, axis: ops.take(x, ops.argmax(x, -1)),
    "unstack": lambda ops, x, axis: ops.unstack(x)[0] * ops.unstack(x)[-1],
    "one_hot": lambda ops, x, axis: ops.one_hot(ops.argmax(x, axis), x.shape[axis])[..., 0] * ops.sum(x, axis),
    "split": lambda ops, x, axis: ops.split(x, [1, x.shape[-1] - 1])[0] * x,
}  # fmt: skip
"""Operations along an axis."""
WITHOUT_RULE = {
    "input", "weights", "constant", "array", "greater", "greater_equal", "equal", "not_equal", "and", "or", "not",
    "isfinite", "from_bytes", "from_pixels", "argmax", "one_hot", "trigamma", "put", "scatter", "linear_inputs",
    "linear_weight", "patches_gradient", "absolute_gradient", "minimum_gradient", "tanh_gradient", "sigmoid_gradient",
    "relu_gradient", "elu_gradient",
}  # fmt: skip
"""Operations without arguments, without a float result, or of gradients only."""


SHAPES = st.lists(st.integers(1, 3), min_size=1, max_size=4).map(tuple)


def numbers(rng: np.random.Generator, shape: tuple[int, ...], ties: bool) -> np.ndarray:
    return rng.integers(-1, 3, shape) * 0.5 if ties else rng.standard_normal(shape)


@st.composite
def arguments(draw: st.DrawFn, count: int) -> tuple[list[np.ndarray], list[Callable[[Any], Any]]]:
    """Arrays, and views of them, or of their doubles, whose shapes are broadcast to one."""
    shape = draw(SHAPES)
    rng, ties = np.random.default_rng(draw(st.integers(0, 2**16))), draw(st.booleans())
    arrays, views = [], []
    for _ in range(count):
        own = tuple(1 if draw(st.integers(0, 3)) == 0 else n for n in shape)[draw(st.integers(0, count > 1)) :]
        kind = draw(st.sampled_from(["whole", "moved", "sliced", "repeated"])) if own else "whole"
        axis = draw(st.integers(0, max(len(own) - 1, 0)))
        array, view = strided(kind, own, axis)
        arrays.append(numbers(rng, array, ties))
        views.append(doubled(view) if draw(st.booleans()) else view)
    return arrays, views


def doubled(view: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda x: view(x * 2.0)


def strided(kind: str, shape: tuple[int, ...], axis: int) -> tuple[tuple[int, ...], Callable[[Any], Any]]:
    """Return the shape of an array, and a function whose result is a view of it of another shape."""
    if kind == "moved":
        first = (shape[axis], *shape[:axis], *shape[axis + 1 :])
        return first, lambda x: moved(x, 0, axis)
    before = (slice(None),) * axis
    if kind == "sliced":
        longer = (*shape[:axis], 2 * shape[axis] + 1, *shape[axis + 1 :])
        return longer, lambda x: x[(*before, slice(1, None, 2))]
    if kind == "repeated":
        shorter = (*shape[:axis], 1, *shape[axis + 1 :])
        return shorter, lambda x: x.broadcast(shape) if isinstance(x, Symbol) else x.expand(shape)
    return shape, lambda x: x


@pytest.mark.parametrize("name", ELEMENT)
def test_entry_by_entry(name):
    function = ELEMENT[name]

    @settings(derandomize=True, deadline=None, max_examples=20)
    @given(arguments(len(inspect.signature(function).parameters) - 1))
    def check(given):
        arrays, views = given
        Leaves(*arrays).check(function, views)

    check()


@pytest.mark.parametrize("name", ALONG)
def test_along_an_axis(name):
    function = ALONG[name]

    @settings(derandomize=True, deadline=None, max_examples=20)
    @given(arguments(1), st.data())
    def check(given, data):
        (array,), (view,) = given
        axis = data.draw(st.integers(-array.ndim, array.ndim - 1))
        Leaves(array).check(lambda ops, x: function(ops, x, axis), [view])

    check()


def test_take_selects_by_any_index():
    index = np.array([[2, 0, 2], [1, 1, 0]])
    leaves = Leaves(np.random.default_rng(0).standard_normal((2, 3, 4)))
    leaves.check(lambda ops, x, index: ops.take(x, index) * ops.take(ops.exp(x), index), index=index)


@pytest.mark.parametrize(("agents", "rows"), [(1, 1), (1, 7), (3, 4)])
def test_linear_layers(agents, rows):
    """Inputs that are transposed, joined, repeated for all agents."""
    rng = np.random.default_rng(0)
    x, weight, bias = rng.standard_normal((rows, agents, 4)), rng.standard_normal((agents, 4, 3)), np.ones((agents, 3))
    second = rng.standard_normal((agents, 3, 4)), np.zeros((agents, 4))
    leaves = Leaves(x, weight, bias, *second, rng.standard_normal((1, rows, 3)))

    def network(ops: Any, x: Any, weight: Any, bias: Any, more: Any, end: Any, shared: Any) -> Any:
        hidden = ops.tanh(ops.linear(moved(x, 0, 1), weight, bias))
        other = ops.linear(ops.sigmoid(shared).broadcast(hidden.shape) if isinstance(shared, Symbol)
                           else ops.sigmoid(shared).expand(hidden.shape), more, end)  # fmt: skip
        parts = [hidden[..., :1], ops.stop_gradient(hidden[..., 1:2]), hidden[..., 1:2], other[..., :1]]
        return ops.linear(ops.concat(parts, -1), weight, bias) + ops.linear(hidden, more, end)[..., :3]

    leaves.check(network)


CONVOLVED = [((1, 2, 3, 9, 8), (4, 3, 2), 2), ((2, 3, 1, 5, 5), (5, 1, 4), 1), ((2, 1, 2, 7, 6), (3, 4, 4), 3)]


@pytest.mark.parametrize(("images", "kernel", "stride"), CONVOLVED)
def test_convolutions(images, kernel, stride):
    """Pixels that several patches have, or none; the gradient of the images, the weights and the biases."""
    rng, (outputs, down, along) = np.random.default_rng(0), kernel
    x, weight = rng.standard_normal(images), rng.standard_normal((images[0], outputs, images[2], down, along))
    leaves = Leaves(x, weight, rng.standard_normal((images[0], outputs)))
    leaves.check(lambda ops, x, weight, bias: ops.convolve(ops.exp(x), weight, bias, stride, ops.elu))
    twice = Leaves(x, weight, rng.standard_normal((images[0], outputs)))
    twice.check(
        lambda ops, x, weight, bias: ops.convolve(ops.tanh(x), ops.sigmoid(weight), ops.exp(bias), stride, ops.tanh)
    )


@pytest.mark.parametrize("order", ["none", "last", "first", "frames, last", "frames, first"])
def test_images_of_any_order_of_axes(order):
    shape = (2, 3, 5, 4) if order == "none" else (2, 3, 5, 4, 2, 3) if order.startswith("frames") else (2, 3, 5, 4, 2)
    pixels, low = np.random.default_rng(0).integers(0, 256, shape, np.uint8), np.arange(shape[-1], dtype=np.float32)
    leaves = Leaves(np.ones(shape))
    leaves.check(lambda ops, x, image: ops.channels_first(x * ops.scaled_image(image, 3.0, 50.0), order), image=pixels)
    leaves.check(lambda ops, x, image: ops.flatten(x * ops.scaled_image(image, low, low + 2)), image=pixels)


@pytest.mark.parametrize("shared", ["the weight", "neither"])
def test_layers_whose_weights_are_no_parameters_in_order(shared):
    rng = np.random.default_rng(0)
    leaves = Leaves(rng.standard_normal((2, 5, 3)), rng.standard_normal((2, 4, 3)), rng.standard_normal((2, 4)))

    def layer(ops: Any, x: Any, weight: Any, bias: Any) -> Any:
        matrix = moved(weight, 1, 2) if shared == "the weight" else ops.exp(moved(weight, 1, 2))
        return ops.linear(x, matrix, bias if shared == "the weight" else ops.sigmoid(bias))

    leaves.check(layer)


def test_a_gradient_through_a_copy():
    Leaves(np.arange(6.0).reshape(2, 3)).check(lambda ops, x: ops.square(moved(ops.exp(x), 0, 1).reshape(-1)))


def test_every_operation_has_a_tested_rule_or_needs_none():
    tested = {"take", "copy", "patches"} | {name.partition(" ")[0] for name in (*ELEMENT, *ALONG)}
    assert {*RULES, "concat", "linear", *WITHOUT_RULE} == set(OPERATIONS) and not WITHOUT_RULE & set(RULES)
    assert set(RULES) <= tested


def test_the_reference_executor_knows_every_operation():
    assert {*ELEMENTWISE, *OTHERS, "input", "weights"} == set(OPERATIONS)
