"""Regularizers of Keras models, in agents with losses of a user's own and in marltrain's algorithms."""

from typing import Any, cast

import keras
import numpy as np
import pytest
import tensorflow as tf
from gymnasium import spaces
from keras import layers

import marltrain as mt
from tests.policies.own import with_keras
from tests.policies.some_batches import some_transitions

VECTOR = spaces.Box(-1, 1, (5,), np.float32)
KERNEL = np.array([[1.0, -2.0], [0.5, 3.0], [2.0, 0.0], [-1.0, 1.0], [0.0, 2.0]], np.float32)


def linear(**how: Any) -> Any:
    model = keras.Sequential([keras.Input((5,)), layers.Dense(2, use_bias=False, **how)])
    model.set_weights([KERNEL])
    return model


@pytest.mark.parametrize("jit_compile", [False, True])
@pytest.mark.parametrize("limit", [None, 0.5])
def test_weight_regularizers_of_keras_are_part_of_the_loss(jit_compile, limit):
    """One pass of plain SGD by hand: the gradient of sum(W^2) * 0.1 is 0.2 W, beside that of the loss itself."""
    model = linear(kernel_regularizer=keras.regularizers.L2(0.1))
    agent = mt.CustomAgent(
        model, lambda model, batch: tf.reduce_mean(model(batch.obs)), keras.optimizers.SGD(0.5),
        jit_compile=jit_compile, max_grad_norm=limit,
    )  # fmt: skip
    batch = some_transitions(np.random.default_rng(0), VECTOR, 2, 1, 16)
    metrics, _ = agent.learn(batch, 16)
    obs = np.asarray(cast(Any, batch.obs)[0])
    gradient = np.repeat(obs.mean(0)[:, None] / 2, 2, 1) + 0.2 * KERNEL
    norm = np.linalg.norm(gradient)
    assert metrics["loss/total"] == pytest.approx((obs @ KERNEL).mean() + 0.1 * (KERNEL**2).sum(), rel=1e-5)
    assert metrics["grad_norm/total"] == pytest.approx(norm, rel=1e-5)
    shrunk = gradient * (1.0 if limit is None else min(1.0, limit / norm))
    np.testing.assert_allclose(model.get_weights()[0], KERNEL - 0.5 * shrunk, atol=1e-5)


def test_a_phase_is_regularized_by_its_own_weights():
    """The weights of the other phase add nothing, neither to the loss nor twice to their own gradient."""
    regular = {name: layers.Dense(1, use_bias=False, kernel_regularizer="l2") for name in ("actor", "critic")}
    seen = keras.Input((5,))
    model = keras.Model(seen, [layer(seen) for layer in regular.values()])
    model.set_weights([np.full((5, 1), 2.0), np.full((5, 1), 3.0)])
    model.actor, model.critic = regular.values()
    losses = {
        "actor": lambda model, batch: 0.0 * tf.reduce_sum(model(batch.obs)[0]),
        "critic": lambda model, batch: 0.0 * tf.reduce_sum(model(batch.obs)[1]),
    }
    agent = mt.CustomAgent(model, losses, {name: keras.optimizers.SGD(1.0) for name in losses})
    metrics, _ = agent.learn(some_transitions(np.random.default_rng(0), VECTOR, 3, 1, 16), 16)
    assert [metrics["loss/actor"], metrics["loss/critic"]] == pytest.approx([0.2, 0.45])
    np.testing.assert_allclose(np.ravel(model.get_weights()), [1.96] * 5 + [2.94] * 5, rtol=1e-6)


class AddsLoss(layers.Layer):
    def call(self, x):
        self.add_loss(tf.reduce_sum(x))
        return x


def test_losses_that_depend_on_the_call_are_refused():
    active = keras.Sequential([keras.Input((5,)), layers.Dense(3, name="wide", activity_regularizer="l2")])
    with pytest.raises(
        mt.AgentError, match=r"layer 'wide' has an activity regularizer\. Such a loss depends on the call"
    ):
        mt.CustomAgent(active, with_keras.squares, keras.optimizers.SGD(0.1))
    agent = mt.CustomAgent(
        keras.Sequential([keras.Input((5,)), layers.Dense(3), AddsLoss()]),
        with_keras.squares,
        keras.optimizers.SGD(0.1),
    )
    with pytest.raises(mt.AgentError, match="one of its layers calls add_loss"):
        agent.learn(some_transitions(np.random.default_rng(0), VECTOR, 3, 1, 16), 16)


@pytest.mark.parametrize("jit_compile", [False, True])
def test_dqn_adds_the_regularizers_of_a_model_of_ones_own(jit_compile):
    """Beside a twin without: the same loss, and 0.2 W more in the gradient of plain SGD."""
    batch = some_transitions(np.random.default_rng(0), VECTOR, 2, 1, 16)
    moved = []
    for how in ({}, {"kernel_regularizer": keras.regularizers.L2(0.1)}):
        agent = mt.DQN(
            VECTOR, spaces.Discrete(2), network=linear(**how), learning_rate=0.5, optimizer="sgd", max_grad_norm=None,
            backend="tensorflow", jit_compile=jit_compile, seed=0,
        )  # fmt: skip
        metrics = agent.learner_.update(batch, learn=np.ones(1, bool), batch_size=16)
        moved.append((agent.learner_.weights.online["q"].arrays(0)["0.kernel"], metrics))
    (plain, one), (regular, two) = moved
    np.testing.assert_allclose(regular, plain - 0.5 * 0.2 * KERNEL, atol=1e-5)
    assert one["loss/total"] == pytest.approx(two["loss/total"])
    assert two["regularization/q"] == pytest.approx(0.1 * (KERNEL**2).sum())
    assert "regularization/q" not in one


def test_an_algorithm_refuses_losses_that_depend_on_the_call():
    with pytest.raises(mt.AgentError, match="has an activity regularizer"):
        mt.DQN(VECTOR, spaces.Discrete(2), network=linear(activity_regularizer="l2"), backend="tensorflow")
    model = keras.Sequential([keras.Input((5,)), layers.Dense(2), AddsLoss()])
    with pytest.raises(mt.AgentError, match="one of its layers calls add_loss"):
        mt.DQN(VECTOR, spaces.Discrete(2), network=lambda: model, backend="tensorflow")
