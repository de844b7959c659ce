"""Networks in compiled code: by hand, against autograd in float64, and nothing read or written beside its place."""

import math
from itertools import pairwise

import numpy as np
import pytest
import torch
from gymnasium import spaces

from marltrain.core.layout import Layout
from marltrain.jit.views import address_of
from marltrain.policies.compiled.acting import ACT
from marltrain.policies.compiled.layers import RELU, TANH, layer_entry
from marltrain.policies.compiled.network import (
    ACTIVATIONS,
    activation_backward,
    add_rows,
    add_transpose,
    add_weight_gradient,
    backward,
    forward,
    largest,
    transpose,
    transpose_weights,
    widths_of,
    write_network,
)
from marltrain.policies.networks.specs import MLP, Head, NetworkDefinition, Plan
from tests.policies.compiled.test_layers import term_by_term

EDGE = 40
"""Numbers watched on either side: more than the widest vector holds."""
UNTOUCHED = 77.0


class Place:
    """Numbers, float32 as a rule, in the midst of others, as compiled code is given them."""

    def __init__(self, values, around, kind=np.float32):
        values = np.asarray(values, kind)
        self._all = np.full(values.size + 2 * EDGE, around, kind)
        self.numbers = self._all[EDGE : EDGE + values.size].reshape(values.shape)
        self.numbers[...] = values
        self.at = address_of(self.numbers)
        self._before = self._all.copy()

    def assert_kept(self):
        """Nothing was written beside its place."""
        for part in (slice(EDGE), slice(EDGE + self.numbers.size, None)):
            np.testing.assert_array_equal(self._all[part], self._before[part])

    def assert_unchanged(self):
        """Nothing was written at all."""
        np.testing.assert_array_equal(self._all, self._before)


def given(values):
    """What is read, amid NaN: a result would show that one of them was read."""
    return Place(values, np.nan)


def room(*shape):
    """What is written: NaN until it is, amid numbers that must stay."""
    return Place(np.full(shape, np.nan), UNTOUCHED)


def record_of(plan):
    """A record of a network.

    It has the fields of ACT, as where the code is used: of two records of which one begins as the other, numba may take
    the one for the other.
    """
    record = np.zeros(1, ACT)[0]
    write_network(record, plan)
    return record


class Net:
    """A network with weights, a batch of rows and exactly the room that its passes take."""

    def __init__(self, hidden, activation, weights, x, outputs):
        rows, inputs = np.shape(x)
        layout = Layout(spaces.Box(-9, 9, (inputs,), np.float32))
        self.plan = Plan(NetworkDefinition(MLP(hidden, activation), [Head(outputs)], layout))
        self.record = record_of(self.plan)
        self.rows, widths = rows, [inputs, *hidden, outputs]
        most = max(max(a * b, rows * a) for a, b in pairwise(widths))
        size = sum(a * b + b for a, b in pairwise(widths))
        self.x, self.weights, self.zeros = given(x), given(weights), given(np.zeros(max(widths)))
        self.activations, self.gradient, self.scratch = room(rows * sum(widths[1:])), room(size), room(most)
        self.transposed = room(size)
        assert self.weights.numbers.size == size

    def forward(self):
        """The outputs [rows, choices]; the last layer's place is where they are said to be."""
        at = forward(self.record, self.x.at, self.rows, self.weights.at, self.activations.at)
        first = (int(at) - self.activations.at) // 4
        outputs = self.activations.numbers[first:]
        assert outputs.size == self.rows * self.record["choices"]
        self.watch()
        return outputs.reshape(self.rows, -1)

    def backward(self, slopes, before=0.0):
        """The gradient [size] by what `forward` left, added to what was there before."""
        self.forward()[...] = slopes
        self.gradient.numbers[...] = before
        transpose_weights(self.record, self.weights.at, self.transposed.at)
        work = self.activations.at, self.gradient.at, self.zeros.at, self.scratch.at
        backward(self.record, self.x.at, self.rows, self.transposed.at, *work)
        self.watch()
        return self.gradient.numbers

    def watch(self):
        for place in (self.activations, self.gradient, self.scratch, self.transposed):
            place.assert_kept()
        for place in (self.x, self.weights, self.zeros):
            place.assert_unchanged()


def leaf_of(weights):
    """Weights in float64, of which gradients are taken."""
    return torch.tensor(np.asarray(weights, np.float64), requires_grad=True)


def outputs_of(plan, leaf, x):
    """What a network gives, in float64."""
    pieces = [piece.view(p.shape) for piece, p in zip(leaf.split([p.size for p in plan.parameters]), plan.parameters,
                                                      strict=True)]  # fmt: skip
    y = torch.tensor(np.asarray(x, np.float64))
    for i in range(0, len(pieces), 2):
        y = y @ pieces[i] + pieces[i + 1]
        if i < len(pieces) - 2:
            y = getattr(torch, plan.spec.activation)(y)
    return y


def by_autograd(plan, weights, x, slopes):
    """Outputs, and the gradient of sum(outputs * slopes) by the weights, in float64."""
    leaf = leaf_of(weights)
    y = outputs_of(plan, leaf, x)
    (gradient,) = torch.autograd.grad((y * torch.tensor(np.asarray(slopes, np.float64))).sum(), leaf)
    return y.detach().numpy(), gradient.numpy()


# Told -----------------------------------------------------------------------------------------------------------------


def test_record_of_a_network():
    net = Net((3, 4), "relu", np.zeros(5 * 3 + 3 + 3 * 4 + 4 + 4 * 7 + 7), np.zeros((1, 5)), 7)
    record = net.record
    assert tuple(record[["layers", "activation", "width", "choices", "size"]]) == (
        3,
        RELU,
        5,
        7,
        69,
    )
    assert record["layer"] == layer_entry()
    assert record["outputs"].tolist() == [3, 4, 7, 0, 0, 0, 0, 0, 0]
    assert record["weight_at"][:3].tolist() == [0, 18, 34]
    assert record["bias_at"][:3].tolist() == [15, 30, 62]
    assert widths_of(net.plan) == [3, 4, 7]


def test_record_of_a_network_without_hidden_layers():
    net = Net((), "tanh", np.zeros(6), np.zeros((1, 5)), 1)
    record = net.record
    assert tuple(record[["layers", "activation", "width", "choices", "size"]]) == (
        1,
        TANH,
        5,
        1,
        6,
    )
    assert (record["outputs"][0], record["weight_at"][0], record["bias_at"][0]) == (1, 0, 5)


def test_activations_have_the_numbers_of_layers():
    assert ACTIVATIONS == {"tanh": TANH, "relu": RELU}


# By hand --------------------------------------------------------------------------------------------------------------


def relu_net():
    """relu(a - b) and relu(b - a + 1); from these (h, i): 2h, i + 1 and 2 - h - i."""
    return Net((2,), "relu", [1, -1, -1, 1, 0, 1, 2, 0, -1, 0, 1, -1, 0, 1, 2], [[3, 1], [1, 3], [1, 1]], 3)


def test_forward_by_hand():
    net = relu_net()
    assert net.forward().tolist() == [[4, 1, 0], [0, 4, -1], [0, 2, 1]]
    assert net.activations.numbers[:6].tolist() == [2, 0, 0, 3, 0, 1]  # what the hidden layer gives is left there


def test_backward_by_hand():
    """Slopes by what relu gives: (1, -1), (-1, -2), (6, 1); of these it passes (1, 0), (0, -2), (0, 1)."""
    net = relu_net()
    gradient = net.backward([[1, 0, 1], [0, -1, 1], [3, 1, 0]])
    first = [3 * 1, 1 * -2 + 1 * 1, 1 * 1, 3 * -2 + 1 * 1, 1, -2 + 1]
    last = [2 * 1, 0, 2 * 1, 1 * 3, 3 * -1 + 1 * 1, 3 * 1, 1 + 3, -1 + 1, 1 + 1]
    assert gradient.tolist() == [*first, *last]


def test_tanh_forward_and_backward_by_hand():
    """2 tanh(x / 2) + 1 at 1 and 0, with slopes 3 and -1."""
    net = Net((1,), "tanh", [0.5, 0, 2, 1], [[1], [0]], 1)
    known = 0.46211716  # tanh(0.5)
    np.testing.assert_allclose(net.forward(), [[1 + 2 * known], [1.0]], rtol=1e-6)
    passed = 6 * (1 - known**2)
    expected = np.array([passed, passed - 2, 3 * known, 3 - 1])
    np.testing.assert_allclose(net.backward([[3], [-1]]), expected, rtol=1e-6)


def test_one_layer_by_hand():
    """x @ w + b of five inputs and one output, three rows."""
    net = Net((), "relu", [1, 2, 3, 4, 5, -6], [[1, 0, 0, 0, 1], [0, 1, 1, 0, 0], [0, 0, 0, -1, 0]], 1)
    assert net.forward().tolist() == [[0], [-1], [-10]]
    assert net.backward([[1], [2], [-3]]).tolist() == [1, 2, 2, 3, 1, 0]


# Against autograd -----------------------------------------------------------------------------------------------------

EIGHT = (3,) * 8


@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("hidden", [(), (3,), (5, 64), (64, 5), EIGHT], ids=str)
@pytest.mark.parametrize(("rows", "inputs"), [(3, 5), (1, 1), (33, 18)])
@pytest.mark.parametrize("outputs", [1, 5, 7])
def test_forward_and_backward_are_those_of_autograd(rows, inputs, hidden, outputs, activation):
    """The tolerance is for sums of some dozen float32, passed through nine layers at most."""
    rng = np.random.default_rng([rows, inputs, outputs, len(hidden)])
    widths = [inputs, *hidden, outputs]
    weights = np.concatenate([
        np.concatenate([rng.normal(0.3, size=a * b) / math.sqrt(a / 2), abs(rng.normal(size=b))])
        for a, b in pairwise(widths)
    ]).astype(np.float32)  # fmt: skip
    x, slopes = (rng.normal(size=(rows, width)).astype(np.float32) for width in (inputs, outputs))
    net = Net(hidden, activation, weights, x, outputs)
    expected, gradient = by_autograd(net.plan, weights, x, slopes)
    assert np.count_nonzero(gradient) > gradient.size / 4, "relu passes next to nothing"
    for result, exact in ((net.forward().copy(), expected), (net.backward(slopes), gradient)):
        np.testing.assert_allclose(result, exact, rtol=0, atol=2e-6 * max(1, abs(exact).max()))


@pytest.mark.parametrize(("hidden", "outputs"), [((), 1), ((5,), 1), ((64, 9), 7)], ids=str)
def test_gradients_of_parts_of_the_rows_add_up(hidden, outputs):
    """To that of all, whatever was there before: tolerances are for float32 sums in another order."""
    rng = np.random.default_rng(0)
    widths = [5, *hidden, outputs]
    weights = rng.normal(size=sum(a * b + b for a, b in pairwise(widths))).astype(np.float32) / 4
    x, slopes = (rng.normal(size=(13, width)).astype(np.float32) for width in (5, outputs))
    every = Net(hidden, "tanh", weights, x, outputs).backward(slopes)
    result = np.float32(1.0)
    for part in (slice(0, 6), slice(6, 7), slice(7, 13)):
        result = Net(hidden, "tanh", weights, x[part], outputs).backward(slopes[part], result).copy()
    assert abs(every).max() > 1
    np.testing.assert_allclose(result, every + 1, rtol=0, atol=5e-6)


def test_what_is_left_from_before_does_not_matter():
    """The second time the work arrays hold numbers: results are the same bits."""
    rng = np.random.default_rng(0)
    net = Net((5, 64), "tanh", rng.normal(size=5 * 5 + 5 + 5 * 64 + 64 + 64 * 7 + 7), rng.normal(size=(3, 5)), 7)
    slopes = rng.normal(size=(3, 7))
    first = net.backward(slopes).copy()
    np.testing.assert_array_equal(net.backward(slopes), first)


# Parts ----------------------------------------------------------------------------------------------------------------


def test_largest():
    assert (largest(3, 5, 7), largest(10, 5, 7), largest(10, 7, 5), largest(1, 1, 1)) == (35, 50, 70, 1)


@pytest.mark.parametrize(("rows", "columns"), [(1, 1), (1, 7), (5, 1), (3, 5), (7, 64)])
def test_turn(rows, columns):
    source, result = given(np.arange(rows * columns).reshape(rows, columns)), room(columns, rows)
    transpose(source.at, rows, columns, result.at)
    np.testing.assert_array_equal(result.numbers, source.numbers.T)
    result.assert_kept()
    source.assert_unchanged()


@pytest.mark.parametrize(("rows", "columns"), [(1, 1), (1, 7), (5, 1), (3, 5), (7, 64)])
def test_add_turned(rows, columns):
    source, result = given(np.arange(rows * columns).reshape(rows, columns)), Place(np.ones((columns, rows)), UNTOUCHED)
    add_transpose(source.at, rows, columns, result.at)
    np.testing.assert_array_equal(result.numbers, source.numbers.T + 1)
    result.assert_kept()
    source.assert_unchanged()


def test_turned_weights_lie_where_the_weights_do():
    """Each layer's transposed, by hand; where the biases are, nothing is written."""
    net = Net((2,), "relu", range(15), np.zeros((1, 2)), 3)
    transpose_weights(net.record, net.weights.at, net.transposed.at)
    transposed = net.transposed.numbers
    assert transposed[:4].tolist() == [0, 2, 1, 3]
    assert transposed[6:12].tolist() == [6, 9, 7, 10, 8, 11]
    assert np.isnan(transposed[[4, 5, 12, 13, 14]]).all()
    net.watch()


def test_add_rows_by_hand():
    source = given([[1, 2, 3, 4, 5], [10, 20, 30, 40, 50], [-1, 0, 0, 0, -5]])
    result = Place([0, 100, 0, 0, -50], UNTOUCHED)
    add_rows(source.at, 3, 5, result.at)
    assert result.numbers.tolist() == [10, 122, 33, 44, 0]
    result.assert_kept()
    source.assert_unchanged()


@pytest.mark.parametrize(("rows", "columns"), [(1, 1), (1, 7), (33, 1), (3, 64)])
def test_add_rows(rows, columns):
    source, result = given(np.random.default_rng(rows).normal(size=(rows, columns))), Place(np.ones(columns), UNTOUCHED)
    add_rows(source.at, rows, columns, result.at)
    np.testing.assert_allclose(result.numbers, source.numbers.astype(np.float64).sum(0) + 1, atol=1e-5)
    result.assert_kept()


@pytest.mark.parametrize("size", [1, 7, 8, 17])
def test_through(size):
    """Relu's slope is 1 above 0, and 0 at 0 and where it was below; that of tanh is 1 - y^2."""
    results = np.resize([0, 0.5, -0.0, 2, 1e-30], size)
    slopes = np.resize([3, -4, 5, 6, 7, -1, 2], size)
    y, passed = Place(results, UNTOUCHED), given(slopes)
    activation_backward(RELU, y.at, passed.at, size)
    np.testing.assert_array_equal(y.numbers, np.where(results > 0, slopes, 0))
    y.assert_kept()
    passed.assert_unchanged()
    results = np.resize([0, 0.5, -0.25, 1, -1], size)
    y = Place(results, UNTOUCHED)
    activation_backward(TANH, y.at, passed.at, size)
    np.testing.assert_array_equal(y.numbers, slopes * (1 - results**2))
    y.assert_kept()
    passed.assert_unchanged()


ANY = relu_net()
"""A record that tells where layers are computed; which network it is of does not matter to its parts."""
NARROW = [(3, 5, 1), (3, 5, 4), (1, 2, 1), (33, 64, 5), (7, 9, 7)]
BROAD = [(3, 5, 7), (3, 5, 5), (3, 9, 8), (3, 64, 8), (1, 1, 1), (7, 1, 3), (33, 18, 64), (64, 5, 33)]


@pytest.mark.parametrize(("rows", "inputs", "outputs"), NARROW + BROAD)
def test_weight_slopes_are_sums_in_the_order_of_the_rows(rows, inputs, outputs):
    """Whichever way they are computed, to the last bit; in no more room than said."""
    rng = np.random.default_rng([rows, inputs, outputs])
    x, slopes = given(rng.normal(size=(rows, inputs))), given(rng.normal(size=(rows, outputs)))
    before = rng.normal(size=(inputs, outputs)).astype(np.float32)
    result, scratch = Place(before, UNTOUCHED), room(largest(rows, inputs, outputs))
    zeros = given(np.zeros(max(inputs, outputs)))
    add_weight_gradient(ANY.record, x.at, rows, inputs, slopes.at, outputs, result.at, zeros.at, scratch.at)
    if (rows, inputs, outputs) in NARROW:  # they are added up apart
        expected = before + term_by_term(x.numbers.T, slopes.numbers, zeros.numbers[:outputs])
    else:
        expected = term_by_term(x.numbers.T, slopes.numbers, before)
    np.testing.assert_array_equal(result.numbers, expected)
    for place in (result, scratch):
        place.assert_kept()
    for place in (x, slopes, zeros):
        place.assert_unchanged()


def test_weight_slopes_by_hand():
    """Narrow: two inputs and one output. Broad: one input and two outputs."""
    for x, slopes, expected in (
        ([[1, 2], [3, 4], [5, 6]], [[1], [0], [-2]], [[100 + 1 - 10], [100 + 2 - 12]]),
        ([[1], [3], [5]], [[1, 2], [0, 1], [-2, 0]], [[100 + 1 - 10, 100 + 2 + 3]]),
    ):
        left, right, zeros, scratch = given(x), given(slopes), given([0, 0]), room(6)
        result = Place(np.full(np.shape(expected), 100), UNTOUCHED)
        add_weight_gradient(
            ANY.record, left.at, 3, len(x[0]), right.at, len(slopes[0]), result.at, zeros.at, scratch.at
        )
        assert result.numbers.tolist() == expected
