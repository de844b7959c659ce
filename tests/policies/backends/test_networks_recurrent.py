"""Networks over GRU and LSTM: their parts, acts step by step against sequences, and what they refuse."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

from marltrain.core.errors import ConfigError
from marltrain.core.layout import Layout
from marltrain.policies.networks.specs import CNN, GRU, LSTM, MLP, Head, NetworkDefinition, NetworkSpec, Plan, spec_from
from tests.policies.backends.both import BOTH, network, on_both
from tests.policies.some_batches import IMAGE, VECTOR, some_obs

RNG = np.random.default_rng(0)
HEADS = [Head(2, free=1), Head(1)]


def wrong(values: Any) -> Any:
    """Return the values, for arguments that type checkers refuse."""
    return values


def both_ways(backend: Any, net: Any, obs: Any, length: int) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Outputs and next carries of rows [K, length, ...] from zero: as one sequence, and act by act."""
    agents, width = len(obs), net.plan.definition.carry_width
    carry, begins = np.zeros((agents, length, width), np.float32), np.arange(length)[None].repeat(agents, 0) == 0
    acts, now = [], backend.tensor(carry[:, :1])
    with backend.no_gradient():
        whole = [backend.numpy(out) for out in net(*(backend.tensor(given) for given in (obs, carry, begins)))]
        for row in range(length):
            *outs, now = net(backend.tensor(obs[:, row : row + 1]), now)
            acts.append([backend.numpy(out) for out in (*outs, now)])
    return whole, [np.concatenate(outs, 1) for outs in zip(*acts, strict=True)]


@on_both
@pytest.mark.parametrize("spec", [GRU((6,), units=5, sequence_length=4), LSTM((), units=3, sequence_length=4)])
def test_a_sequence_equals_its_acts(backend, spec):
    net = network(backend, spec, Layout(VECTOR), HEADS)
    obs = RNG.standard_normal((2, 4, 5), np.float32)
    whole, acts = both_ways(backend, net, obs, 4)
    assert [out.shape for out in whole] == [(2, 4, 3), (2, 4, 1), (2, 4, 5 if isinstance(spec, GRU) else 6)]
    for a, b in zip(whole, acts, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)
    *outs, carry = net.in_numpy()(obs[:, :1], np.zeros_like(whole[-1][:, :1]))
    for a, b in zip([*outs, carry], whole, strict=True):
        np.testing.assert_allclose(a, b[:, :1], rtol=1e-5, atol=1e-6)
    assert not np.allclose(whole[0][:, 1:], net.in_numpy()(obs[:, 1:], np.zeros_like(whole[-1][:, 1:]))[0])


@on_both
@pytest.mark.parametrize("spec", [GRU((6,), units=5, sequence_length=4), LSTM((), units=3, sequence_length=4)])
def test_the_members_of_an_ensemble_have_carries_of_their_own(backend, spec):
    """Two agents with 3 members each: as 6 agents with one network, which get the same observations."""
    heads = [Head(2), Head(1)]
    result = backend.network(NetworkDefinition(spec, heads, Layout(VECTOR), members=3), None, 2)
    alone = backend.network(NetworkDefinition(spec, heads, Layout(VECTOR)), None, 6)
    weights = 0.5 * RNG.standard_normal(result.numbers().shape, np.float32)
    for row in range(6):
        result.write(row // 3, weights[row // 3])
        alone.write(row, weights.reshape(6, -1)[row])
    obs, width = RNG.standard_normal((2, 8, 5), np.float32), spec.cell.carry_width
    carry, begins = RNG.standard_normal((2, 8, 3, width), np.float32), np.arange(8)[None].repeat(2, 0) == 5
    assert result.plan.definition.carry_width == 3 * width
    apart = carry.transpose(0, 2, 1, 3).reshape(6, 8, width)
    for rest in ((), (begins,)):
        given = [backend.tensor(x) for x in (obs, carry.reshape(2, 8, -1), *rest)]
        *outs, after = (backend.numpy(out) for out in result(*given))
        six = [backend.tensor(x) for x in (obs.repeat(3, 0), apart, *(each.repeat(3, 0) for each in rest))]
        *expected, following = (backend.numpy(out) for out in alone(*six))
        for a, b in zip(outs, expected, strict=True):
            np.testing.assert_allclose(a, b.reshape(2, 3, *b.shape[1:]), atol=1e-5)
        np.testing.assert_allclose(
            after.reshape(2, 8, 3, width), following.reshape(2, 3, 8, width).swapaxes(1, 2), atol=1e-5
        )
    agent = result.in_numpy()(obs[1:], carry[1:].reshape(1, 8, -1), row=1)
    whole = [backend.numpy(x) for x in result(*(backend.tensor(x) for x in (obs, carry.reshape(2, 8, -1))))]
    for a, b in zip(agent, whole, strict=True):
        np.testing.assert_allclose(a[0], b[1], atol=1e-5)


@on_both
def test_images_pass_through_convolutions_first(backend):
    net = network(backend, GRU((6,), units=5, sequence_length=3, filters=((2, 3, 2),)), Layout(IMAGE), HEADS[1:])
    assert [name for name in net.arrays(0) if "cell" not in name] == [
        "image.conv0.weight", "image.conv0.bias", "hidden0.weight", "hidden0.bias", "head0.weight", "head0.bias",
    ]  # fmt: skip
    whole, acts = both_ways(backend, net, some_obs(RNG, IMAGE, (2, 3)), 3)
    np.testing.assert_allclose(whole[0], acts[0], rtol=1e-5, atol=1e-6)


def test_equal_seeds_give_equal_weights_in_both_frameworks():
    one, other = (network(backend, GRU((6,)), Layout(VECTOR), HEADS).arrays(1) for backend in BOTH.values())
    for name, array in one.items():
        np.testing.assert_array_equal(array, other[name])
    square = one["cell.carry.weight"] @ one["cell.carry.weight"].T
    np.testing.assert_allclose(square, np.eye(64), atol=1e-5)


@pytest.mark.parametrize(
    "spec", [GRU((8, 4), "relu", units=5, sequence_length=7), LSTM(filters=((2, 3, 2),)), GRU(hidden=())]
)
def test_a_specification_is_saved(spec):
    assert spec_from(spec.describe()) == spec


def test_the_same_network_without_memory():
    assert GRU((8,), "relu", units=5).without_memory == MLP((8, 5), "relu")
    assert LSTM((8,), units=5, filters=((2, 3, 2),)).without_memory == CNN((8, 5), "tanh", ((2, 3, 2),))


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: GRU(units=0), "GRU: units must be an integer from 1 to 65536, got 0"),
        (lambda: LSTM(sequence_length=1025), "LSTM: sequence_length must be an integer from 1 to 1024, got 1025"),
        (lambda: GRU(**wrong({"sequence_length": 1.5})), "sequence_length must be an integer"),
        (lambda: GRU(**wrong({"filters": ((1, 2),)})), "GRU: filters must be triples"),
        (lambda: GRU(**wrong({"filters": None})), "GRU: filters must be triples"),
        (lambda: GRU(**wrong({"unit": 3})), "'unit'. Did you mean 'units'?"),
        (lambda: Plan(NetworkDefinition(LSTM(), [Head(1)], Layout(VECTOR), noisy=0.5)), "cannot be noisy"),
    ],
)
def test_what_is_refused(make, words):
    with pytest.raises(ConfigError) as caught:
        make()
    assert words in str(caught.value)


def test_other_networks_carry_nothing():
    for spec, width in ((MLP(), 0), (CNN(), 0), (GRU(units=5), 5), (LSTM(units=5), 10), (object(), 0)):
        kept: NetworkSpec | object = spec
        assert NetworkDefinition(kept, [Head(1)], Layout(spaces.Box(-1, 1, (2,)))).carry_width == width
