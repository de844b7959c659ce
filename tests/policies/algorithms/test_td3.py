"""TD3: its target worked out by hand, and which updates train the actor."""

from __future__ import annotations

import numpy as np
import pytest
from gymnasium import spaces

import marltrain as mt
from marltrain.policies.learner.algorithm_learner import AlgorithmLearner
from tests.policies.algorithms.twins import ON, rows_of
from tests.policies.backends.both import TORCH
from tests.policies.some_batches import VECTOR, some_transitions

LEVER = spaces.Box(-3.0, 5.0, (1,), np.float32)


def test_the_target_by_hand(monkeypatch):
    """Linear critics 1 + 2 a and 3 - a of the target's action: tanh(b) plus noise, held at 0.5 and at the bounds."""
    agent = mt.TD3(VECTOR, LEVER, seed=0, network=mt.MLP(()), learning_rate=0.0, target_noise=0.2)
    state = agent.learner_.export(0)
    for name, array in state.arrays.items():
        if name.startswith("net/"):
            array[...] = 0.0
    state.arrays["net/target_actor/head0.bias"][:] = np.arctanh(0.25)
    state.arrays["net/target_critic/head0.weight"][:, -1, 0] = [2.0, -1.0]
    state.arrays["net/target_critic/head0.bias"][:, 0] = [1.0, 3.0]
    agent.learner_.load(0, state)
    batch = some_transitions(np.random.default_rng(0), VECTOR, LEVER, 1, 4)
    batch.reward[0], batch.discount[0] = [1.0, 0.0, 0.0, 7.0], [0.5, 1.0, 1.0, 0.0]
    noise = np.array([1.0, 4.0, -9.0, 0.0], np.float32).reshape(1, 4, 1)
    monkeypatch.setattr(agent.learner_.draws, "of_phase", lambda number, rows: {"smoothing": noise})
    metrics = agent.learner_.update(batch, learn=ON, batch_size=4)
    # actions 0.25 + 0.2, 0.25 + 0.5 and 0.25 - 0.5; values min(1.9, 2.55), min(2.5, 2.25), min(0.5, 3.25)
    targets = np.array([1 + 0.5 * 1.9, 2.25, 0.5, 7.0])
    assert metrics["loss/critic"][0] == pytest.approx(2 * np.square(targets).mean(), rel=1e-5)
    assert metrics["q_mean"][0] == 0


def test_the_actor_and_the_targets_follow_every_third_update():
    agent, rng = mt.TD3(VECTOR, LEVER, seed=0, network=mt.MLP((6,)), policy_delay=3), np.random.default_rng(0)
    trained, followed = [], []
    for _ in range(7):
        before = agent.learner_.export(0).arrays
        metrics = agent.learner_.update(rows_of(rng, LEVER), learn=ON, batch_size=13)
        after = agent.learner_.export(0).arrays
        trained.append(bool((before["net/actor/hidden0.weight"] != after["net/actor/hidden0.weight"]).any()))
        followed.append(
            bool((before["net/target_critic/head0.weight"] != after["net/target_critic/head0.weight"]).any())
        )
        assert ("loss/actor" in metrics) == trained[-1]
        assert (before["net/critic/hidden0.weight"] != after["net/critic/hidden0.weight"]).any()
    assert trained == followed == [True, False, False, True, False, False, True]


def test_agents_of_one_learner_may_train_their_actors_in_different_updates():
    """One agent has paused once: each actor is trained in its own updates, and the other's metrics are skipped."""
    learner = AlgorithmLearner(
        mt.TD3(VECTOR, LEVER, seed=0, network=mt.MLP((6,))).algorithm, TORCH, [0, 1], draw=True
    )  # fmt: skip
    rng = np.random.default_rng(0)
    for i, active in enumerate([[True, True], [True, False], [True, True], [True, True]]):
        batch = some_transitions(rng, VECTOR, LEVER, 2, 7)
        metrics = learner.update(batch, learn=np.array(active), batch_size=7)
        assert np.isnan(metrics["loss/critic"]).tolist() == [not on for on in active]
        if i >= 2:
            skipped = [i == 3, i == 2]
            assert learner.skipped["loss/actor"].tolist() == np.isnan(metrics["loss/actor"]).tolist() == skipped
