"""The torch backend: gradients and clipping of each row by itself, and foreign randomness kept apart."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from marltrain.errors import ConfigError
from marltrain.layout import Layout
from marltrain.policies.backends import make_backend
from marltrain.policies.networks import MLP, Head
from marltrain.random import generator
from tests.policies.batches import VECTOR

BACKEND = make_backend("torch", "cpu")


def networks():
    return [
        BACKEND.network(MLP(hidden=(4,)), Layout(VECTOR), (Head(2),), [generator(k, n) for k in range(3)], 3)
        for n in ("a", "b")
    ]


def test_a_rows_gradient_is_that_of_its_own_loss():
    nets, obs = networks(), torch.randn(3, 6, 5, generator=torch.Generator().manual_seed(0))

    def loss():
        each = sum(net(obs)[0].square().mean((1, 2)) for net in nets)
        return each, {"twice": 2 * each}

    value, metrics, grads = BACKEND.gradients(loss, nets)
    assert torch.equal(metrics["twice"], 2 * value)
    assert not value.requires_grad
    for k in range(3):
        for net, grad in zip(nets, grads, strict=True):
            own = torch.autograd.grad(loss()[0][k], net.weights)
            torch.testing.assert_close(grad[k], torch.cat([g[k].reshape(-1) for g in own]))


def test_a_network_that_the_loss_ignores_has_gradient_zero():
    nets = networks()
    _, _, grads = BACKEND.gradients(lambda: (nets[0](torch.ones(3, 1, 5))[0].sum((1, 2)), {}), nets)
    assert grads[0].any()
    assert not grads[1].any()


def test_clipping_is_joint_over_networks_and_separate_by_row():
    draw = torch.Generator().manual_seed(0)
    grads = [torch.randn(3, n, generator=draw) for n in (5, 7)]
    grads[0][2], grads[1][2] = 0.0, 0.0
    limits, expected = [0.5, 100.0, 0.5], []
    for k in range(3):
        leaves = [torch.zeros(len(g[k]), requires_grad=True) for g in grads]
        for leaf, grad in zip(leaves, grads, strict=True):
            leaf.grad = grad[k].clone()
        norm = torch.nn.utils.clip_grad_norm_(leaves, limits[k])
        expected.append((norm, [leaf.grad for leaf in leaves]))
    norms, factor = BACKEND.clip(grads, torch.tensor(limits))
    assert factor.tolist() == [pytest.approx(0.5 / float(expected[0][0]), rel=1e-4), 1.0, 1.0]
    for k, (norm, clipped) in enumerate(expected):
        torch.testing.assert_close(norms[:, k].square().sum().sqrt(), norm)
        for grad, theirs in zip(grads, clipped, strict=True):
            torch.testing.assert_close(grad[k], theirs)


def test_no_limit_limits_nothing():
    grads = [torch.full((1, 4), 1e6)]
    BACKEND.clip(grads, torch.tensor([float("inf")]))
    assert (grads[0] == 1e6).all()


def test_rows_and_columns():
    value = torch.arange(24).view(2, 4, 3)
    index = torch.tensor([[3, 0], [1, 1]])
    assert BACKEND.rows({"x": value}, index)["x"][:, :, 0].tolist() == [[9, 0], [15, 15]]
    assert BACKEND.rows(None, index) is None
    assert BACKEND.columns({"x": value}, 1, 3)["x"].shape == (2, 2, 3)
    assert BACKEND.columns(None, 0, 1) is None


def test_a_row_follows_by_its_own_share():
    slow, fast = networks()
    before, goal = slow.flat.clone(), fast.flat.clone()
    slow.follow(fast, torch.tensor([0.0, 0.25, 1.0]))
    assert torch.equal(slow.flat[0], before[0])
    torch.testing.assert_close(slow.flat[1], 0.75 * before[1] + 0.25 * goal[1])
    torch.testing.assert_close(slow.flat[2], goal[2])
    slow.follow(fast, torch.ones(3))
    torch.testing.assert_close(slow.flat, goal)
    assert torch.equal(slow.weights[0].reshape(3, -1), slow.flat[:, : slow.weights[0][0].numel()])


def test_foreign_generators_are_seeded_and_put_back():
    def drawn(seed):
        with BACKEND.seeded(np.random.default_rng(seed)):
            return torch.rand(2).tolist(), np.random.random(2).tolist()

    torch.manual_seed(7)
    np.random.seed(7)
    state = torch.get_rng_state(), np.random.get_state(legacy=False)
    assert drawn(0) == drawn(0)
    assert drawn(0)[0] != drawn(1)[0]
    assert drawn(0)[1] != drawn(1)[1]
    assert torch.equal(state[0], torch.get_rng_state())
    assert repr(state[1]) == repr(np.random.get_state(legacy=False))


@pytest.mark.parametrize(
    ("name", "device", "words"), [("torhc", "cpu", "Did you mean 'torch'"), ("torch", "abc", "'abc'")]
)
def test_what_is_no_backend(name, device, words):
    with pytest.raises(ConfigError, match=words):
        make_backend(name, device)
