"""What a user's own Keras model draws from, seeded from its agent's stream.

Keras draws from `SeedGenerator`s: variables, which a traced graph reads anew at every call. The operations of
`tf.random` have their seeds fixed when they are traced, and seeding TensorFlow anew throws away every compiled kernel.
So those are given a seed once, when a graph is traced.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

import keras
import numpy as np
import tensorflow as tf
from keras.src.backend.common import global_state
from keras.src.random.seed_generator import GLOBAL_SEED_GENERATOR

from marltrain.policies.backends.randomness import numpy_seeded


@contextmanager
def seeded(rng: np.random.Generator) -> Iterator[None]:
    """Seed the global generators of Keras, Python and numpy from an agent's stream, and put them back afterwards."""
    seed, lent = int(rng.integers(2**31)), _lent()
    keras_before, python_before = global_state.get_global_attribute(GLOBAL_SEED_GENERATOR), random.getstate()
    lent.state.value.assign([seed, 0])
    global_state.set_global_attribute(GLOBAL_SEED_GENERATOR, lent)
    random.seed(seed)  # layers that are made without a seed draw theirs from it
    with numpy_seeded(seed):
        try:
            yield
        finally:
            random.setstate(python_before)
            global_state.set_global_attribute(GLOBAL_SEED_GENERATOR, keras_before)


@cache
def _lent() -> keras.random.SeedGenerator:
    """Return the one generator that takes the place of Keras's global one, and that graphs therefore capture."""
    with tf.init_scope():
        return keras.random.SeedGenerator(0)


def random_states(model: keras.Model) -> list[keras.Variable]:
    """Return the states of the `SeedGenerator`s in a model's layers (dropout, noise and the like)."""
    return [variable for variable in model.variables if variable.name == "seed_generator_state"]


def reseed(states: list[keras.Variable]) -> None:
    """Give the layers' generators new states, drawn from what `seeded` has seeded; may be traced."""
    if states:
        drawn = tf.random.stateless_uniform((len(states), 2), _lent().next(), 0, 2**31 - 1, tf.int64)
        for variable, state in zip(states, tf.unstack(drawn), strict=True):
            variable.value.assign(tf.cast(state, variable.dtype))


def seed_graph() -> None:
    """Fix what the operations of `tf.random` draw in the graph that is being traced; each call draws on."""
    if not tf.executing_eagerly():
        tf.compat.v1.set_random_seed(random.getrandbits(31))
