"""SharedVariable: the numbers of a variable as an array that compiled code changes in place."""

from __future__ import annotations

import numpy as np
import tensorflow as tf

from marltrain.core.layout import Array


class SharedVariable:
    """A variable, and an array of its numbers. Either may be changed; the other is copied from it when it is read.

    The memory of a variable must not be written, so compiled code, such as the programs of gradient steps, changes the
    array. As long as nothing of TensorFlow reads the variable, nothing is copied.
    """

    def __init__(self, variable: tf.Variable) -> None:
        """Store the variable; the first call of `array` allocates the array."""
        self._variable, self._array = variable, np.empty(0, np.float32)
        self._array_is_older, self._variable_is_older = True, False

    def variable(self) -> tf.Variable:
        """Return the variable with the present numbers.

        A graph that reads it must be called after this: in a graph, nothing is copied.
        """
        if self._variable_is_older and tf.executing_eagerly():
            self._variable.assign(self._array)
            self._variable_is_older = False
        return self._variable

    def array(self) -> Array:
        """Return the array with the present numbers: the same object in each call."""
        if self._array_is_older:
            now = self._variable.numpy()
            if self._array.shape == now.shape:
                np.copyto(self._array, now)
            else:
                self._array = np.array(now)
            self._array_is_older = False
        return self._array

    def variable_changed(self) -> None:
        """Note that the variable has the present numbers."""
        self._array_is_older, self._variable_is_older = True, False

    def array_changed(self) -> None:
        """Note that the array has the present numbers."""
        self._array_is_older, self._variable_is_older = False, True
