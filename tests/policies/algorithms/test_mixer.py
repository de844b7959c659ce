"""The mixing network increases in every value, whatever the state and its weights."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from marltrain.policies.algorithms.mixer import MonotonicMixer
from marltrain.policies.backends import numpy_ops
from marltrain.policies.networks.specs import Plan

STATES, PLAYERS = 4, 3
SETTINGS = SimpleNamespace(team_size=PLAYERS, state_size=STATES, mixing_units=5, hyper_units=6, mixer_input="state")


@pytest.mark.parametrize("skip", [False, True])
def test_raising_a_value_never_lowers_that_of_the_team(skip):
    """1,000 random states and weights; each player's value is raised in turn."""
    mixer = MonotonicMixer(SETTINGS, skip=skip)
    plan, rng = Plan(mixer.network()), np.random.default_rng(0)
    rises = []
    for _ in range(1_000):
        weights = [rng.normal(0, 0.5, (1, *parameter.shape)) for parameter in plan.parameters]
        raised = np.concatenate([np.zeros((1, PLAYERS)), np.diag(rng.exponential(3, PLAYERS))])
        state, values = np.tile(rng.normal(size=STATES), (1, 4, 1)), (rng.normal(0, 2, PLAYERS) + raised)[None]
        total = mixer.mixed(numpy_ops, lambda s, given=weights: plan.forward(numpy_ops, given, s), values, state)[0]
        rises.append(total[1:] - total[0])
    assert np.min(rises) >= 0
    assert np.mean(np.array(rises) > 0) > 0.99


def test_the_skip_connection_adds_the_sum_of_the_values():
    """Without weights in the last layer, nothing else is left."""
    mixer, rng = MonotonicMixer(SETTINGS, gain=0.0, skip=True), np.random.default_rng(0)
    plan = Plan(mixer.network())
    weights = [parameter.draw(rng)[None] for parameter in plan.parameters]
    values, state = np.array([[[1.0, -20.0, 3.0], [0.5, 0.0, -2.0]]]), rng.normal(size=(1, 2, STATES))
    total = mixer.mixed(numpy_ops, lambda s: plan.forward(numpy_ops, weights, s), values, state)
    np.testing.assert_allclose(total, [[-16.0, -1.5]])


def test_weights_stay_bounded_in_states_far_from_those_of_training():
    plan, rng = Plan(MonotonicMixer(SETTINGS).network()), np.random.default_rng(0)
    weights = [parameter.draw(rng)[None] for parameter in plan.parameters]
    state = rng.normal(size=(1, 50, STATES))
    near, far = (np.abs(plan.forward(numpy_ops, weights, scale * state)[0]).max() for scale in (10.0, 10_000.0))
    assert far < 1.5 * near
