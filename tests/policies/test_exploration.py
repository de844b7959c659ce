"""Epsilon-greedy: each row tosses its own coin, and chooses among legal actions."""

from __future__ import annotations

import numpy as np
import torch

from marltrain.policies.backends.torch import ops
from marltrain.policies.exploration import epsilon_greedy, epsilon_noise


def test_by_hand():
    q = torch.tensor([[[1.0, 3.0, 2.0]] * 4, [[1.0, 3.0, 2.0]] * 4])
    noise = {
        "coin": torch.tensor([[0.1, 0.3, 0.1, 0.5], [0.1, 0.3, 0.6, 0.5]]),
        "choice": torch.tensor([[[0.9, 0.2, 0.5]] * 4] * 2),
    }
    explore = torch.tensor([[True, True, False, True], [True, True, True, True]])
    epsilon = torch.tensor([[0.2], [0.5]])
    made = epsilon_greedy(ops, q, None, noise, explore, epsilon)
    assert made.tolist() == [[0, 1, 1, 1], [0, 0, 1, 1]]
    legal = torch.tensor([False, True, True]).expand(2, 4, 3)
    made = epsilon_greedy(ops, q, legal, noise, explore, epsilon)
    assert made.tolist() == [[2, 1, 1, 1], [2, 2, 1, 1]]


def test_epsilon_zero_never_and_one_always_explores():
    noise = {name: torch.from_numpy(a) for name, a in epsilon_noise([np.random.default_rng(0)], 5000, 4).items()}
    q = torch.tensor([9.0, 0.0, 0.0, 0.0]).expand(1, 5000, 4)
    on = torch.ones(1, 5000, dtype=torch.bool)
    assert (epsilon_greedy(ops, q, None, noise, on, torch.zeros(1, 1)) == 0).all()
    taken = epsilon_greedy(ops, q, None, noise, on, torch.ones(1, 1))
    shares = torch.bincount(taken[0], minlength=4) / 5000
    assert (shares - 0.25).abs().max() < 0.031  # five standard deviations


def test_each_agent_draws_from_its_own_stream():
    both = epsilon_noise([np.random.default_rng(0), np.random.default_rng(1)], 3, 2)
    alone = epsilon_noise([np.random.default_rng(1)], 3, 2)
    assert both["coin"].shape == (2, 3)
    assert both["choice"].shape == (2, 3, 2)
    for name in both:
        assert (both[name][1] == alone[name][0]).all()
        assert (both[name][0] != alone[name][0]).all()
