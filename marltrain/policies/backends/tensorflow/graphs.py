"""A function of tensors as TensorFlow graphs, one graph for each structure of its arguments."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from marltrain.policies.backends.traces import Key, Traces, compiler_errors


class Graph(Traces):
    """Calls a function as a graph, with tensors or numpy arrays; axis 1 is the rows, whose number may vary."""

    def __init__(self, function: Callable[..., Any], *, jit_compile: bool = False) -> None:
        """Wrap `function`. jit_compile: compile each trace by XLA, for the exact shapes of its arguments."""
        super().__init__(function)
        self.jit_compile = jit_compile

    def leaf(self, given: Any) -> tuple[Any, Key]:
        """See `Traces`."""
        leaf = tf.constant(given) if isinstance(given, np.ndarray) else given
        shape = leaf.shape.as_list()
        return leaf, (leaf.dtype, *(shape if self.jit_compile else _without_rows(shape)))

    def traced(self, call: Callable[..., Any], leaves: list[Any]) -> Callable[..., Any]:
        """See `Traces`."""

        def spec(leaf: Any) -> tf.TensorSpec:
            shape = leaf.shape.as_list()
            return tf.TensorSpec(shape if self.jit_compile else _without_rows(shape), leaf.dtype)

        function = tf.function(call, autograph=False, jit_compile=self.jit_compile)
        trace: Callable[..., Any] = function.get_concrete_function(*(spec(leaf) for leaf in leaves))
        return _FirstCall(trace) if self.jit_compile else trace


class _FirstCall:
    """A trace that XLA compiles at its first call, whose errors are then those of the compiler."""

    def __init__(self, trace: Callable[..., Any]) -> None:
        self._trace, self._compiled = trace, False

    def __call__(self, *leaves: Any) -> Any:
        if self._compiled:
            return self._trace(*leaves)
        with compiler_errors("tensorflow", tf.errors.OpError):
            result = self._trace(*leaves)
        self._compiled = True
        return result


def _without_rows(shape: list[int]) -> list[int | None]:
    return [shape[0], None, *shape[2:]] if len(shape) > 1 else list(shape)
