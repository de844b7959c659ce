"""A pass in a single call equals its phases one by one: delayed phases, agents without rows, target networks."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

import marltrain as mt
from marltrain.policies.algorithms.ddpg import DDPGAlgorithm
from marltrain.policies.learner.gradient_pass import GradientPass
from tests.policies.learner.test_learner import stacked
from tests.policies.some_batches import VECTOR, some_transitions

BOX, CHOICES = spaces.Box(-2, 3, (2,), np.float32), spaces.Discrete(4)
LEARN = [[True, True, True], [True, False, True], [False, True, True], [True, True, False]]
"""Agents that learn in four updates; a phase on every second pass is then due for some of them only."""


@pytest.mark.parametrize(
    ("kind", "actions", "options"),
    [
        (mt.TD3, BOX, {"policy_delay": 2}),
        (mt.SAC, BOX, {}),
        (mt.SAC, CHOICES, {"temperature": 0.3}),
        (mt.C51, CHOICES, {"target_sync": 2}),
        (mt.DDPG, BOX, {"optimizer": "adamw", "weight_decay": 0.1}),
    ],
)
def test_a_pass_in_a_single_call_equals_its_phases(kind, actions, options):
    agents = [
        kind(VECTOR, actions, seed=k, network=mt.MLP((9,)), learning_rate=0.01 * (k + 1), **options) for k in range(3)
    ]
    apart, together = stacked(agents), stacked(agents)
    together.steps.whole = GradientPass(together.steps.steps)
    rng = np.random.default_rng(0)
    for i, learns in enumerate(LEARN):
        if i == 1:
            for learner in (apart, together):
                learner.steps.measure_noise(on=True)
        batch = some_transitions(rng, VECTOR, actions, 3, 7, masked=actions is CHOICES)
        batch.weight[1, 5:] = 0.0
        given = np.array(learns)
        first, second = (learner.update(batch, learn=given, batch_size=7) for learner in (apart, together))
        assert first.keys() == second.keys()
        for name, values in first.items():
            np.testing.assert_array_equal(np.where(given, values, 0.0), np.where(given, second[name], 0.0), name)
    for row in range(3):
        one, other = apart.export(row), together.export(row)
        assert one.info == other.info
        for name, array in one.arrays.items():
            np.testing.assert_array_equal(array, other.arrays[name], name)


def test_a_pass_in_which_no_phase_is_due_moves_no_trained_weight():
    learner = stacked([mt.TD3(VECTOR, BOX, seed=k, network=mt.MLP((9,))) for k in range(2)])
    learner.steps.whole = GradientPass(learner.steps.steps)
    for step in learner.steps.steps:
        step.phase = replace(step.phase, every=2)
    learner.gradient_steps += 1
    before, batch = learner.export(0).arrays, some_transitions(np.random.default_rng(0), VECTOR, BOX, 2, 7)
    learner.update(batch, learn=np.ones(2, bool), batch_size=7)
    assert learner.gradient_steps.tolist() == [2, 2]
    for name, array in learner.export(0).arrays.items():
        np.testing.assert_array_equal(array, before[name], name)


def test_two_phases_that_draw_by_the_same_name_get_their_own_numbers():
    """Both passes of DDPG's critic and actor add the sum of `noise`; the second call draws on where the first ended."""

    def noisy(phase: Any) -> Any:
        def draw(rngs, rows):
            return {"noise": np.stack([rng.standard_normal(rows).astype(np.float32) for rng in rngs])}

        def loss(ops, nets, batch, hyper):
            value, metrics = phase.loss(ops, nets, batch, hyper)
            return value, {**metrics, f"noise/{phase.name}": ops.sum(batch.noise, -1)}

        return replace(phase, draw=draw, loss=loss)

    class Noisy(DDPGAlgorithm):
        @property
        def phases(self) -> Any:
            return tuple(map(noisy, super().phases))

    class NoisyAgent(mt.DDPG):
        algorithm_class = Noisy

    agents = [NoisyAgent(VECTOR, BOX, seed=k, network=mt.MLP((9,))) for k in range(2)]
    apart, together = stacked(agents), stacked(agents)
    together.steps.whole = GradientPass(together.steps.steps)
    rngs, rng = [deepcopy(rng) for rng in apart.rngs("update")], np.random.default_rng(0)
    names = [f"noise/{step.phase.name}" for step in apart.steps]
    assert len(names) == 2
    for _ in range(2):
        batch = some_transitions(rng, VECTOR, BOX, 2, 7)
        expected = [[own.standard_normal(7).astype(np.float32).sum() for own in rngs] for _ in names]
        for learner in (apart, together):
            measured = learner.update(batch, learn=np.ones(2, bool), batch_size=7)
            np.testing.assert_allclose([measured[name] for name in names], expected, rtol=1e-5)
