"""A function of tensors as a TensorFlow graph, traced once for each structure of its arguments."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

Key = tuple[Any, ...]


class Graph:
    """Calls `function(*trees)` as a graph; a tree is a tensor, None, or a dict of trees, and axis 1 counts rows.

    It chooses among its traces itself: `tf.function`, which sees to more cases, takes longer.
    """

    def __init__(self, function: Callable[..., Any], *, jit_compile: bool = False) -> None:
        """Wrap `function`. jit_compile: let XLA compile each trace, for the very shapes it was called with."""
        self.function, self.jit_compile = function, jit_compile
        self._traces: dict[Key, Any] = {}

    def __call__(self, *trees: Any) -> Any:
        """Return what the function returns; numpy arrays are taken as well."""
        traced, leaves = self.bound(*trees)
        return traced(*leaves)

    def bound(self, *trees: Any) -> tuple[Any, list[Any]]:
        """Return the trace for such trees, and the tensors to call it with."""
        leaves: list[Any] = []
        key = tuple(self._flattened(tree, leaves) for tree in trees)
        if key not in self._traces:
            self._traces[key] = self._traced(trees, leaves)
        return self._traces[key], leaves

    def _flattened(self, tree: Any, leaves: list[Any]) -> Key | None:
        """Append a tree's tensors to `leaves`; return what a trace is chosen by."""
        if tree is None:
            return None
        if isinstance(tree, dict):
            return tuple((name, self._flattened(inner, leaves)) for name, inner in tree.items())
        leaf = tf.constant(tree) if isinstance(tree, np.ndarray) else tree
        leaves.append(leaf)
        shape = leaf.shape.as_list()
        return (leaf.dtype, *(shape if self.jit_compile else _without_rows(shape)))

    def _traced(self, trees: tuple[Any, ...], leaves: list[Any]) -> Any:
        def call(*given: Any) -> Any:
            remaining = iter(given)
            return self.function(*(_filled(tree, remaining) for tree in trees))

        def spec(leaf: Any) -> tf.TensorSpec:
            shape = leaf.shape.as_list()
            return tf.TensorSpec(shape if self.jit_compile else _without_rows(shape), leaf.dtype)

        traced = tf.function(call, autograph=False, jit_compile=self.jit_compile)
        return traced.get_concrete_function(*(spec(leaf) for leaf in leaves))


def _without_rows(shape: list[int]) -> list[int | None]:
    return [shape[0], None, *shape[2:]] if len(shape) > 1 else list(shape)


def _filled(tree: Any, leaves: Any) -> Any:
    if isinstance(tree, dict):
        return {name: _filled(inner, leaves) for name, inner in tree.items()}
    return None if tree is None else next(leaves)
