"""VDN: its mixed value, target and gradients by hand."""

from __future__ import annotations

import numpy as np
import pytest
from gymnasium import spaces

import marltrain as mt
from marltrain.errors import ConfigError, SpecError
from marltrain.policies.backends import make_backend
from tests.policies.algorithms.mixing import BOTH, SPACES, WEIGHTS, array, linear, linear_team, two_steps


@pytest.mark.parametrize("backend", ["torch", "tensorflow"])
def test_the_mixed_value_is_the_sum_of_the_chosen_ones(backend):
    (agent, _), _ = linear_team(mt.VDN)
    made = make_backend(backend, "cpu")
    values = np.random.default_rng(0).standard_normal((1, 4, 5)).astype(np.float32)
    total = agent.algorithm.mixed(made.ops, None, made.tensor(values), target=False)
    np.testing.assert_allclose(made.numpy(total), values.sum(-1), atol=1e-6)


@pytest.mark.parametrize("backend", ["torch", "tensorflow"])
def test_target_and_gradients_by_hand(backend):
    """The values of both players, over the batch steps of `two_steps`.

    Chosen: 0: [1 2] W = (5, -1), so 5; [1 0 1] W + b = (0, 1, 4), so 4; Q_tot = 9.
            1: (2, 0), so 0; (1, 0, 3), so 1; Q_tot = 1.   2: (4, 0), so 4, and player 1 is absent; Q_tot = 4.
    Next:   0: online (2, 0) and (1, 0, 3) choose 0 and 2; the target networks give 3 and -2; y = 2 + 0.5 * 1 = 2.5.
            1: y = -1.   2: cut: online (3, 0) chooses 0, target 4; y = 4 + 0.5 * 4 = 6.
    Errors: 6.5, 2, -2; the loss is (42.25 + 4 + 4) / 3; its gradients by Q_tot are 2/3 of the errors: 13/3, 4/3, -4/3.
    """
    agents, learner = linear_team(mt.VDN, backend=backend)
    metrics = learner.update(two_steps(), learn=BOTH, batch_size=3)
    np.testing.assert_allclose(metrics["loss/total"], [50.25 / 3] * 2, rtol=1e-6)
    np.testing.assert_allclose(metrics["q_mean"], [14 / 3] * 2, rtol=1e-6)
    gradients = [
        # action 0 in steps 0 and 2, 1 in step 1
        ([[13 - 8, 0], [26 - 4, 4]], [13 - 4, 4]),
        # action 2 in step 0, 0 in step 1; step 2 gives no gradient
        ([[0, 0, 13], [4, 0, 0], [0, 0, 13]], [4, 0, 13]),
    ]
    for agent, before, gradient in zip(agents, WEIGHTS["q"], gradients, strict=True):
        for now, was, slope in zip(linear(agent), before, gradient, strict=True):
            np.testing.assert_allclose(now, array(was) - array(slope) / 3, atol=1e-5)
    norms = [np.sqrt(sum(np.square(array(part)).sum() for part in each)) / 3 for each in gradients]
    np.testing.assert_allclose(metrics["grad_norm/q"], norms, rtol=1e-5)


def test_the_gradient_of_the_team_is_clipped_as_one():
    free, learner = linear_team(mt.VDN)
    learner.update(two_steps(), learn=BOTH, batch_size=3)
    bound, learner = linear_team(mt.VDN, max_grad_norm=1.0)
    metrics = learner.update(two_steps(), learn=BOTH, batch_size=3)
    norm = np.sqrt(np.square(metrics["grad_norm/q"]).sum())
    for agent, other, before in zip(free, bound, WEIGHTS["q"], strict=True):
        for far, near, was in zip(linear(agent), linear(other), before, strict=True):
            np.testing.assert_allclose(near - array(was), (far - array(was)) / norm, atol=1e-5)


def test_vdn_needs_discrete_actions_and_the_size_of_the_team():
    with pytest.raises(SpecError, match="VDN needs a Discrete action space"):
        mt.VDN(SPACES[0][0], spaces.Box(-1, 1, (2,), np.float32), team_size=2)
    with pytest.raises(ConfigError, match=r"vdn: agents learn together in a team, .*make_agents\('vdn', env\)"):
        mt.VDN(*SPACES[0])
