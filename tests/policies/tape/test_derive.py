"""Reverse mode: views that overlap, constants of the loss, layers, and gradients by hand."""

from typing import Any

import numpy as np
import pytest

from marltrain.policies.tape import ops
from marltrain.policies.tape.derive import derive
from marltrain.policies.tape.recording import AddedGradient, LayerGradient, Recording
from marltrain.policies.tape.symbols import RecordError, Symbol, Tape
from tests.policies.tape.evaluate import evaluate
from tests.policies.tape.leaves import Leaves, moved


def some(*shape: int) -> np.ndarray:
    return np.random.default_rng(len(shape)).standard_normal(shape)


@pytest.mark.parametrize(
    ("function", "cover"),
    [
        (lambda ops, x: x[:, :2] * x[:, 1:], "several"),
        (lambda ops, x: x[:, :2] * 3.0, "at most one"),
        (lambda ops, x: ops.concat([x[:, 1:], ops.exp(x[:, :1])], 1), "one"),
        (lambda ops, x: moved(x, 0, 1)[1:], "at most one"),
        (lambda ops, x: x[:, ::2] * x[:, :1], "several"),
        (lambda ops, x: x[0] * x[1] + x[1], "one"),
        (lambda ops, x: moved(x, 0, 1) * 2.0, "one"),
    ],
)  # fmt: skip
def test_gradients_of_partial_views_are_scattered(function, cover):
    recording = Leaves(some(2, 3)).check(lambda ops, x: function(ops, ops.tanh(x)))
    (scatter,) = [node for node in recording.tape.nodes if node.op == "scatter"]
    assert scatter.attrs[0] == cover


@pytest.mark.parametrize("function", [
    lambda ops, x: x * x[:, :1] + x[0] + x[:, None, 1],
    lambda ops, x: x.reshape(-1)[::2] + moved(x, 0, 1).reshape(-1)[1::2] * x[0],
    lambda ops, x: ops.sum(x[None] * x[:, None], 0) * ops.max(x, -1)[:, None],
])  # fmt: skip
def test_whole_partial_and_repeated_views_add_up(function):
    Leaves(some(2, 3)).check(lambda ops, x: function(ops, ops.sigmoid(x)))
    Leaves(some(2, 3)).check(function)  # views of the weights themselves


def test_views_of_weights_are_added_without_repetition():
    recording = Leaves(some(3)).check(lambda ops, x: x[None] * ops.tensor_like(x, [[1.0], [2.0]]))
    (part,) = recording.gradients
    assert isinstance(part, AddedGradient) and part.view.shape == part.gradient.shape == (1, 3)


def test_constants_of_the_loss_have_no_gradient():
    def function(ops: Any, x: Any, y: Any) -> Any:
        fixed = ops.stop_gradient(ops.exp(x))
        return fixed * y + ops.stop_gradient(fixed[0] * y) + ops.exp(x)[1:] * ops.stop_gradient(y)[:1]

    Leaves(some(2, 3), some(2, 3)).check(function)
    leaves = Leaves(some(2))
    assert derive(ops.stop_gradient(ops.exp(leaves.symbols[0])), {"net": leaves.leaf}) == ()


def test_what_no_gradient_records_is_constant():
    leaves = Leaves(some(2))
    (x,) = leaves.symbols
    with leaves.tape.no_gradient():
        fixed = ops.exp(x)
    assert fixed.detached and not ops.exp(x).detached and fixed.node is ops.exp(x).node
    (part,) = derive(fixed * x, {"net": leaves.leaf})
    assert isinstance(part, AddedGradient) and part.gradient.node is fixed.node


def test_only_the_named_weights_get_a_gradient():
    tape = Tape()
    one, other = (tape.node("weights", (), (1, 2), "float", (name,)) for name in ("one", "other"))
    loss = ops.exp(one * other)
    assert {part.network for part in derive(loss, {"one": one})} == {"one"}
    assert {part.network for part in derive(loss, {"one": one, "other": other})} == {"one", "other"}


@pytest.mark.parametrize("function", [
    lambda ops, x: ops.where(x > 0, ops.log(x), ops.sqrt(ops.absolute(x))),
    lambda ops, x: ops.where(x > 0, x, 1.0 / x),
    lambda ops, x: ops.where(x > 0, ops.exp(x * 200.0), x),
])  # fmt: skip
def test_numbers_that_are_not_finite_as_torch_has_them(function):
    """NaN and infinities of the branch that is not taken reach the gradient exactly where they do in torch."""
    leaves = Leaves(np.array([-1.0, 0.0, 0.5, 2.0]))
    (recording,) = [leaves.check(function)]
    assert recording.outputs["made"].shape == (4,)


def test_a_gradient_of_zero_is_not_recorded():
    leaves = Leaves(some(2))
    (x,) = leaves.symbols
    before = len(leaves.tape.nodes)
    assert derive(ops.flag(x > 0.0), {"net": leaves.leaf}) == ()
    assert not any(node.op == "multiply" for node in leaves.tape.nodes[before:])


def test_inputs_of_joined_parts_are_computed_only_where_needed():
    leaves = Leaves(some(1, 5, 2), some(1, 2))
    weight, bias = leaves.symbols
    column = leaves.tape.input("x", (1, 4, 3))
    own = leaves.tape.node("weights", (), (1, 8), "float", ("other",))
    joined = ops.concat([column, own.reshape(1, 4, 2)], -1)
    found = derive(ops.linear(joined, weight, bias), {"net": leaves.leaf, "other": own})
    (through,) = [node for node in leaves.tape.nodes if node.op == "linear_inputs"]
    assert through.shape == (1, 4, 2) and through.args[1].shape == (1, 2, 2)
    assert sorted(part.network for part in found) == ["net", "other"]


def test_the_gradient_of_a_weight_that_is_computed_is_a_product():
    leaves = Leaves(some(1, 3, 2), some(1, 2))
    weight, bias = leaves.symbols
    x = leaves.tape.input("x", (1, 4, 3))
    for given, products in ((ops.stop_gradient(weight * 2.0), 0), (weight, 0), (weight * 2.0, 1)):
        assert derive(ops.linear(x, given, bias), {"net": leaves.leaf})
        assert sum(node.op == "linear_weight" for node in leaves.tape.nodes) == products


def test_two_layers_by_hand():
    """Loss (v relu(w x + b) - 1)^2 for x = 2, w = (1, -1), b = (0.5, 0), v = (2, 3): hidden (2.5, 0), error 4."""
    tape = Tape()
    leaf = tape.node("weights", (), (1, 7), "float", ("net",))
    first, bias, second, end = ops.split(leaf, [2, 2, 2, 1])
    x = tape.input("x", (1, 1, 1))
    hidden = ops.relu(ops.linear(x, first.reshape(1, 1, 2), bias))
    loss = ops.square(ops.linear(hidden, second.reshape(1, 2, 1), end) - 1.0)
    found = derive(loss, {"net": leaf})
    assert [type(part) for part in found] == [LayerGradient, LayerGradient]
    weights = np.array([[1, -1, 0.5, 0, 2, 3, 0]], np.float32)
    outputs, gradients = evaluate(Recording(tape, {"loss": loss}, found), {"x": np.full((1, 1, 1), 2.0)},
                                  {"net": weights})  # fmt: skip
    assert outputs["loss"].item() == 16.0
    # d loss / d output = 8; the second unit is at 0, where relu has no gradient
    np.testing.assert_array_equal(gradients["net"], [[32, 0, 16, 0, 20, 0, 8]])


def test_a_team_value_by_hand():
    """Loss (max(a, b) - 2)^2 with a tie a = b = 1: each gets half of the slope -2."""
    leaves = Leaves(np.array([1.0]), np.array([1.0]))
    a, b = leaves.symbols
    for best in (ops.maximum(a, b), ops.max(ops.stack([a, b], -1), -1)):
        loss = ops.square(best - 2.0)
        recording = Recording(leaves.tape, {}, derive(loss, {"net": leaves.leaf}))
        np.testing.assert_array_equal(evaluate(recording, {}, {"net": leaves.flat})[1]["net"], [[-1, -1]])


def test_operations_without_a_rule_are_named():
    leaves = Leaves(some(2))
    made = leaves.tape.node("trigamma", leaves.symbols, (2,))
    assert isinstance(made, Symbol)
    with pytest.raises(RecordError, match="trigamma"):
        derive(made, {"net": leaves.leaf})
