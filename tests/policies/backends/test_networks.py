"""Stacks of networks on both backends: torch's own layers for every kind, rows, copies, targets, arrays in and out."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import nn

from marltrain.core.errors import SaveError
from marltrain.core.layout import Layout
from marltrain.core.seeds import generator
from marltrain.policies.networks.specs import CNN, GRU, MLP, Head, NetworkDefinition
from tests.policies.backends.both import BOTH, TENSORFLOW, network, on_both
from tests.policies.some_batches import IMAGE, PICTURE_AND_VECTOR, VECTOR, some_obs

HEAD = (Head(3),)
RNG = np.random.default_rng(0)


def outputs(backend, net, obs, row=None):
    with backend.no_gradient():
        return [backend.numpy(out) for out in net(backend.tensor(obs), row=row)]


def torch_weights(net, k):
    return {name: torch.from_numpy(array) for name, array in net.arrays(k).items()}


@on_both
@pytest.mark.parametrize("activation", ["tanh", "relu", "elu", "silu", "gelu"])
def test_an_mlp_is_torchs_layers(backend, activation):
    net = network(backend, MLP(hidden=(7, 6), activation=activation), Layout(VECTOR), HEAD)
    own = {"tanh": nn.Tanh, "relu": nn.ReLU, "elu": nn.ELU, "silu": nn.SiLU, "gelu": nn.GELU}[activation]()
    obs: Any = some_obs(RNG, VECTOR, (2, 4))
    (out,) = outputs(backend, net, obs)
    for k in range(2):
        w, x = torch_weights(net, k), torch.from_numpy(obs[k])
        for name in ("hidden0", "hidden1"):
            x = own(x @ w[f"{name}.weight"] + w[f"{name}.bias"])
        np.testing.assert_allclose(out[k], x @ w["head0.weight"] + w["head0.bias"], atol=1e-5)
        np.testing.assert_allclose(outputs(backend, net, obs[k : k + 1], k)[0], out[k : k + 1], atol=1e-6)


IMAGES = [
    pytest.param(spaces.Box(0, 255, (9, 8), np.uint8), 1, lambda x: x[:, None], id="gray"),
    pytest.param(spaces.Box(0, 255, (9, 8, 3), np.uint8), 1, lambda x: x.permute(0, 3, 1, 2), id="channels last"),
    pytest.param(spaces.Box(0, 255, (3, 9, 8), np.uint8), 1, lambda x: x, id="channels first"),
    pytest.param(spaces.Box(0, 255, (4, 9, 8), np.uint8), 4, lambda x: x, id="frames"),
    pytest.param(
        spaces.Box(0, 255, (2, 9, 8, 3), np.uint8), 2,
        lambda x: torch.cat([frame.permute(0, 3, 1, 2) for frame in x.unbind(1)], 1),
        id="frames of color",
    ),
    pytest.param(
        spaces.Box(0, 255, (2, 3, 9, 8), np.uint8), 2, lambda x: x.flatten(1, 2), id="frames, channels first"
    ),
    pytest.param(spaces.Box(0, 255, (8, 8, 9), np.uint8), 1, lambda x: x.permute(0, 3, 1, 2), id="more planes"),
]  # fmt: skip
BOARDS = [
    spaces.Box(0, 2, (5, 4), np.uint8),
    spaces.Box(3, 203, (5, 4, 3), np.uint8),
    spaces.Box(np.zeros((5, 4, 3), np.uint8), np.tile(np.array([1, 0, 9], np.uint8), (5, 4, 1)), dtype=np.uint8),
    spaces.Box(np.ones((5, 4), np.uint8), np.arange(1, 21, dtype=np.uint8).reshape(5, 4), dtype=np.uint8),
]


@on_both
@pytest.mark.parametrize("space", BOARDS, ids=str)
def test_images_are_scaled_by_their_bounds(backend, space):
    """The lowest value becomes 0 and the highest 1; a value that cannot change becomes 0."""
    low, high = space.low.astype(np.float64), space.high.astype(np.float64)
    obs = RNG.integers(space.low, space.high.astype(int) + 1, (2, 3, *space.shape)).astype(np.uint8)
    obs[:, 0], obs[:, 1] = space.low, space.high
    seen = (obs - low) / np.where(high == low, 1, high - low)
    assert (seen[:, 0] == 0).all()
    assert (seen[:, 1] == (high > low)).all()
    flat = network(backend, MLP(hidden=()), Layout(space), HEAD)
    (out,) = outputs(backend, flat, obs)
    for k in range(2):
        w = flat.arrays(k)
        np.testing.assert_allclose(out[k], seen[k].reshape(3, -1) @ w["head0.weight"] + w["head0.bias"], atol=1e-5)
    wide = space.shape if len(space.shape) == 3 else (*space.shape, 1)
    net = network(backend, CNN(hidden=(), filters=((2, 2, 1),)), Layout(space), HEAD)
    (out,) = outputs(backend, net, obs)
    for k in range(2):
        w = torch_weights(net, k)
        x = torch.from_numpy(seen[k].reshape(3, *wide)).float().permute(0, 3, 1, 2)
        x = torch.relu(nn.functional.conv2d(x, w["image.conv0.weight"], w["image.conv0.bias"]))
        np.testing.assert_allclose(out[k], x.flatten(1) @ w["head0.weight"] + w["head0.bias"], atol=1e-5)


@on_both
@pytest.mark.parametrize(("channels", "axes"), [("first", (4, 5, 6)), ("last", (6, 4, 5))])
@pytest.mark.parametrize("make", [CNN, GRU])
def test_a_user_may_say_where_the_channels_are(backend, channels, axes, make):
    spec = make(hidden=(3,), filters=((2, 2, 1),), channels=channels)
    net = network(backend, spec, Layout(spaces.Box(0, 255, (4, 5, 6), np.uint8)), HEAD, 1)
    assert net.arrays(0)["image.conv0.weight"].shape == (2, axes[0], 2, 2)
    assert net.arrays(0)["hidden0.weight"].shape == (2 * (axes[1] - 1) * (axes[2] - 1), 3)


@on_both
@pytest.mark.parametrize(("space", "stack", "to_channels_first"), IMAGES)
def test_a_cnn_is_torchs_layers(backend, space, stack, to_channels_first):
    net = network(backend, CNN(hidden=(6,), filters=((4, 3, 2), (5, 2, 1))), Layout(space, stack), HEAD)
    obs = RNG.integers(256, size=(2, 4, *space.shape)).astype(np.uint8)
    (out,) = outputs(backend, net, obs)
    for k in range(2):
        w = torch_weights(net, k)
        x = to_channels_first(torch.from_numpy(obs[k])).float() / 255
        for i, stride in enumerate((2, 1)):
            x = torch.relu(nn.functional.conv2d(x, w[f"image.conv{i}.weight"], w[f"image.conv{i}.bias"], stride))
        x = torch.relu(x.flatten(1) @ w["hidden0.weight"] + w["hidden0.bias"])
        np.testing.assert_allclose(out[k], x @ w["head0.weight"] + w["head0.bias"], atol=1e-5)


@on_both
def test_an_image_beside_a_vector_and_an_mlp_over_pixels(backend):
    layout, obs = Layout(PICTURE_AND_VECTOR), some_obs(RNG, PICTURE_AND_VECTOR, (1, 3))
    assert isinstance(obs, dict)
    net = network(backend, MLP(hidden=(6,)), layout, HEAD, 1)
    w = net.arrays(0)
    flat = np.concatenate([obs["vector"][0], obs["view"][0].reshape(3, -1) / 255], -1)
    expected = np.tanh(flat @ w["hidden0.weight"] + w["hidden0.bias"]) @ w["head0.weight"] + w["head0.bias"]
    np.testing.assert_allclose(outputs(backend, net, obs)[0][0], expected, atol=1e-5)
    net = network(backend, CNN(hidden=(6,), filters=((4, 3, 2),)), layout, HEAD, 1)
    assert net.arrays(0)["hidden0.weight"].shape == (2 + 4 * 3 * 4, 6)
    before = outputs(backend, net, obs)[0]
    assert (outputs(backend, net, {**obs, "vector": obs["vector"] + 1})[0] != before).all()


@on_both
def test_two_heads_have_a_last_hidden_layer_each_and_free_parameters_are_constant(backend):
    heads = (Head(1), Head(2, free=2, free_start=-0.5))
    net = network(backend, MLP(hidden=(6, 7)), Layout(VECTOR), heads)
    assert list(net.arrays(0)) == [
        "hidden0.weight", "hidden0.bias", "head0.hidden.weight", "head0.hidden.bias", "head0.weight", "head0.bias",
        "head1.hidden.weight", "head1.hidden.bias", "head1.weight", "head1.bias", "head1.free",
    ]  # fmt: skip
    first, second = outputs(backend, net, some_obs(RNG, VECTOR, (2, 4)))
    assert first.shape == (2, 4, 1)
    assert second.shape == (2, 4, 4)
    assert (second[..., 2:] == -0.5).all()


@on_both
def test_a_network_without_hidden_layers_is_linear(backend):
    net = network(backend, MLP(hidden=()), Layout(VECTOR), HEAD, 1)
    assert list(net.arrays(0)) == ["head0.weight", "head0.bias"]
    assert not outputs(backend, net, np.zeros((1, 2, 5), np.float32))[0].any()


@pytest.mark.parametrize(("spec", "space"), [(MLP(hidden=(8, 6)), VECTOR), (CNN(filters=((4, 3, 2),)), IMAGE)])
def test_equal_seeds_are_equal_weights_bit_for_bit_in_both(spec, space):
    """Each agent's own, wherever it stands in a stack."""
    nets = [network(backend, spec, Layout(space), HEAD, 3) for backend in BOTH.values()]
    alone = TENSORFLOW.network(NetworkDefinition(spec, HEAD, Layout(space)), [generator(2, "weights")], 1)
    for k in range(3):
        mine, theirs = (net.arrays(k) for net in nets)
        assert list(mine) == list(theirs)
        assert all(mine[name].dtype == np.float32 and np.array_equal(mine[name], theirs[name]) for name in mine)
    assert all(np.array_equal(alone.arrays(0)[name], array) for name, array in nets[0].arrays(2).items())
    assert not np.array_equal(nets[0].arrays(0)["head0.weight"], nets[0].arrays(1)["head0.weight"])


@on_both
def test_without_streams_weights_are_zero_until_loaded(backend):
    drawn = network(backend, MLP(hidden=(4,)), Layout(VECTOR), HEAD)
    empty = backend.network(NetworkDefinition(MLP(hidden=(4,)), HEAD, Layout(VECTOR)), None, 2)
    obs: Any = some_obs(RNG, VECTOR, (2, 4))
    assert not any(array.any() for array in empty.arrays(0).values())
    empty.load(1, drawn.arrays(0))
    assert not outputs(backend, empty, obs)[0][0].any()
    assert np.array_equal(outputs(backend, empty, obs[::-1].copy())[0][1], outputs(backend, drawn, obs)[0][0])


@on_both
def test_arrays_are_copies(backend):
    net = network(backend, MLP(hidden=(4,)), Layout(VECTOR), HEAD)
    net.arrays(0)["head0.weight"][...] = 7.0
    assert not (net.arrays(0)["head0.weight"] == 7.0).any()


@on_both
def test_a_copy_is_equal_and_goes_its_own_way(backend):
    net = network(backend, MLP(hidden=(4,)), Layout(VECTOR), HEAD)
    twin, obs = net.copy(), some_obs(RNG, VECTOR, (2, 4))
    before = outputs(backend, net, obs)[0]
    assert np.array_equal(outputs(backend, twin, obs)[0], before)
    net.load(0, net.arrays(1))
    assert np.array_equal(outputs(backend, twin, obs)[0], before)
    assert not np.array_equal(outputs(backend, net, obs)[0][0], before[0])


@on_both
def test_a_row_follows_by_its_own_share(backend):
    slow, fast = (network(backend, MLP(hidden=(4,)), Layout(VECTOR), HEAD, 3, name) for name in ("a", "b"))
    before, goal = ([net.arrays(k) for k in range(3)] for net in (slow, fast))
    slow.move_toward(fast, backend.tensor(np.array([0.0, 0.25, 1.0], np.float32)))
    for name in before[0]:
        assert np.array_equal(slow.arrays(0)[name], before[0][name])
        np.testing.assert_allclose(slow.arrays(1)[name], 0.75 * before[1][name] + 0.25 * goal[1][name], atol=1e-7)
        assert np.array_equal(slow.arrays(2)[name], goal[2][name])
    slow.move_toward(fast, backend.tensor(np.ones(3, np.float32)))
    assert all(np.array_equal(slow.arrays(k)[name], goal[k][name]) for k in range(3) for name in goal[k])
    obs: Any = some_obs(RNG, VECTOR, (3, 4))
    assert np.array_equal(outputs(backend, slow, obs)[0], outputs(backend, fast, obs)[0])


@on_both
def test_the_same_network_in_numpy_follows_the_weights(backend):
    net = network(backend, MLP(hidden=(4,)), Layout(VECTOR), HEAD)
    forward, obs = net.in_numpy(), np.asarray(some_obs(RNG, VECTOR, (2, 4)))
    for _ in range(2):
        np.testing.assert_allclose(forward(obs)[0], outputs(backend, net, obs)[0], rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(
            forward(obs[1:], row=1)[0], outputs(backend, net, obs[1:], 1)[0], rtol=1e-5, atol=1e-6
        )
        net.load(0, net.arrays(1))
    assert network(backend, CNN(filters=((4, 3, 2),)), Layout(IMAGE), HEAD).in_numpy() is None


@on_both
def test_what_does_not_fit_is_not_loaded(backend):
    net = network(backend, MLP(hidden=(4,)), Layout(VECTOR), HEAD)
    arrays = net.arrays(0)
    with pytest.raises(SaveError, match=r"do not fit a network with \['head0\.bias', 'head0\.weight'"):
        net.load(0, {name: array for name, array in arrays.items() if name != "head0.bias"})
    with pytest.raises(SaveError, match=r"weight head0\.bias must be float32 of shape \(3,\), got float32 of .*4"):
        net.load(0, arrays | {"head0.bias": np.zeros(4, np.float32)})
