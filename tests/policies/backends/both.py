"""Both backends on the CPU, made once, and a table of them to parametrize tests by."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
import torch

from marltrain.core.layout import Layout
from marltrain.core.seeds import generator
from marltrain.policies.backends import make_backend
from marltrain.policies.networks.specs import Head, NetworkDefinition, NetworkSpec

TORCH, TENSORFLOW = make_backend("torch", "cpu"), make_backend("tensorflow", "cpu")
BOTH: dict[str, Any] = {"torch": TORCH, "tensorflow": TENSORFLOW}
on_both = pytest.mark.parametrize("backend", BOTH.values(), ids=BOTH.keys())


def network(
    backend: Any, spec: NetworkSpec, layout: Layout, heads: Sequence[Head], agents: int = 2, stream: str = "weights"
) -> Any:
    """Return a stack of networks with weights drawn from streams 0, 1, ..."""
    rngs = [generator(k, stream) for k in range(agents)]
    return backend.network(NetworkDefinition(spec, heads, layout), rngs, agents)


def value_and_gradients(backend: Any, function: Callable[..., Any], *arrays: np.ndarray) -> list[np.ndarray]:
    """Return function(*arrays) and the gradients of the sum of its squares, by the framework's own tape.

    Squares, because the sum of a softmax is constant.
    """
    tensors = [backend.tensor(array.copy()) for array in arrays]
    if backend is TORCH:
        tensors = [tensor.requires_grad_() for tensor in tensors]
        value = function(*tensors)
        grads = torch.autograd.grad(value.square().sum(), tensors)
    else:
        with tf.GradientTape() as tape:
            tape.watch(tensors)
            value = function(*tensors)
            total = tf.reduce_sum(tf.square(value))
        grads = tape.gradient(total, tensors)
    return [backend.numpy(value), *(backend.numpy(grad) for grad in grads)]


def slopes(function: Callable[..., np.ndarray], *arrays: np.ndarray, step: float = 1e-6) -> list[np.ndarray]:
    """Return the same gradients by central differences of a float64 function."""
    exact = [array.astype(np.float64) for array in arrays]

    def total() -> float:
        return float((function(*exact) ** 2).sum())

    result = []
    for array in exact:
        slope = np.zeros_like(array)
        for place in np.ndindex(array.shape):
            middle = array[place]
            array[place] = middle + step
            above = total()
            array[place] = middle - step
            slope[place] = (above - total()) / (2 * step)
            array[place] = middle
        result.append(slope)
    return result
