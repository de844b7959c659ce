"""Keras models as bytes for another process, with the classes of the user's script.

Keras pickles a model by its configuration, which most classes of users lack, and does not find their classes again.
Here its layers are pickled as plain objects, and its variables by their values.
"""

from __future__ import annotations

import io
from typing import Any

import cloudpickle
import tensorflow as tf
from keras.src.saving.keras_saveable import KerasSaveable
from keras.src.utils.tracking import TrackedDict, TrackedList, TrackedSet

_AGAIN = {"build"}
"""Attributes of a layer that `Layer.__new__` makes again."""
_OF_TENSORFLOW = ("_self_", "_obj_reference_counts")
"""Beginnings of the names of TensorFlow's own attributes, which it makes when it needs them."""


class _Pickler(cloudpickle.Pickler):  # type: ignore[misc]
    """Pickles the objects of Keras without their graphs."""

    def reducer_override(self, obj: Any) -> Any:
        """See `pickle.Pickler`."""
        if isinstance(obj, KerasSaveable):
            return _blank, (type(obj),), _state(obj), None, None, _fill
        if isinstance(obj, TrackedDict):
            return TrackedDict, (dict(obj),), obj.tracker, None, None, _track
        if isinstance(obj, TrackedList | TrackedSet):
            return type(obj), (list(obj),), obj.tracker, None, None, _track
        if isinstance(obj, tf.Variable):
            return _variable, (obj.numpy(), obj.dtype.name, obj.trainable, obj.name.partition(":")[0])
        if isinstance(obj, tf.Tensor) and hasattr(obj, "numpy"):
            return tf.constant, (obj.numpy(),)
        return super().reducer_override(obj)


def pickled(value: Any) -> bytes:
    """Return a value that may hold Keras models as bytes for `cloudpickle.loads`."""
    file = io.BytesIO()
    _Pickler(file).dump(value)
    return file.getvalue()


def _state(obj: Any) -> dict[str, Any]:
    return {
        name: value
        for name, value in vars(obj).items()
        if name not in _AGAIN and not name.startswith(_OF_TENSORFLOW) and not hasattr(value, "get_concrete_function")
    }


def _blank(kind: Any) -> Any:
    return kind.__new__(kind)


def _fill(obj: Any, state: dict[str, Any]) -> None:
    vars(obj).update(state)  # not by attributes, which Keras would track once more


def _track(held: Any, tracker: Any) -> None:
    held.tracker = tracker


def _variable(value: Any, dtype: str, trainable: bool, name: str) -> tf.Variable:
    return tf.Variable(value, dtype=dtype, trainable=trainable, name=name)
