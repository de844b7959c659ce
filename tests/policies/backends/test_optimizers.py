"""Optimizers of both backends against torch's own and numbers worked out by hand, row by row."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch

from marltrain.errors import SaveError
from marltrain.layout import Layout
from marltrain.policies.backends.base import OPTIMIZERS
from marltrain.policies.backends.tensorflow import optimizers as tensorflow_optimizers
from marltrain.policies.backends.torch import optimizers as torch_optimizers
from marltrain.policies.networks import MLP, Head
from tests.policies.backends.both import TENSORFLOW, TORCH, network, on_both
from tests.policies.batches import VECTOR

THEIRS: dict[str, Any] = {
    "adam": lambda p, rate: torch.optim.Adam([p], lr=rate, eps=1e-5),
    "rmsprop": lambda p, rate: torch.optim.RMSprop([p], lr=rate, eps=1e-5),
    "sgd": lambda p, rate: torch.optim.SGD([p], lr=rate),
}
WEIGHTS = 12  # of 5 inputs and 2 outputs


class Moved:
    """A network of 12 weights an agent, and an optimizer that moves it by gradients given as arrays."""

    def __init__(self, backend: Any, name: str, agents: int, epsilon: float = 1e-5) -> None:
        self.backend = backend
        self.net = network(backend, MLP(hidden=()), Layout(VECTOR), (Head(2),), agents)
        self.optimizer = backend.optimizer(name, self.net, epsilon)

    @property
    def weights(self) -> np.ndarray:
        return self.backend.numpy(self.net.flat).copy()

    def step(self, grad: Any, rates: Any, due: Any = None) -> None:
        tensors = [np.asarray(grad, np.float32), np.asarray(rates, np.float32), due if due is None else np.array(due)]
        self.optimizer.step(self.net, *(self.backend.tensor(tensor) for tensor in tensors))
        self.net.discard_copies()


def test_both_frameworks_have_the_optimizers_of_the_table():
    for classes in (torch_optimizers.OPTIMIZERS, tensorflow_optimizers.OPTIMIZERS):
        assert {name: kind.slot_names for name, kind in classes.items()} == OPTIMIZERS


@on_both
@pytest.mark.parametrize("name", THEIRS)
def test_rows_equal_torchs_with_rates_of_their_own_and_pauses(backend, name):
    """Row 1 sits out every third step: for it, as if that step had not been."""
    rng, rates, own = np.random.default_rng(0), [1e-2, 3e-3, 0.1], Moved(backend, name, 3)
    theirs = [torch.from_numpy(row).requires_grad_() for row in own.weights]
    optimizers = [THEIRS[name](p, rate) for p, rate in zip(theirs, rates, strict=True)]
    for step in range(30):
        grad = rng.standard_normal((3, WEIGHTS)).astype(np.float32)
        due = [True, step % 3 > 0, True]
        before = own.weights
        own.step(grad, rates, None if all(due) else due)
        assert (before[1] == own.weights[1]).all() == (not due[1])
        for k in np.flatnonzero(due):
            theirs[k].grad = torch.from_numpy(grad[k].copy())
            optimizers[k].step()
        np.testing.assert_allclose(own.weights, np.stack([p.detach() for p in theirs]), rtol=1e-5, atol=1e-6)
    assert own.optimizer.arrays(0)["count"].tolist() == [30.0]
    assert own.optimizer.arrays(1)["count"].tolist() == [20.0]


@on_both
def test_adam_by_hand(backend):
    """Gradients 3 and then 0 with an epsilon of 1: moments 0.3, 0.009 and 0.27, 0.008991, each over its correction."""
    own = Moved(backend, "adam", 1, epsilon=1.0)
    start = own.weights
    own.step([[3.0] * WEIGHTS], [0.1])
    first = 0.1 * 3.0 / (3.0 + 1.0)  # corrected: 0.3 / 0.1 and the root of 0.009 / 0.001
    np.testing.assert_allclose(start - own.weights, first, rtol=1e-5)
    own.step([[0.0] * WEIGHTS], [0.1])
    second = 0.1 * (0.27 / 0.19) / (math.sqrt(0.008991 / 0.001999) + 1.0)
    np.testing.assert_allclose(start - own.weights, first + second, rtol=1e-5)
    np.testing.assert_allclose(own.optimizer.arrays(0)["first"], 0.27, rtol=1e-6)
    np.testing.assert_allclose(own.optimizer.arrays(0)["second"], 0.008991, rtol=1e-6)


@on_both
def test_rmsprop_and_sgd_by_hand(backend):
    """A gradient of 4 twice: squares 0.16 and 0.3184, whose roots plus 1 divide 4."""
    for name, expected in (("rmsprop", 0.4 / 1.4 + 0.4 / (math.sqrt(0.3184) + 1)), ("sgd", 0.8)):
        own = Moved(backend, name, 1, epsilon=1.0)
        start = own.weights
        for _ in range(2):
            own.step([[4.0] * WEIGHTS], [0.1])
        np.testing.assert_allclose(start - own.weights, expected, rtol=1e-5)


@on_both
def test_no_rows_is_no_step(backend):
    own = Moved(backend, "adam", 2)
    before = own.weights
    own.step(np.ones((2, WEIGHTS)), [1.0, 1.0], [False, False])
    assert np.array_equal(before, own.weights)
    assert [own.optimizer.arrays(k)["count"].tolist() for k in (0, 1)] == [[0.0], [0.0]]


@pytest.mark.parametrize(("first", "second"), [(TORCH, TENSORFLOW), (TENSORFLOW, TORCH)], ids=["torch", "tensorflow"])
@pytest.mark.parametrize("name", THEIRS)
def test_a_state_moves_to_another_row_and_to_the_other_backend(first, second, name):
    rng, rates = np.random.default_rng(1), [0.1, 0.1]
    one, same, other = (Moved(backend, name, 2) for backend in (first, first, second))
    for _ in range(3):
        one.step(rng.standard_normal((2, WEIGHTS)), rates)
    for made in (same, other):
        made.net.load(1, one.net.arrays(0))
        made.optimizer.load(1, one.optimizer.arrays(0))
        assert np.array_equal(one.weights[0], made.weights[1])
    grad = np.tile(rng.standard_normal(WEIGHTS), (2, 1))
    for made in (one, same, other):
        made.step(grad, rates)
    assert np.array_equal(one.weights[0], same.weights[1])
    np.testing.assert_allclose(one.weights[0], other.weights[1], rtol=1e-6, atol=1e-7)


@on_both
def test_what_is_no_state_of_the_optimizer(backend):
    own = Moved(backend, "adam", 2)
    with pytest.raises(SaveError, match=r"\['count', 'second'\] is not one of Adam"):
        own.optimizer.load(0, Moved(backend, "rmsprop", 1).optimizer.arrays(0))
    with pytest.raises(SaveError, match=r"optimizer state 'count' must be float32 of shape \(1,\), got float32 of "):
        own.optimizer.load(0, own.optimizer.arrays(0) | {"count": np.zeros(2, np.float32)})
