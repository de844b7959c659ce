"""Trials of a user's Keras model in training."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import keras
import numpy as np

from marltrain.core.layout import Array
from marltrain.policies.backends.own import layers_of
from marltrain.policies.backends.trials import CLOSE, Trial, described, keeps, reads_others


def trial(model: keras.Model, batches: Sequence[Sequence[Any]]) -> Trial:
    """Call a model on two batches whose first rows are equal, with equal random numbers; its variables are restored.

    batches: the inputs.
    """
    trained = {id(variable) for variable in model.trainable_variables}
    own = [variable for variable in model.variables if id(variable) not in trained]
    before, called = _values(own), []
    for batch in batches:
        out = model(*batch, training=True)
        called.append((np.asarray(out)[0], _values(own)))
        for variable, value in zip(own, before, strict=True):
            variable.assign(value)
    (one, first), (other, second) = called
    for variable, here, there in zip(own, first, second, strict=True):
        if not np.array_equal(here, there):
            return Trial(couples=keeps(_owner(model, variable)))
    if not np.allclose(one, other, rtol=CLOSE, atol=CLOSE, equal_nan=True):
        return Trial(couples=reads_others(described("", model)))
    for variable, here, was in zip(own, first, before, strict=True):
        if not np.array_equal(here, was):
            return Trial(changes=f"{_owner(model, variable)} changes {variable.name} in every call")
    return Trial()


def statistics_of(model: keras.Model) -> str | None:
    """Return `Trial.couples` for the first layer of Keras that keeps statistics over a batch."""
    found = [layer for layer in layers_of(model) if isinstance(layer, keras.layers.BatchNormalization)]
    return keeps(described(found[0].name, found[0])) if found else None


def _values(variables: Sequence[Any]) -> list[Array]:
    return [np.array(variable.numpy()) for variable in variables]


def _owner(model: keras.Model, variable: Any) -> str:
    """Return the innermost layer of a variable as text."""
    owners = [layer for layer in layers_of(model) if any(own is variable for own in layer.variables)]
    return described(owners[-1].name, owners[-1]) if owners else described("", model)
