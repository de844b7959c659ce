"""DDPG: its losses worked out by hand."""

from __future__ import annotations

import numpy as np
import pytest
from gymnasium import spaces

import marltrain as mt
from tests.policies.algorithms.twins import ON
from tests.policies.some_batches import VECTOR, some_transitions

LEVER = spaces.Box(-3.0, 5.0, (1,), np.float32)


def test_losses_by_hand():
    """A critic 3 a + 1 and its target 2 a, an actor that always says 0.5 and its target -0.5; no learning."""
    agent = mt.DDPG(VECTOR, LEVER, seed=0, network=mt.MLP(()), learning_rate=0.0)
    state = agent.learner_.export(0)
    for name, array in state.arrays.items():
        if name.startswith("net/"):
            array[...] = 0.0
    state.arrays["net/actor/head0.bias"][:] = np.arctanh(0.5)
    state.arrays["net/target_actor/head0.bias"][:] = np.arctanh(-0.5)
    state.arrays["net/critic/head0.weight"][-1], state.arrays["net/critic/head0.bias"][:] = 3.0, 1.0
    state.arrays["net/target_critic/head0.weight"][-1] = 2.0
    agent.learner_.load(0, state)
    batch = some_transitions(np.random.default_rng(0), VECTOR, LEVER, 1, 3)
    batch.action[0, :, 0] = [1.0, 5.0, 99.0]  # 0, 1, and beyond the bounds 1
    batch.reward[0], batch.discount[0] = [1.0, 2.0, 0.0], [0.5, 0.0, 0.9]
    metrics = agent.learner_.update(batch, learn=ON, batch_size=3)
    # targets 1 - 0.5, 2 and -0.9; values 1, 4 and 4
    assert metrics["loss/critic"][0] == pytest.approx((0.5**2 + 2.0**2 + 4.9**2) / 3, rel=1e-5)
    assert metrics["q_mean"][0] == pytest.approx(3.0)
    assert metrics["loss/actor"][0] == pytest.approx(-(3 * 0.5 + 1), rel=1e-5)
