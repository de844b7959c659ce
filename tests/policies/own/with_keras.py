"""A user's own models and losses in Keras; `with_torch` writes the same ones."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import tensorflow as tf
from keras import layers

import marltrain as mt

FRAMEWORK = "tensorflow"
VARIABLES = "variables"


class Twins(keras.Model):
    """A Q-network and its target."""

    def __init__(self, inputs: int, actions: int, seed: int = 0, dropout: float = 0.0) -> None:
        super().__init__()
        keras.utils.set_random_seed(seed)
        hidden = layers.Dense(16, activation="tanh")
        self.online = keras.Sequential([keras.Input((inputs,)), hidden, layers.Dropout(dropout), layers.Dense(actions)])
        self.target = keras.models.clone_model(self.online)
        follow(self)

    def call(self, obs, training=False):
        return self.online(obs, training=training)


def q_loss(model, batch):
    """Double Q-learning with the Huber loss, as marltrain's DQN has it."""
    judge = model.online(batch.next_obs)
    if batch.next_legal is not None:
        judge = tf.where(batch.next_legal, judge, -1e9)
    best = tf.gather(model.target(batch.next_obs), tf.argmax(judge, 1), batch_dims=1)
    error = tf.gather(model(batch.obs, training=True), batch.action, batch_dims=1)
    error -= tf.stop_gradient(batch.reward + batch.discount * best)
    huber = tf.where(tf.abs(error) < 1, 0.5 * error**2, tf.abs(error) - 0.5)
    return tf.reduce_sum(huber * batch.weight) / tf.reduce_sum(batch.weight)


def follow(model):
    model.target.set_weights(model.online.get_weights())


def q_agent(inputs, actions, seed=0, rate=1e-2, dropout=0.0, rule=None, **settings):
    model = Twins(inputs, actions, seed, dropout)
    kept = {"batch_size": 32, "update_per_step": 0.5, "epsilon": 0.2, "gamma": 0.9, **settings}
    return mt.CustomAgent(model, q_loss, (rule or adam)(rate, model.online), after_update=follow, **kept)


class ActorCritic(keras.Model):
    def __init__(self, inputs: int, actions: int, seed: int = 0) -> None:
        super().__init__()
        keras.utils.set_random_seed(seed)
        self.shared = keras.Sequential([keras.Input((inputs,)), layers.Dense(8, activation="tanh")])
        self.actor = keras.Sequential([keras.Input((8,)), layers.Dense(actions)])
        self.critic = keras.Sequential([keras.Input((8,)), layers.Dense(1)])

    def logits(self, obs, legal):
        logits = self.actor(self.shared(obs))
        return logits if legal is None else tf.where(legal, logits, -1e9)

    def value(self, obs):
        return self.critic(self.shared(obs))[:, 0]


def critic_loss(model, batch):
    target = tf.stop_gradient(batch.reward + batch.discount * model.value(batch.next_obs))
    return tf.reduce_mean((model.value(batch.obs) - target) ** 2)


def actor_loss(model, batch):
    advantage = batch.reward + batch.discount * model.value(batch.next_obs) - model.value(batch.obs)
    log_prob = tf.gather(tf.nn.log_softmax(model.logits(batch.obs, batch.legal)), batch.action, batch_dims=1)
    return -tf.reduce_mean(log_prob * advantage)  # the gradient goes through the advantage too


def sample(model, obs, legal, explore, rng):
    logits = model.logits(obs, legal)
    drawn = keras.random.categorical(logits, 1)[:, 0]
    return tf.where(explore, tf.cast(drawn, tf.int64), tf.argmax(logits, 1))


def actor_critic_agent(inputs, actions, seed=0, model=None, only=None, rule=None, **settings):
    """Make an agent of two phases, or of `only` one of them."""
    model, rule = model or ActorCritic(inputs, actions, seed), rule or adam
    critic, actor = rule(2e-2, model.critic), rule(2e-2, model.actor, model.shared)
    phases = {"critic": (critic_loss, critic), "actor": (actor_loss, actor)}
    losses, optimizers = zip(*([phases[only]] if only else phases.values()), strict=True)
    kept = {"gamma": 0.5, "update_freq": 40, "minibatches": 1, **settings}
    return mt.CustomAgent(model, list(losses), list(optimizers), act_fn=sample, memory=mt.Rollouts(), **kept)


def linear(inputs, outputs, kernel: Any = None):
    """Make [B, inputs] -> [B, outputs] without a bias, from a kernel [inputs, outputs]."""
    model = keras.Sequential([keras.Input((inputs,)), layers.Dense(outputs, use_bias=False)])
    if kernel is not None:
        model.set_weights([np.asarray(kernel, np.float32)])
    return model


def adam(rate, *parts):
    """Pair the optimizer with its variables."""
    return keras.optimizers.Adam(rate, epsilon=1e-8), [v for part in parts for v in part.trainable_variables]


def momentum(rate, *parts):
    """Build the optimizer for its variables."""
    optimizer = keras.optimizers.SGD(rate, momentum=0.9)
    optimizer.build([v for part in parts for v in part.trainable_variables])
    return optimizer


def sgd(rate, *parts):
    """Leave it unbuilt: it steps the whole model."""
    return keras.optimizers.SGD(rate)


EXACT = {"sgd": sgd}
"""The optimizers that compute as marltrain's of the same names, to float rounding."""


def squares(model, batch):
    return tf.reduce_mean(model(batch.obs) ** 2)


def arrays(model) -> list[np.ndarray]:
    """Return a model's weights in order, kernels as [inputs, outputs]."""
    return model.get_weights()


def fill(model, values) -> None:
    model.set_weights(values)


def draw() -> None:
    """Draw from the framework's global generators, as code elsewhere may."""
    keras.random.normal((int(np.random.randint(1, 9)),))
    tf.random.normal((3,))


WRONG_LOSSES = [
    (lambda model, batch: tf.reduce_mean(model(batch.obs), 1), r"must return a scalar tensor, got a tensor of shape"),
    (lambda model, batch: 0.0, "must return a scalar tensor, got a float"),
    (lambda model, batch: tf.reduce_mean(batch.reward), "depends on none of its optimizer's variables"),
    (lambda model, batch: tf.reduce_mean(model.target(batch.obs)), "depends on none of its optimizer's variables"),
]
