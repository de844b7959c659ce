"""Loss terms of PPO, worked out by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from marltrain.policies.algorithms.ppo import approx_kl, clipped_surrogate, clipped_value_loss
from marltrain.policies.backends.torch import ops
from tests.policies.backends.both import BOTH, value_and_gradients


def row(*values):
    return torch.tensor([values])


def test_the_surrogate_is_pessimistic_on_both_sides():
    ratio, advantage = row(0.5, 1.5, 0.5, 1.5, 1.1), row(1.0, 1.0, -1.0, -1.0, 2.0)
    result = clipped_surrogate(ops, ratio, advantage, torch.tensor([[0.2]]))
    assert result.tolist() == [pytest.approx([0.5, 1.2, -0.8, -1.5, 2.2])]


def test_each_agent_has_its_own_clip():
    result = clipped_surrogate(ops, torch.full((2, 1), 3.0), torch.ones(2, 1), torch.tensor([[0.2], [1.0]]))
    assert result.tolist() == [pytest.approx([1.2]), pytest.approx([2.0])]


def test_value_clipping():
    value, old, target = row(2.0, 2.0, 0.1), row(0.0, 0.0, 0.0), row(1.0, 3.0, 1.0)
    result = clipped_value_loss(ops, value, old, target, torch.tensor([[0.5]]))
    assert result.tolist() == [pytest.approx([1.0, 6.25, 0.81])]  # |2-1| > |.5-1|; |.5-3| > |2-3|; not clipped
    free = clipped_value_loss(ops, value, old, target, torch.tensor([[math.inf]]))
    assert free.tolist() == [pytest.approx([1.0, 1.0, 0.81])]


def test_approximate_kl():
    result = approx_kl(ops, row(0.0, math.log(2.0), -1.0))
    assert result.tolist() == [pytest.approx([0.0, 1.0 - math.log(2.0), math.exp(-1.0)], abs=1e-6)]


@pytest.mark.parametrize("backend", BOTH.values(), ids=BOTH)
def test_where_two_terms_are_equal_the_gradient_is_that_of_either(backend):
    """At a ratio of 1 and an unmoved value, where an epoch begins; the frameworks share a tie's slope differently."""
    one, ones = np.ones((1, 2), np.float32), backend.tensor(np.ones((1, 2), np.float32))

    def surrogate(ratio):
        return clipped_surrogate(backend.ops, ratio, 2.0 * ones, 0.2 * ones)

    def value_loss(value):
        return clipped_value_loss(backend.ops, value, ones, 3.0 * ones, 0.2 * ones)

    for term, value, slope in ((surrogate, 2.0, 2.0), (value_loss, 4.0, -4.0)):
        result, grad = value_and_gradients(backend, term, one)
        assert result.tolist() == [[value, value]]
        assert grad.tolist() == [[2 * value * slope] * 2]  # of the square
