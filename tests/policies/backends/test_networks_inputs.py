"""Networks with several inputs, ensembles and constants, by hand and in both frameworks."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import pytest
import torch
from torch import nn

from marltrain.core.errors import AgentError
from marltrain.core.layout import Layout
from marltrain.core.seeds import generator
from marltrain.policies.networks.specs import CNN, MLP, Head, NetworkDefinition
from tests.policies.backends.both import TENSORFLOW, TORCH, on_both
from tests.policies.some_batches import IMAGE, VECTOR, some_obs

RNG = np.random.default_rng(0)
CRITIC = NetworkDefinition(MLP(hidden=(6,)), [Head(1)], Layout(VECTOR), vectors=(2, 3))
TWO = NetworkDefinition(MLP(hidden=(6,)), [Head(1), Head(2)], Layout(VECTOR), vectors=(2,), members=3)


def built(backend: Any, definition: NetworkDefinition, agents: int = 2) -> Any:
    return backend.network(definition, [generator(k, "weights") for k in range(agents)], agents)


def outputs(backend: Any, net: Any, *inputs: np.ndarray) -> list[np.ndarray]:
    with backend.no_gradient():
        return [backend.numpy(out) for out in net(*(backend.tensor(given) for given in inputs))]


def inputs_of(definition: NetworkDefinition, agents: int = 2, rows: int = 5) -> list[np.ndarray]:
    return definition.empty((agents, rows), lambda shape, dtype: RNG.standard_normal(shape).astype(dtype))


@on_both
def test_further_vectors_are_joined_to_the_observation(backend):
    net, inputs = built(backend, CRITIC), inputs_of(CRITIC)
    (out,) = outputs(backend, net, *inputs)
    for k in range(2):
        w, x = net.arrays(k), np.concatenate([given[k] for given in inputs], -1)
        assert w["hidden0.weight"].shape == (5 + 2 + 3, 6)
        expected = np.tanh(x @ w["hidden0.weight"] + w["hidden0.bias"]) @ w["head0.weight"] + w["head0.bias"]
        np.testing.assert_allclose(out[k], expected, atol=1e-5)
    np.testing.assert_allclose(net.in_numpy()(*inputs)[0], out, atol=1e-5)


@on_both
def test_an_action_is_joined_to_the_features_of_an_image(backend):
    definition = NetworkDefinition(CNN(hidden=(6,), filters=((4, 3, 2),)), [Head(1)], Layout(IMAGE), vectors=(2,))
    net, obs = built(backend, definition), np.asarray(some_obs(RNG, IMAGE, (2, 3)))
    action = RNG.standard_normal((2, 3, 2)).astype(np.float32)
    before = outputs(backend, net, obs, action)[0]
    assert (outputs(backend, net, obs, action + 1)[0] != before).all()


@on_both
def test_the_members_of_an_ensemble_are_networks_of_their_own(backend):
    net, inputs = built(backend, TWO), inputs_of(TWO)
    outs = outputs(backend, net, *inputs)
    assert [out.shape for out in outs] == [(2, 3, 5, 1), (2, 3, 5, 2)]
    alone = NetworkDefinition(TWO.spec, TWO.heads, TWO.layout, TWO.vectors)
    for k in range(2):
        together = net.arrays(k)
        for member in range(3):
            single = built(backend, alone, 1)
            single.load(0, {name: array[member] for name, array in together.items()})
            for own, all_members in zip(outputs(backend, single, *(g[k : k + 1] for g in inputs)), outs, strict=True):
                np.testing.assert_allclose(own[0], all_members[k, member], atol=1e-5)
    assert not np.array_equal(outs[0][0, 0], outs[0][0, 1])
    for mine, numpys in zip(outs, net.in_numpy()(*inputs), strict=True):
        np.testing.assert_allclose(mine, numpys, atol=1e-5)
    for mine, numpys in zip(outs, net.in_numpy()(*(g[1:] for g in inputs), row=1), strict=True):
        np.testing.assert_allclose(mine[1:], numpys, atol=1e-5)


@on_both
def test_an_ensemble_is_saved_copied_and_followed_by_agent(backend):
    net, twin = built(backend, TWO), built(backend, TWO)
    saved = net.arrays(0)
    assert saved["head1.weight"].shape == (3, 6, 2)
    twin.load(1, saved)
    assert all(np.array_equal(twin.arrays(1)[name], array) for name, array in saved.items())
    assert all(np.array_equal(net.copy().arrays(1)[name], array) for name, array in net.arrays(1).items())
    twin.move_toward(net, backend.tensor(np.array([1.0, 0.0], np.float32)))
    assert np.array_equal(twin.arrays(1)["head0.weight"], saved["head0.weight"])


def test_equal_seeds_give_equal_ensembles_in_both_frameworks_and_stacked_equals_alone():
    torchs, tensorflows = (built(backend, TWO) for backend in (TORCH, TENSORFLOW))
    alone = TORCH.network(TWO, [generator(1, "weights")], 1)
    for name, array in torchs.arrays(1).items():
        assert np.array_equal(array, tensorflows.arrays(1)[name])
        assert np.array_equal(array, alone.arrays(0)[name])


@on_both
def test_gradients_of_an_ensemble_have_the_order_of_its_weights(backend):
    net, inputs = built(backend, TWO), inputs_of(TWO)
    columns = {f"x{i}": backend.tensor(given) for i, given in enumerate(inputs)}

    def loss(nets: Any, columns: Any, hyper: Any) -> Any:
        out = nets["q"](*columns.values())[0][..., 0]
        total = backend.ops.sum(backend.ops.sum(out[:, 1:2], -1), -1)  # of the second member only
        return total, {}

    _, (grad,) = backend.gradients(loss, {"q": net}, ["q"], columns, {})
    parted = backend.numpy(grad).reshape(2, 3, -1)
    assert not parted[:, 0].any()
    assert parted[:, 1].any()
    assert not parted[:, 2].any()


@on_both
def test_a_network_without_inputs_is_its_constants(backend):
    definition = NetworkDefinition(None, [Head(0, free=2, free_start=-0.5)], None)
    net = built(backend, definition)
    (out,) = outputs(backend, net)
    assert np.array_equal(out, np.full((2, 1, 2), -0.5, np.float32))
    assert list(net.arrays(0)) == ["head0.free"]
    np.testing.assert_array_equal(net.in_numpy()()[0], out)


class Pair(nn.Module):
    """A user's ensemble of two critics over an observation and an action."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(7, 1), nn.Linear(7, 1)

    def forward(self, obs: torch.Tensor, action: torch.Tensor) -> torch.Tensor:
        x = torch.cat([obs, action], -1)
        return torch.cat([self.first(x), self.second(x)], -1)


class KerasPair(keras.Model):
    """The same in Keras."""

    def __init__(self) -> None:
        super().__init__()
        self.both = keras.layers.Dense(2)

    def call(self, obs: Any, action: Any, training: bool = False) -> Any:
        return self.both(keras.ops.concatenate([obs, action], -1))


@pytest.mark.parametrize(("backend", "model"), [(TORCH, Pair), (TENSORFLOW, KerasPair)], ids=["torch", "tensorflow"])
def test_a_model_of_ones_own_gets_the_inputs_and_returns_the_members_side_by_side(backend, model):
    definition = NetworkDefinition(model(), [Head(1)], Layout(VECTOR), vectors=(2,), members=2)
    net, inputs = built(backend, definition, 1), inputs_of(definition, 1)
    (out,) = outputs(backend, net, *inputs)
    assert out.shape == (1, 2, 5, 1)
    wrong = NetworkDefinition(model(), [Head(1)], Layout(VECTOR), vectors=(2,), members=3)
    with pytest.raises(AgentError, match=r"3\)"):
        built(backend, wrong, 1)
