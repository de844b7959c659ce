"""A reference executor: it carries out a recording one operation after the other, with numpy.

It shares no code with the compiled executor. It reads and writes new arrays only, in float32.
"""

import itertools
import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch

from marltrain.policies.tape.operations import DType
from marltrain.policies.tape.recording import LayerGradient, Recording
from marltrain.policies.tape.symbols import Node, Symbol
from marltrain.policies.tape.views import View

TYPES: dict[DType, Any] = {"float": np.float32, "integer": np.int64, "boolean": np.float32, "bytes": np.uint8,
                           "pixels": np.uint8}  # fmt: skip
erf = np.vectorize(math.erf, otypes=[np.float32])
lgamma = np.vectorize(math.lgamma, otypes=[np.float32])


def polygamma(order: int, x: np.ndarray) -> np.ndarray:
    exact = torch.from_numpy(np.array(x, np.float64))
    return (torch.digamma(exact) if order == 0 else torch.special.polygamma(order, exact)).numpy()


def minimum_gradient(x: np.ndarray, y: np.ndarray, g: np.ndarray) -> np.ndarray:
    return np.where(x > y, 0, np.where(x == y, g / 2, g))


def put(node: Node, g: np.ndarray, index: np.ndarray) -> np.ndarray:
    made = np.zeros(node.shape, np.float32)
    np.put_along_axis(made, index[..., None], g[..., None], -1)
    return made


def logsumexp(x: np.ndarray, axis: int) -> np.ndarray:
    top = x.max(axis, keepdims=True)
    return (top + np.log(np.exp(x - top).sum(axis, keepdims=True))).squeeze(axis)


def scatter(node: Node, *parts: np.ndarray) -> np.ndarray:
    cover, views = node.attrs
    made, counts = np.zeros(node.shape, np.float32), np.zeros(node.shape, int)
    for view, part in zip(views, parts, strict=True):
        viewed(made, view)[...] += part
        viewed(counts, view)[...] += 1
    kinds = {"one": (1, 1), "at most one": (0, 1), "several": (0, len(parts))}
    assert kinds[cover][0] <= counts.min() and counts.max() <= kinds[cover][1], f"{cover}: {counts}"
    return made


def viewed(numbers: np.ndarray, view: View) -> np.ndarray:
    flat = numbers.reshape(-1)[view.offset :]
    return np.lib.stride_tricks.as_strided(flat, view.shape, [s * flat.itemsize for s in view.strides])


def windows(shape: tuple[int, ...], down: int, along: int, stride: int) -> list[tuple[Any, Any]]:
    """Return the slices of each patch of images [K, B, H, W, C], line after line, and its place."""
    places = itertools.product(*(range((n - m) // stride + 1) for n, m in zip(shape[2:4], (down, along), strict=True)))
    return [((..., slice(i * stride, i * stride + down), slice(j * stride, j * stride + along), slice(None)), (i, j))
            for i, j in places]  # fmt: skip


def patches(node: Node, x: np.ndarray) -> np.ndarray:
    made = np.zeros(node.shape, np.float32)
    for part, (i, j) in windows(x.shape, *node.attrs):
        made[:, :, i, j] = x[part].reshape(*x.shape[:2], -1)
    return made


def patches_gradient(node: Node, g: np.ndarray) -> np.ndarray:
    made = np.zeros(node.shape, np.float32)
    for part, (i, j) in windows(node.shape, *node.attrs[3:]):
        made[part] += g[:, :, i, j].reshape(made[part].shape)
    return made


ELEMENTWISE: dict[str, Callable[..., Any]] = {
    "add": np.add,
    "subtract": np.subtract,
    "multiply": np.multiply,
    "divide": np.divide,
    "minimum": np.minimum,
    "maximum": np.maximum,
    "where": lambda c, x, y: np.where(c != 0, x, y),
    "clip": lambda x, low, high: np.minimum(np.maximum(x, low), high),
    "negative": np.negative,
    "exp": np.exp,
    "log": np.log,
    "sqrt": np.sqrt,
    "square": np.square,
    "absolute": np.abs,
    "tanh": np.tanh,
    "sigmoid": lambda x: 0.5 * np.tanh(0.5 * x) + 0.5,
    "relu": lambda x: np.maximum(x, 0),
    "elu": lambda x: np.where(x > 0, x, np.expm1(np.minimum(x, 0))),
    "softplus": lambda x: np.logaddexp(x, 0),
    "cos": np.cos,
    "sin": np.sin,
    "erf": erf,
    "lgamma": lgamma,
    "digamma": lambda x: polygamma(0, x),
    "trigamma": lambda x: polygamma(1, x),
    "greater": np.greater,
    "greater_equal": np.greater_equal,
    "equal": np.equal,
    "not_equal": np.not_equal,
    "and": lambda x, y: (x != 0) & (y != 0),
    "or": lambda x, y: (x != 0) | (y != 0),
    "not": lambda x: x == 0,
    "isfinite": np.isfinite,
    "from_bytes": lambda x: x != 0,
    "from_pixels": lambda x: x,
    "copy": lambda x: x,
    "absolute_gradient": lambda x, g: g * np.sign(x),
    "minimum_gradient": minimum_gradient,
    "tanh_gradient": lambda y, g: g * (1 - y * y),
    "sigmoid_gradient": lambda y, g: g * y * (1 - y),
    "relu_gradient": lambda y, g: np.where(y > 0, g, 0),
    "elu_gradient": lambda y, g: np.where(y > 0, g, g * (y + 1)),
}
OTHERS: dict[str, Callable[..., Any]] = {
    "constant": lambda node: node.attrs[0],
    "array": lambda node: np.frombuffer(node.attrs[0], np.float32).reshape(node.shape),
    "sum": lambda node, x: x.sum(node.attrs[0]),
    "max": lambda node, x: x.max(node.attrs[0]),
    "argmax": lambda node, x: x.argmax(node.attrs[0]),
    "logsumexp": lambda node, x: logsumexp(x, node.attrs[0]),
    "log_softmax": lambda node, x: x - logsumexp(x, -1)[..., None],
    "concat": lambda node, *parts: np.concatenate(parts, node.attrs[0]),
    "take": lambda node, x, index: np.take_along_axis(x, index[..., None], -1)[..., 0],
    "put": put,
    "one_hot": lambda node, index: index[..., None] == np.arange(node.attrs[0]),
    "scatter": scatter,
    "linear": lambda node, x, weight, bias: x @ weight + bias[:, None],
    "linear_inputs": lambda node, g, weight: g @ weight.swapaxes(1, 2),
    "linear_weight": lambda node, x, g: x.swapaxes(1, 2) @ g,
    "patches": patches,
    "patches_gradient": patches_gradient,
}


def evaluate(
    recording: Recording, inputs: Mapping[str, np.ndarray], weights: Mapping[str, np.ndarray]
) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """Return the outputs by name, and the gradients [K, N] by network.  inputs: by name; weights: network -> [K, N]."""
    results: list[np.ndarray] = []

    def read(symbol: Symbol) -> np.ndarray:
        return viewed(results[symbol.node.index], symbol.view)

    with np.errstate(all="ignore"):
        for node in recording.tape.nodes:
            if node.op in ("input", "weights"):
                made = (inputs if node.op == "input" else weights)[node.attrs[0]]
                assert made.shape == node.shape, f"{node}: got shape {made.shape}"
            elif node.op in ELEMENTWISE:
                made = ELEMENTWISE[node.op](*map(read, node.args))
            else:
                made = OTHERS[node.op](node, *map(read, node.args))
            made = np.array(made, TYPES[node.dtype], order="C")
            assert made.shape == node.shape, f"{node}: computed shape {made.shape}"
            results.append(made)
    gradients = {name: np.zeros(array.shape, np.float32) for name, array in weights.items()}
    for part in recording.gradients:
        total = gradients[part.network]
        if isinstance(part, LayerGradient):
            viewed(total, part.weight.view)[...] += read(part.inputs).swapaxes(1, 2) @ read(part.gradient)
            viewed(total, part.bias.view)[...] += read(part.gradient).sum(1)
        else:
            viewed(total, part.view.view)[...] += read(part.gradient)
    return {name: read(symbol).copy() for name, symbol in recording.outputs.items()}, gradients
