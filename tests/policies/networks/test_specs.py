"""Network specifications: parameters and initial weights. (What they compute: backends/test_networks.py.)"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

import marltrain as mt
from marltrain.core.errors import ConfigError, SpecError
from marltrain.core.layout import Layout
from marltrain.core.seeds import generator
from marltrain.policies.backends import make_backend
from marltrain.policies.networks.default_network import default_network
from marltrain.policies.networks.parameters import LARGE, Parameter
from marltrain.policies.networks.specs import CNN, GRU, MLP, Head, NetworkDefinition, NetworkSpec, Plan, spec_from
from tests.policies.some_batches import IMAGE, VECTOR

BACKEND = make_backend("torch", "cpu")


HEAD = (Head(3),)


def wrong(value: Any) -> Any:
    """Return what a type checker would not let through."""
    return value


def network(spec, layout, heads=HEAD, agents=2):
    return BACKEND.network(
        NetworkDefinition(spec, heads, layout), [generator(k, "weights") for k in range(agents)], agents
    )


def test_initial_weights_are_orthogonal_with_their_gain_and_each_agents_own():
    net = network(MLP(hidden=(8, 8)), Layout(VECTOR), (Head(3, gain=0.01),))
    for k in range(2):
        w = net.arrays(k)
        np.testing.assert_allclose(w["hidden0.weight"] @ w["hidden0.weight"].T, 2 * np.eye(5), atol=1e-5)
        np.testing.assert_allclose(w["hidden1.weight"] @ w["hidden1.weight"].T, 2 * np.eye(8), atol=1e-5)
        np.testing.assert_allclose(w["head0.weight"].T @ w["head0.weight"], 1e-4 * np.eye(3), atol=1e-9)
        assert not w["hidden0.bias"].any()
    alone = BACKEND.network(
        NetworkDefinition(MLP(hidden=(8, 8)), (Head(3, gain=0.01),), Layout(VECTOR)), [generator(1, "weights")], 1
    )
    assert all((alone.arrays(0)[name] == net.arrays(1)[name]).all() for name in net.arrays(1))
    assert (net.arrays(0)["hidden0.weight"] != net.arrays(1)["hidden0.weight"]).all()


def test_convolutions_start_orthogonal_over_filters():
    drawn = Parameter("conv", (4, 3, 2, 2), math.sqrt(2)).draw(np.random.default_rng(0)).reshape(4, 12)
    np.testing.assert_allclose(drawn @ drawn.T, 2 * np.eye(4), atol=1e-5)


def test_descriptions_build_the_specification_again():
    for spec in (MLP(hidden=(3,), activation="relu"), CNN(filters=((2, 3, 1),))):
        assert spec_from(spec.describe()) == spec
    assert isinstance(
        Plan(NetworkDefinition(CNN(), (Head(2),), Layout(spaces.Box(0, 255, (16, 16), np.uint8)))).spec, mt.CNN
    )


def test_large_tall_arrays_start_as_by_a_decomposition():
    """Larger than LARGE by a little: the same matrix up to rounding, from the same draws."""
    rows, columns = LARGE // 128 + 1, 128
    one, other = np.random.default_rng(0), np.random.default_rng(0)
    drawn = Parameter("hidden", (rows, columns), gain=2.0).draw(one)
    q, r = np.linalg.qr(other.standard_normal((rows, columns)))
    np.testing.assert_allclose(drawn, 2.0 * q * np.sign(np.diag(r)), atol=1e-7)
    assert drawn.dtype == np.float32
    assert one.random() == other.random()
    wide = Parameter("hidden", (columns, rows), gain=2.0).draw(np.random.default_rng(0))
    np.testing.assert_array_equal(wide, drawn.T)


def test_no_array_of_a_usual_size_is_drawn_otherwise_than_by_a_decomposition():
    """To the bit: seeds give the weights that they gave. The last one is that of CNN() for 64 x 64 pixels."""
    for shape in [(5, 64), (64, 64), (64, 5), (7200, 128)]:
        drawn = Parameter("hidden", shape).draw(np.random.default_rng(0))
        q, r = np.linalg.qr(np.random.default_rng(0).standard_normal((max(shape), min(shape))))
        q = q * np.sign(np.diag(r))
        np.testing.assert_array_equal(drawn, (q if shape[0] >= shape[1] else q.T).astype(np.float32))


def pixels(*shape):
    return spaces.Box(0, 255, shape, np.uint8)


@pytest.mark.parametrize(
    ("space", "stack", "filters", "weights"),
    [  # weights: as docs/agents.md has them
        (pixels(5, 5, 3), 1, ((16, 3, 1), (32, 3, 1)), 9_312),
        (pixels(7, 7), 1, CNN().filters, 9_024),
        (pixels(64, 64, 3), 1, CNN().filters, 926_816),
        (pixels(8, 8, 17), 1, CNN().filters, 11_328),
        (pixels(4, 84, 84), 4, ((32, 8, 4), (64, 4, 2), (64, 3, 1)), 881_056),
        (pixels(457, 120, 3), 1, ((32, 8, 4), (64, 4, 2), (64, 3, 1), (64, 3, 2), (64, 3, 2)), 543_264),
        (spaces.Dict({"near": pixels(5, 5, 3), "far": pixels(40, 9, 3)}), 1, ((16, 3, 1), (32, 3, 1)), 751_680),
    ],
    ids=str,
)
def test_the_default_network_fits_the_size_of_the_image(space, stack, filters, weights):
    layout = Layout(space, stack)
    network = default_network(layout)
    assert isinstance(network, CNN)
    assert network.filters == filters
    assert sum(parameter.size for parameter in Plan(NetworkDefinition(network, (), layout)).parameters) == weights


def test_the_default_network_fits_any_image():
    """Plan raises SpecError for an image that is too small for the convolutions."""
    for height in range(1, 10):
        for width in (*range(1, 10), 64, 5000):
            layout = Layout(pixels(height, width))
            Plan(NetworkDefinition(default_network(layout), HEAD, layout))
    agent = mt.PPO(pixels(1, 1), spaces.Discrete(2), seed=0)
    assert agent.act(np.zeros((1, 1), np.uint8)) in (0, 1)


def test_channels_that_are_looked_for_are_not_described():
    """Runs and agents of versions without this setting then have equal descriptions."""
    assert CNN(filters=((2, 3, 1),)).describe() == {
        "type": "CNN", "hidden": (128,), "activation": "relu", "filters": ((2, 3, 1),),
    }  # fmt: skip
    specs: tuple[NetworkSpec, ...] = CNN(), CNN(channels="last"), GRU(filters=((2, 3, 1),), channels="first"), MLP()
    for spec in specs:
        assert spec_from(spec.describe()) == spec


@pytest.mark.parametrize(
    ("make", "error", "words"),
    [
        (lambda: MLP(hidden=(0,)), ConfigError, "hidden must hold integers from 1 to 65536, got (0,)"),
        (lambda: MLP(hidden=wrong((6.5,))), ConfigError, "must hold integers"),
        (lambda: MLP(activation="tanhh"), ConfigError, "Did you mean 'tanh'?"),
        (lambda: MLP(hidden=(True,)), ConfigError, "must hold integers"),
        (lambda: MLP(hidden=(10**9,)), ConfigError, "hidden must hold integers from 1 to 65536, got (1000000000,)"),
        (lambda: MLP(activation=wrong(np.array("tanh"))), ConfigError, "activation must be one of"),
        (lambda: MLP(**wrong({"hiden": (4,)})), ConfigError, "'hiden'. Did you mean 'hidden'?"),
        (lambda: CNN(filters=wrong(((1, 2),))), ConfigError, "triples"),
        (lambda: CNN(filters=wrong(None)), ConfigError, "filters must be triples"),
        (lambda: CNN(filters=wrong((1,))), ConfigError, "filters must be triples"),
        (lambda: CNN(filters=wrong((("a", 1, 1),))), ConfigError, "filters must be triples"),
        (lambda: CNN(filters=wrong(((1.5, 1, 1),))), ConfigError, "filters must be triples"),
        (lambda: CNN(channels="lst"), ConfigError, "channels must be one of auto, first, last"),
        (lambda: CNN(channels=wrong(1)), ConfigError, "channels must be one of auto, first, last"),
        (lambda: GRU(channels="frist"), ConfigError, "Did you mean 'first'?"),
        (lambda: spec_from({"type": "RNN"}), ConfigError, "MLP, CNN, GRU, LSTM, got 'RNN'"),
        (
            lambda: Plan(NetworkDefinition(CNN(filters=((2, 9, 1),)), (Head(2),), Layout(IMAGE))),
            SpecError,
            "nothing is left after number 1. It is read as 3 channels of 9 x 8. Give CNN(",
        ),
    ],
)
def test_what_is_no_specification(make, error, words):
    with pytest.raises(error) as caught:
        make()
    assert words in str(caught.value)
