"""Keras models travel to other processes with the classes of the user's script."""

from __future__ import annotations

import cloudpickle
import keras
import numpy as np
import pytest
from keras import layers

from marltrain.policies.backends.tensorflow.sending import pickled


class Scaled(layers.Layer):
    """A layer that Keras has not registered."""

    def build(self, shape):
        self.scale = self.add_weight(shape=(shape[-1],), initializer="ones", name="scale")

    def call(self, x):
        return x * self.scale


class Sum(keras.Model):
    def __init__(self, width):
        super().__init__()
        self.first, self.scaled = layers.Dense(width), Scaled()

    def call(self, x):
        return self.scaled(self.first(x))


class Wide(Sum):
    """Its argument is no plain value, and it has no get_config."""

    def __init__(self, make):
        super().__init__(make())
        self.make, self.both = make, {"a": self.first, "b": [self.scaled]}


def functional():
    given = keras.Input((3,))
    wide = layers.Dense(4, activation=lambda x: x + 1.0)(given)
    return keras.Model(given, Scaled()(layers.Concatenate()([wide, keras.ops.tanh(given)])))


@pytest.mark.parametrize(
    "build", [lambda: keras.Sequential([keras.Input((3,)), Scaled()]), lambda: Wide(lambda: 2), functional]
)
def test_a_model_and_what_refers_to_it(build):
    """Classes without a configuration, layers in lists, functions as activations; variables keep their identity."""
    model, x = build(), np.ones((2, 3), np.float32)
    model(x)
    model.set_weights([weight + 0.5 for weight in model.get_weights()])
    twin, (again, variable) = cloudpickle.loads(pickled((model, (model, model.trainable_variables[-1]))))
    assert again is twin
    assert variable is twin.trainable_variables[-1]
    np.testing.assert_array_equal(model(x).numpy(), twin(x).numpy())
    before = model(x).numpy()
    variable.assign(variable + 1.0)
    assert not np.array_equal(before, twin(x).numpy())
    assert np.array_equal(before, model(x).numpy())
