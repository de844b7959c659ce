"""Networks in compiled code: by hand, against torch in float64, and nothing read or written beside its place."""

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
from marltrain.policies.compiled.network import ACTIVATIONS, forward, widths_of, write_network
from marltrain.policies.networks.specs import MLP, Head, NetworkDefinition, Plan

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
    """A network with weights, a batch of rows and exactly the room that it takes."""

    def __init__(self, hidden, activation, weights, x, outputs):
        rows, inputs = np.shape(x)
        layout = Layout(spaces.Box(-9, 9, (inputs,), np.float32))
        self.plan = Plan(NetworkDefinition(MLP(hidden, activation), [Head(outputs)], layout))
        self.record = record_of(self.plan)
        self.rows, widths = rows, [inputs, *hidden, outputs]
        self.x, self.weights, self.activations = given(x), given(weights), room(rows * sum(widths[1:]))
        assert self.weights.numbers.size == sum(a * b + b for a, b in pairwise(widths))

    def forward(self):
        """The outputs [rows, choices]; the last layer's place is where they are said to be."""
        at = forward(self.record, self.x.at, self.rows, self.weights.at, self.activations.at)
        first = (int(at) - self.activations.at) // 4
        outputs = self.activations.numbers[first:]
        assert outputs.size == self.rows * self.record["choices"]
        self.watch()
        return outputs.reshape(self.rows, -1)

    def watch(self):
        self.activations.assert_kept()
        for place in (self.x, self.weights):
            place.assert_unchanged()


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


def test_tanh_by_hand():
    """2 tanh(x / 2) + 1 at 1 and 0."""
    net = Net((1,), "tanh", [0.5, 0, 2, 1], [[1], [0]], 1)
    np.testing.assert_allclose(net.forward(), [[1 + 2 * 0.46211716], [1.0]], rtol=1e-6)


def test_one_layer_by_hand():
    """x @ w + b of five inputs and one output, three rows."""
    net = Net((), "relu", [1, 2, 3, 4, 5, -6], [[1, 0, 0, 0, 1], [0, 1, 1, 0, 0], [0, 0, 0, -1, 0]], 1)
    assert net.forward().tolist() == [[0], [-1], [-10]]


# Against torch --------------------------------------------------------------------------------------------------------

EIGHT = (3,) * 8


def outputs_of(plan, weights, x):
    """What a network gives, in float64."""
    pieces = np.split(np.asarray(weights, np.float64), np.cumsum([p.size for p in plan.parameters])[:-1])
    shaped = [torch.from_numpy(piece).view(p.shape) for piece, p in zip(pieces, plan.parameters, strict=True)]
    y = torch.tensor(np.asarray(x, np.float64))
    for i in range(0, len(shaped), 2):
        y = y @ shaped[i] + shaped[i + 1]
        if i < len(shaped) - 2:
            y = getattr(torch, plan.spec.activation)(y)
    return y.numpy()


@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("hidden", [(), (3,), (5, 64), (64, 5), EIGHT], ids=str)
@pytest.mark.parametrize(("rows", "inputs"), [(3, 5), (1, 1), (33, 18)])
@pytest.mark.parametrize("outputs", [1, 5, 7])
def test_outputs_are_those_of_torch(rows, inputs, hidden, outputs, activation):
    """The tolerance is for sums of some dozen float32, passed through nine layers at most."""
    rng = np.random.default_rng([rows, inputs, outputs, len(hidden)])
    weights = np.concatenate([
        np.concatenate([rng.normal(0.3, size=a * b) / math.sqrt(a / 2), abs(rng.normal(size=b))])
        for a, b in pairwise([inputs, *hidden, outputs])
    ]).astype(np.float32)  # fmt: skip
    x = rng.normal(size=(rows, inputs)).astype(np.float32)
    net = Net(hidden, activation, weights, x, outputs)
    exact = outputs_of(net.plan, weights, x)
    np.testing.assert_allclose(net.forward(), exact, rtol=0, atol=2e-6 * max(1, abs(exact).max()))
