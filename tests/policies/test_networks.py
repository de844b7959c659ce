"""Network specifications: parameters, initial weights, and forward passes against torch's own layers."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import nn

import marltrain as mt
from marltrain.errors import ConfigError, SpecError
from marltrain.layout import Layout
from marltrain.policies.backends import make_backend
from marltrain.policies.networks import CNN, MLP, Head, Parameter, Plan, spec_from
from marltrain.random import generator
from tests.policies.batches import IMAGE, PICTURE_AND_VECTOR, VECTOR, some_obs

BACKEND = make_backend("torch", "cpu")


HEAD = (Head(3),)


def wrong(value: Any) -> Any:
    """Return what a type checker would not let through."""
    return value


def network(spec, layout, heads=HEAD, agents=2):
    return BACKEND.network(spec, layout, heads, [generator(k, "weights") for k in range(agents)], agents)


def test_an_mlp_equals_torchs_layers():
    net = network(MLP(hidden=(7, 6), activation="relu"), Layout(VECTOR))
    obs = torch.from_numpy(some_obs(np.random.default_rng(0), VECTOR, (2, 4)))
    (out,) = net(obs)
    for k in range(2):
        w = net.arrays(k)
        x = obs[k].numpy()
        for name in ("hidden0", "hidden1"):
            x = np.maximum(x @ w[f"{name}.weight"] + w[f"{name}.bias"], 0)
        np.testing.assert_allclose(out[k].detach(), x @ w["head0.weight"] + w["head0.bias"], atol=1e-5)
        np.testing.assert_allclose(net(obs[k : k + 1], k)[0].detach(), out[k : k + 1].detach(), atol=1e-6)


@pytest.mark.parametrize("activation", ["tanh", "relu", "elu", "silu", "gelu"])
def test_activations_are_torchs(activation):
    net = network(MLP(hidden=(6,), activation=activation), Layout(VECTOR), agents=1)
    w, obs = net.arrays(0), torch.randn(1, 4, 5, generator=torch.Generator().manual_seed(0))
    own = {"tanh": nn.Tanh, "relu": nn.ReLU, "elu": nn.ELU, "silu": nn.SiLU, "gelu": nn.GELU}[activation]()
    x = own(obs[0] @ torch.from_numpy(w["hidden0.weight"]) + torch.from_numpy(w["hidden0.bias"]))
    expected = x @ torch.from_numpy(w["head0.weight"]) + torch.from_numpy(w["head0.bias"])
    torch.testing.assert_close(net(obs)[0][0].detach(), expected)


IMAGES = [
    pytest.param(spaces.Box(0, 255, (9, 8), np.uint8), 1, lambda x: x[:, None], id="grey"),
    pytest.param(spaces.Box(0, 255, (9, 8, 3), np.uint8), 1, lambda x: x.permute(0, 3, 1, 2), id="channels last"),
    pytest.param(spaces.Box(0, 255, (3, 9, 8), np.uint8), 1, lambda x: x, id="channels first"),
    pytest.param(spaces.Box(0, 255, (4, 9, 8), np.uint8), 4, lambda x: x, id="frames"),
    pytest.param(
        spaces.Box(0, 255, (2, 9, 8, 3), np.uint8), 2,
        lambda x: torch.cat([frame.permute(0, 3, 1, 2) for frame in x.unbind(1)], 1),
        id="frames of colour",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("space", "stack", "to_channels_first"), IMAGES)
def test_a_cnn_equals_torchs_layers(space, stack, to_channels_first):
    spec = CNN(hidden=(6,), filters=((4, 3, 2), (5, 2, 1)))
    net = network(spec, Layout(space, stack))
    obs = torch.from_numpy(np.random.default_rng(0).integers(256, size=(2, 4, *space.shape)).astype(np.uint8))
    (out,) = net(obs)
    for k in range(2):
        w = {name: torch.from_numpy(a) for name, a in net.arrays(k).items()}
        x = to_channels_first(obs[k]).float() / 255
        for i, stride in enumerate((2, 1)):
            x = torch.relu(nn.functional.conv2d(x, w[f"image.conv{i}.weight"], w[f"image.conv{i}.bias"], stride))
        x = torch.relu(x.flatten(1) @ w["hidden0.weight"] + w["hidden0.bias"])
        torch.testing.assert_close(out[k].detach(), x @ w["head0.weight"] + w["head0.bias"])


def test_an_image_beside_a_vector_and_an_mlp_over_pixels():
    layout = Layout(PICTURE_AND_VECTOR)
    obs = some_obs(np.random.default_rng(0), PICTURE_AND_VECTOR, (1, 3))
    assert isinstance(obs, dict)
    tensors = {name: torch.from_numpy(a) for name, a in obs.items()}
    net = network(MLP(hidden=(6,)), layout, agents=1)
    w = net.arrays(0)
    flat = np.concatenate([obs["vector"][0], obs["view"][0].reshape(3, -1) / 255], -1)
    expected = np.tanh(flat @ w["hidden0.weight"] + w["hidden0.bias"]) @ w["head0.weight"] + w["head0.bias"]
    np.testing.assert_allclose(net(tensors)[0][0].detach(), expected, atol=1e-5)
    net = network(CNN(hidden=(6,), filters=((4, 3, 2),)), layout, agents=1)
    assert net.arrays(0)["hidden0.weight"].shape == (2 + 4 * 3 * 4, 6)
    before = net(tensors)[0].detach().clone()
    tensors["vector"] += 1
    assert (net(tensors)[0] != before).all()


def test_two_heads_have_a_last_hidden_layer_each_and_free_parameters_are_constant():
    net = network(MLP(hidden=(6, 7)), Layout(VECTOR), (Head(1), Head(2, free=2, free_start=-0.5)))
    assert net.names == [
        "hidden0.weight", "hidden0.bias", "head0.hidden.weight", "head0.hidden.bias", "head0.weight", "head0.bias",
        "head1.hidden.weight", "head1.hidden.bias", "head1.weight", "head1.bias", "head1.free",
    ]  # fmt: skip
    first, second = net(torch.randn(2, 4, 5))
    assert first.shape == (2, 4, 1)
    assert second.shape == (2, 4, 4)
    assert (second[..., 2:] == -0.5).all()


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


def test_a_network_without_hidden_layers_is_linear():
    net = network(MLP(hidden=()), Layout(VECTOR), agents=1)
    assert net.names == ["head0.weight", "head0.bias"]
    assert net(torch.zeros(1, 2, 5))[0].shape == (1, 2, 3)


def test_descriptions_build_the_specification_again():
    for spec in (MLP(hidden=(3,), activation="relu"), CNN(filters=((2, 3, 1),))):
        assert spec_from(spec.describe()) == spec
    assert isinstance(Plan(CNN(), Layout(spaces.Box(0, 255, (16, 16), np.uint8)), (Head(2),)).spec, mt.CNN)


@pytest.mark.parametrize(
    ("make", "error", "words"),
    [
        (lambda: MLP(hidden=(0,)), ConfigError, "at least 1, got"),
        (lambda: MLP(hidden=wrong((6.5,))), ConfigError, "must be integers"),
        (lambda: MLP(activation="tanhh"), ConfigError, "Did you mean 'tanh'?"),
        (lambda: CNN(filters=wrong(((1, 2),))), ConfigError, "triples"),
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
