"""Random generators of a user's Keras model, seeded from its agent's generator.

Keras draws from `SeedGenerator`s: variables, which a traced graph reads at every call. The seeds of `tf.random`
operations are fixed at tracing, and seeding TensorFlow again discards all compiled kernels. These operations are
therefore seeded once, when a graph is traced.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from keras.src.backend.common import global_state
from keras.src.random.seed_generator import GLOBAL_SEED_GENERATOR

from marltrain.policies.backends.randomness import numpy_seeded

FAR = 2**20
"""Draws between the random numbers of two workers."""


@contextmanager
def seeded(rng: np.random.Generator) -> Iterator[None]:
    """Seed the global generators of Keras, Python and numpy from an agent's generator; restore them afterwards."""
    seed, lent = int(rng.integers(2**31)), _lent()
    keras_before, python_before = global_state.get_global_attribute(GLOBAL_SEED_GENERATOR), random.getstate()
    with numpy_seeded(seed):
        try:  # from the first change on: a signal may raise anywhere
            lent.state.value.assign([seed, 0])
            global_state.set_global_attribute(GLOBAL_SEED_GENERATOR, lent)
            random.seed(seed)  # layers without a seed draw it from this generator
            yield
        finally:
            random.setstate(python_before)
            global_state.set_global_attribute(GLOBAL_SEED_GENERATOR, keras_before)


@cache
def _lent() -> keras.random.SeedGenerator:
    """Return the generator that replaces Keras's global generator; always the same, since graphs capture it."""
    with tf.init_scope():
        return keras.random.SeedGenerator(0)


def set_apart(place: Any) -> None:
    """Let the worker at index `place` draw other random numbers than the other workers; may be traced."""
    state = _lent().state.value
    state.assign_add(tf.stack([tf.zeros([], state.dtype), tf.cast(place, state.dtype) * FAR]))


def random_states(model: keras.Model) -> list[keras.Variable]:
    """Return the states of the `SeedGenerator`s in a model's layers (dropout, noise and the like)."""
    return [variable for variable in model.variables if variable.name == "seed_generator_state"]


def reseed(states: list[keras.Variable]) -> None:
    """Draw new states of the layers' generators from the generator seeded by `seeded`; may be traced."""
    if states:
        drawn = tf.random.stateless_uniform((len(states), 2), _lent().next(), 0, 2**31 - 1, tf.int64)
        for variable, state in zip(states, tf.unstack(drawn), strict=True):
            variable.value.assign(tf.cast(state, variable.dtype))


def seed_graph() -> None:
    """Seed the `tf.random` operations of the graph being traced; each call of it continues their sequences."""
    if not tf.executing_eagerly():
        tf.compat.v1.set_random_seed(random.getrandbits(31))
