"""One Keras model for each agent: copies of a user's model, or the results of a user's function."""

from __future__ import annotations

import inspect
import weakref
from typing import Any

import keras

from marltrain.core.errors import AgentError
from marltrain.policies.backends.frameworks import made_by, name_of

MADE: weakref.WeakSet[keras.Model] = weakref.WeakSet()
"""Models made by users' functions so far."""

FAILURES = (TypeError, ValueError, NotImplementedError, AttributeError, LookupError)
"""Errors that Keras or a user's class may raise when a model is copied; they become an AgentError."""


_LAYERS_OWN = {"name", "trainable", "dtype"}
"""Arguments that every layer's `__init__` accepts."""
_ANY_NUMBER = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


class Maker:
    """Makes equal models from a `keras.Model`, or from a function or class that is called without arguments."""

    def __init__(self, given: Any) -> None:
        """Take a model, or a function or class that makes models."""
        self.given = given

    def make(self) -> keras.Model:
        """Return a new model, which may not be built yet; raises AgentError if that fails."""
        check_keras()
        return _again(self.given) if isinstance(self.given, keras.Model) else self._called()

    def fill(self, model: keras.Model) -> None:
        """Copy the weights of the given model, if it has any, to `model`, which is built.

        Raises AgentError if the given model is only partly built.
        """
        given = self.given
        if not isinstance(given, keras.Model) or not given.weights:
            return
        shapes = [[tuple(weight.shape) for weight in each.weights] for each in (given, model)]
        if shapes[0] != shapes[1]:
            raise AgentError(
                f"model {type(given).__name__} is built in part: it has weights of shapes {shapes[0]}, and {shapes[1]} "
                "once it is called on this player's observations. Call it on a batch of them before it is given"
            )
        for mine, theirs in zip(model.weights, given.weights, strict=True):
            mine.trainable = theirs.trainable
        model.set_weights(given.get_weights())

    def _called(self) -> keras.Model:
        model = made_by(self.given, keras.Model, "keras.Model")
        if model in MADE:
            raise AgentError(f"{name_of(self.given)} returned the same model twice: every agent needs one of its own")
        MADE.add(model)
        return model


def check_keras() -> None:
    """Raise AgentError unless Keras uses TensorFlow."""
    if keras.backend.backend() != "tensorflow":
        raise AgentError(
            f"Keras computes with {keras.backend.backend()!r}, and marltrain with it on TensorFlow only: set the "
            "environment variable KERAS_BACKEND=tensorflow before Keras is imported"
        )


def _again(model: keras.Model) -> keras.Model:
    """Return a model of the same configuration, without the weights."""
    try:
        if type(model).__module__.startswith("keras."):  # functional and Sequential
            return keras.models.clone_model(model)
        taken = inspect.signature(type(model)).parameters
        named = {name for name, parameter in taken.items() if parameter.kind not in _ANY_NUMBER}
        if type(model).get_config is keras.Model.get_config and (own := named - _LAYERS_OWN):
            raise TypeError(f"its get_config lacks the arguments of __init__: {', '.join(sorted(own))}")
        config = model.get_config()
        if not any(parameter.kind is inspect.Parameter.VAR_KEYWORD for parameter in taken.values()):
            for name in _LAYERS_OWN - set(taken):  # entries that Keras adds to every layer's configuration
                config.pop(name, None)
        return type(model).from_config(config)
    except FAILURES as error:
        raise AgentError(
            f"model {type(model).__name__} cannot be copied, and every agent needs its own. Give a function "
            f"that makes it, such as network=lambda: {type(model).__name__}(...), or the class a get_config(). "
            f"Keras says: {error}"
        ) from error
