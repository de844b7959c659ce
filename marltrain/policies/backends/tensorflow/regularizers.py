"""Regularizers of Keras models: the weight penalties, and a check for kinds that are not supported."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf
from tensorflow import Tensor

from marltrain.core.errors import AgentError
from marltrain.policies.backends.own import layers_of


def penalty(variables: Sequence[Any]) -> Tensor | None:
    """Return the sum of the weight regularizers of Keras variables, a float32 scalar; None without regularizers."""
    terms = [tf.cast(v.regularizer(v), tf.float32) for v in variables if v.regularizer is not None]
    return tf.add_n(terms) if terms else None


def check_added(model: Any) -> None:
    """Raise AgentError for a model that adds losses in its calls, by activity regularizers or `add_loss`.

    Such losses are not supported, since a loss calls the model several times. `add_loss` is detected only after a call.
    """
    active = [layer.name for layer in layers_of(model) if getattr(layer, "activity_regularizer", None) is not None]
    weights = sum(variable.regularizer is not None for variable in model.trainable_variables)
    if active or len(model.losses) > weights:
        source = f"layer {active[0]!r} has an activity regularizer" if active else "one of its layers calls add_loss"
        raise AgentError(
            f"model {type(model).__name__}: {source}. Such a loss depends on the call, and a model is called several "
            "times in an update: leave it out, and compute the value in a loss of your own (CustomAgent). Regularizers "
            "of weights are added to the loss"
        )
