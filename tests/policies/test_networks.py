"""Network specifications: parameters and initial weights. (What they compute: backends/test_networks.py.)"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

import marltrain as mt
from marltrain.errors import ConfigError, SpecError
from marltrain.layout import Layout
from marltrain.policies.backends import make_backend
from marltrain.policies.networks import CNN, MLP, Head, Parameter, Plan, spec_from
from marltrain.random import generator
from tests.policies.batches import IMAGE, VECTOR

BACKEND = make_backend("torch", "cpu")


HEAD = (Head(3),)


def wrong(value: Any) -> Any:
    """Return what a type checker would not let through."""
    return value


def network(spec, layout, heads=HEAD, agents=2):
    return BACKEND.network(spec, layout, heads, [generator(k, "weights") for k in range(agents)], agents)


def test_initial_weights_are_orthogonal_with_their_gain_and_each_agents_own():
    net = network(MLP(hidden=(8, 8)), Layout(VECTOR), (Head(3, gain=0.01),))
    for k in range(2):
        w = net.arrays(k)
        np.testing.assert_allclose(w["hidden0.weight"] @ w["hidden0.weight"].T, 2 * np.eye(5), atol=1e-5)
        np.testing.assert_allclose(w["hidden1.weight"] @ w["hidden1.weight"].T, 2 * np.eye(8), atol=1e-5)
        np.testing.assert_allclose(w["head0.weight"].T @ w["head0.weight"], 1e-4 * np.eye(3), atol=1e-9)
        assert not w["hidden0.bias"].any()
    alone = BACKEND.network(MLP(hidden=(8, 8)), Layout(VECTOR), (Head(3, gain=0.01),), [generator(1, "weights")], 1)
    assert all((alone.arrays(0)[name] == net.arrays(1)[name]).all() for name in net.names)
    assert (net.arrays(0)["hidden0.weight"] != net.arrays(1)["hidden0.weight"]).all()


def test_convolutions_start_orthogonal_over_filters():
    drawn = Parameter("conv", (4, 3, 2, 2), math.sqrt(2)).draw(np.random.default_rng(0)).reshape(4, 12)
    np.testing.assert_allclose(drawn @ drawn.T, 2 * np.eye(4), atol=1e-5)


def test_descriptions_build_the_specification_again():
    for spec in (MLP(hidden=(3,), activation="relu"), CNN(filters=((2, 3, 1),))):
        assert spec_from(spec.describe()) == spec
    assert isinstance(Plan(CNN(), Layout(spaces.Box(0, 255, (16, 16), np.uint8)), (Head(2),)).spec, mt.CNN)


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
        (lambda: spec_from({"type": "RNN"}), ConfigError, "MLP, CNN, got 'RNN'"),
        (
            lambda: Plan(CNN(filters=((2, 9, 1),)), Layout(IMAGE), (Head(2),)),
            SpecError,
            "too small for the convolutions",
        ),
    ],
)
def test_what_is_no_specification(make, error, words):
    with pytest.raises(error) as caught:
        make()
    assert words in str(caught.value)
