"""Optimizers of both backends against torch's own and numbers worked out by hand, row by row."""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np
import pytest
import torch

from marltrain.core.errors import SaveError
from marltrain.core.layout import Layout
from marltrain.policies.networks.specs import MLP, Head
from marltrain.policies.optimizers import OPTIMIZERS
from tests.policies.backends.both import TENSORFLOW, TORCH, network, on_both
from tests.policies.some_batches import VECTOR

THEIRS: dict[str, Any] = {
    "adam": functools.partial(torch.optim.Adam, eps=1e-5),
    "adamw": functools.partial(torch.optim.AdamW, eps=1e-5),
    "adamax": functools.partial(torch.optim.Adamax, eps=1e-5),
    "rmsprop": functools.partial(torch.optim.RMSprop, eps=1e-5),
    "sgd": torch.optim.SGD,
}
NUMBERS: list[tuple[str, dict[str, list[float]]]] = [
    *((name, {"weight_decay": [0.0, 0.0, 0.0]}) for name in THEIRS),
    *((name, {"weight_decay": [0.3, 0.0, 0.05]}) for name in THEIRS),
    ("sgd", {"weight_decay": [0.0, 0.0, 0.0], "momentum": [0.9, 0.5, 0.0]}),
    ("sgd", {"weight_decay": [0.2, 0.1, 0.3], "momentum": [0.0, 0.9, 0.4]}),
]
"""Optimizers, and the numbers of three agents."""
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

    def step(self, grad: Any, rates: Any, due: Any = None, **numbers: Any) -> None:
        tensors = [np.asarray(grad, np.float32), np.asarray(rates, np.float32), due if due is None else np.array(due)]
        columns = {name: np.array(each, np.float32)[:, None] for name, each in numbers.items() if np.any(each)}
        tensor = self.backend.tensor
        self.optimizer.step(self.net, *map(tensor, tensors), **{name: tensor(each) for name, each in columns.items()})
        self.net.discard_copies()


@on_both
@pytest.mark.parametrize(("name", "numbers"), NUMBERS)
def test_rows_equal_torchs_with_numbers_of_their_own_and_pauses(backend, name, numbers):
    """Row 1 sits out every third step: for it, as if that step had not been."""
    rng, rates, own = np.random.default_rng(0), [1e-2, 3e-3, 0.1], Moved(backend, name, 3)
    theirs = [torch.from_numpy(row).requires_grad_() for row in own.weights]
    data = [dict(zip(numbers, row, strict=True)) for row in zip(*numbers.values(), strict=True)]
    optimizers = [THEIRS[name]([p], lr=rate, **of) for p, rate, of in zip(theirs, rates, data, strict=True)]
    for step in range(30):
        grad = rng.standard_normal((3, WEIGHTS)).astype(np.float32)
        due = [True, step % 3 > 0, True]
        before, state = own.weights, own.optimizer.arrays(1)
        own.step(grad, rates, None if all(due) else due, **numbers)
        assert (before[1] == own.weights[1]).all() == (not due[1])
        if not due[1]:
            assert all(np.array_equal(state[name], after) for name, after in own.optimizer.arrays(1).items())
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
def test_adamax_by_hand(backend):
    """Gradients 3 and then 0 with an epsilon of 1: the mean is 0.3, then 0.27; the largest size 4, then 3.996."""
    own = Moved(backend, "adamax", 1, epsilon=1.0)
    start = own.weights
    own.step([[3.0] * WEIGHTS], [0.1])
    np.testing.assert_allclose(start - own.weights, 0.1 * (0.3 / 0.1) / 4, rtol=1e-5)
    own.step([[0.0] * WEIGHTS], [0.1])
    second = 0.1 * (0.27 / 0.19) / 3.996
    np.testing.assert_allclose(start - own.weights, 0.075 + second, rtol=1e-5)
    np.testing.assert_allclose(own.optimizer.arrays(0)["largest"], 3.996, rtol=1e-6)


@on_both
def test_weight_decay_and_momentum_by_hand(backend):
    """Weights of 8 and a gradient of 4 twice, at rate 0.5; a decay of 0.25 adds 2 to the gradient.

    SGD: steps 0.5 * 6, then 0.5 * (4 + 5 / 4 + 6 / 2). AdamW: shrunk to 7, a step of 0.5; shrunk to 6.5 * 7/8.
    """
    for name, numbers, expected in (
        ("sgd", {"weight_decay": [0.25], "momentum": [0.5]}, (5.0, 0.875)),
        ("adamw", {"weight_decay": [0.25]}, (6.5, 5.1875)),
    ):
        own = Moved(backend, name, 1, epsilon=1e-12)
        own.net.write(0, np.full(WEIGHTS, 8, np.float32))
        own.net.discard_copies()
        for weights in expected:
            own.step([[4.0] * WEIGHTS], [0.5], **numbers)
            np.testing.assert_allclose(own.weights, np.full((1, WEIGHTS), weights), rtol=1e-6)


@on_both
def test_momentum_that_begins_later_begins_without_past(backend):
    """As in torch, where the sum of gradients is made at the first step with momentum, and waits where it is 0."""
    own, rng = Moved(backend, "sgd", 2), np.random.default_rng(0)
    theirs = torch.from_numpy(own.weights[0].copy()).requires_grad_()
    optimizer = torch.optim.SGD([theirs], lr=0.1)
    for momentum in (0.0, 0.9, 0.9, 0.0, 0.0, 0.5):
        grad = rng.standard_normal((2, WEIGHTS)).astype(np.float32)
        own.step(grad, [0.1, 0.1], momentum=[momentum, 0.9])
        optimizer.param_groups[0]["momentum"] = momentum
        theirs.grad = torch.from_numpy(grad[0].copy())
        optimizer.step()
        np.testing.assert_allclose(own.weights[0], theirs.detach(), rtol=1e-5, atol=1e-6)


def test_steps_are_those_of_keras():
    """With an epsilon too small to count, which Keras adds in other places."""
    import keras

    result: dict[str, tuple[Any, dict[str, float]]] = {
        "adam": (keras.optimizers.Adam, {}),
        "adamw": (keras.optimizers.AdamW, {"weight_decay": 0.3}),
        "adamax": (keras.optimizers.Adamax, {}),
        "rmsprop": (functools.partial(keras.optimizers.RMSprop, rho=0.99), {}),
        "sgd": (keras.optimizers.SGD, {"momentum": 0.9}),
    }
    assert result.keys() == OPTIMIZERS.keys()
    for name, (kind, numbers) in result.items():
        epsilon = {} if name == "sgd" else {"epsilon": 1e-12}
        rng, own, optimizer = (
            np.random.default_rng(2),
            Moved(TENSORFLOW, name, 1, 1e-12),
            kind(0.01, **numbers, **epsilon),
        )
        theirs = keras.Variable(own.weights[0])
        for _ in range(10):
            grad = rng.standard_normal((1, WEIGHTS)).astype(np.float32)
            own.step(grad, [0.01], **{each: [value] for each, value in numbers.items()})
            optimizer.apply([keras.ops.convert_to_tensor(grad[0])], [theirs])
            np.testing.assert_allclose(own.weights[0], theirs.numpy(), rtol=1e-4, atol=1e-5, err_msg=name)


@on_both
def test_no_rows_is_no_step(backend):
    own = Moved(backend, "adam", 2)
    before = own.weights
    own.step(np.ones((2, WEIGHTS)), [1.0, 1.0], [False, False])
    assert np.array_equal(before, own.weights)
    assert [own.optimizer.arrays(k)["count"].tolist() for k in (0, 1)] == [[0.0], [0.0]]


@pytest.mark.parametrize(("first", "second"), [(TORCH, TENSORFLOW), (TENSORFLOW, TORCH)], ids=["torch", "tensorflow"])
@pytest.mark.parametrize(("name", "numbers"), NUMBERS[len(THEIRS) :])
def test_a_state_moves_to_another_row_and_to_the_other_backend(first, second, name, numbers):
    rng, rates, numbers = np.random.default_rng(1), [0.1, 0.1], {of: [each[0]] * 2 for of, each in numbers.items()}
    one, same, other = (Moved(backend, name, 2) for backend in (first, first, second))
    for _ in range(3):
        one.step(rng.standard_normal((2, WEIGHTS)), rates, **numbers)
    for result in (same, other):
        result.net.load(1, one.net.arrays(0))
        result.optimizer.load(1, one.optimizer.arrays(0))
        assert np.array_equal(one.weights[0], result.weights[1])
    grad = np.tile(rng.standard_normal(WEIGHTS), (2, 1))
    for result in (one, same, other):
        result.step(grad, rates, **numbers)
    assert np.array_equal(one.weights[0], same.weights[1])
    np.testing.assert_allclose(one.weights[0], other.weights[1], rtol=1e-6, atol=1e-7)


@on_both
def test_what_is_no_state_of_the_optimizer(backend):
    own = Moved(backend, "adam", 2)
    with pytest.raises(SaveError, match=r"\['count', 'second'\] is not one of adam"):
        own.optimizer.load(0, Moved(backend, "rmsprop", 1).optimizer.arrays(0))
    with pytest.raises(SaveError, match=r"optimizer state 'count' must be float32 of shape \(1,\), got float32 of "):
        own.optimizer.load(0, own.optimizer.arrays(0) | {"count": np.zeros(2, np.float32)})
    own = Moved(backend, "adamax", 2)
    with pytest.raises(SaveError, match=r"optimizer state 'largest'\[0\] must be from 0 to inf"):
        own.optimizer.load(0, own.optimizer.arrays(0) | {"largest": np.full(WEIGHTS, -1, np.float32)})
