"""The array operations that algorithms use, for symbols: they are recorded.

Types are strict: arithmetic is of floats, an index is an integer, a condition is boolean, `flag` makes booleans float,
and `scaled_image` pixels. Another type raises RecordError.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from marltrain.policies.networks.images import FRAMES_FIRST, FRAMES_LAST, LAST, NONE
from marltrain.policies.tape import symbols
from marltrain.policies.tape.operations import DType
from marltrain.policies.tape.symbols import RecordError, Symbol


def _one(op: str) -> Callable[[Symbol], Symbol]:
    return lambda x: symbols.recorded(op, x)


def _two(op: str) -> Callable[[Symbol, Any], Symbol]:
    return lambda x, y: symbols.recorded(op, x, y)


exp, log, sqrt, square, absolute = _one("exp"), _one("log"), _one("sqrt"), _one("square"), _one("absolute")
cos, sin, tanh, sigmoid, softplus = _one("cos"), _one("sin"), _one("tanh"), _one("sigmoid"), _one("softplus")
relu, elu, erf, lgamma, digamma = _one("relu"), _one("elu"), _one("erf"), _one("lgamma"), _one("digamma")
isfinite, minimum, maximum = _one("isfinite"), _two("minimum"), _two("maximum")


def silu(x: Symbol) -> Symbol:
    """Return x * sigmoid(x)."""
    return x * sigmoid(x)


def gelu(x: Symbol) -> Symbol:
    """Return x * Phi(x), where Phi is the normal distribution function."""
    return 0.5 * x * (1.0 + erf(x * math.sqrt(0.5)))


def clip(x: Symbol, low: Any, high: Any) -> Symbol:
    """Return x limited to [low, high]."""
    return symbols.recorded("clip", x, low, high)


def where(condition: Symbol, x: Any, y: Any) -> Symbol:
    """Return x where the condition is True, y elsewhere."""
    return symbols.recorded("where", condition, x, y)


def only(x: Symbol, chosen: Symbol) -> Symbol:
    """Return x [..., A] in the rows that are `chosen` [...], 0 in the others."""
    return where(chosen[..., None], x, 0.0)


def flag(x: Symbol) -> Symbol:
    """Return booleans as 0.0 and 1.0."""
    return x.as_float()


def stop_gradient(x: Symbol) -> Symbol:
    """Return x, as a constant of the loss."""
    return x.detach()


def zeros_like(x: Symbol) -> Symbol:
    """Return zeros of the shape and type of x."""
    return _full(x, 0)


def ones_like(x: Symbol) -> Symbol:
    """Return ones of the shape and type of x."""
    return _full(x, 1)


def _full(x: Symbol, number: int) -> Symbol:
    kind: type[float] = {"float": float, "integer": int, "boolean": bool}[x.dtype]
    return x.tape.constant(kind(number)).broadcast(x.shape)


def tensor_like(x: Symbol, values: Sequence[Any]) -> Symbol:
    """Return constant numbers; x is float."""
    _check("tensor_like", x, "float")
    return x.tape.array(values)


def _check(op: str, x: Symbol, *types: DType) -> None:
    if x.dtype not in types:
        raise RecordError(f"{op} of a tensor of dtype {x.dtype} cannot be recorded: expected {' or '.join(types)}")


# along an axis


def _reduced(op: str, x: Symbol, axis: int, dtype: DType = "float") -> Symbol:
    """Return a reduction over one axis; over an axis of size 1, floats stay as they are."""
    _check(op, x, "float")
    axis = _axis(op, x, axis)
    if x.shape[axis] == 1 and dtype == "float":
        return x[(slice(None),) * axis + (0,)]
    return x.tape.node(op, (x,), x.shape[:axis] + x.shape[axis + 1 :], dtype, (axis,))


def _axis(op: str, x: Symbol, axis: int) -> int:
    if not -x.ndim <= axis < x.ndim:
        raise ValueError(f"{op}: axis {axis} is out of range for shape {x.shape}")
    return axis % x.ndim


def sum(x: Symbol, axis: int) -> Symbol:
    """Return the sum over one axis."""
    return _reduced("sum", x, axis)


def mean(x: Symbol, axis: int) -> Symbol:
    """Return the mean over one axis."""
    return sum(x, axis) / float(x.shape[axis])


def max(x: Symbol, axis: int) -> Symbol:
    """Return the largest entry along one axis."""
    return _reduced("max", x, axis)


def argmax(x: Symbol, axis: int) -> Symbol:
    """Return the index of the largest entry along one axis."""
    return _reduced("argmax", x, axis, "integer")


def logsumexp(x: Symbol, axis: int) -> Symbol:
    """Return log(sum(exp(x))) over one axis."""
    return _reduced("logsumexp", x, axis)


def log_softmax(x: Symbol, axis: int) -> Symbol:
    """Return the logarithm of the softmax."""
    _check("log_softmax", x, "float")
    moved = x.moved(axis, -1)
    return x.tape.node("log_softmax", (moved,), moved.shape).moved(-1, axis)


def softmax(x: Symbol, axis: int) -> Symbol:
    """Return exp(x) / sum(exp(x)) over one axis."""
    return exp(log_softmax(x, axis))


def take(x: Symbol, index: Symbol) -> Symbol:
    """Select x[..., index] along the last axis; index has one axis less than x."""
    _check("take", x, "float", "integer")
    _check("take by an index", index, "integer")
    if index.shape != x.shape[:-1]:
        raise ValueError(f"take: an index for shape {x.shape} must have the shape {x.shape[:-1]}, got {index.shape}")
    return x.tape.node("take", (x, index), index.shape, x.dtype)


def one_hot(index: Symbol, choices: int) -> Symbol:
    """Return 1.0 at the index and 0.0 elsewhere, [..., choices], for indices [...]."""
    _check("one_hot", index, "integer")
    return index.tape.node("one_hot", (index,), (*index.shape, choices), "float", (choices,))


# joining and splitting


def concat(parts: Sequence[Symbol], axis: int) -> Symbol:
    """Join tensors along an axis that they have."""
    first, dtypes = parts[0], {part.dtype for part in parts}
    axis = _axis("concat", first, axis)
    if len(dtypes) > 1:
        raise RecordError(f"concat of {' and '.join(sorted(dtypes))} tensors cannot be recorded: expected one dtype")
    shapes = [part.shape[:axis] + part.shape[axis + 1 :] for part in parts]
    if any(shape != shapes[0] for shape in shapes):
        raise ValueError(f"concat along axis {axis}: shapes {[part.shape for part in parts]} do not fit")
    if len(parts) == 1:
        return first
    size = 0
    for part in parts:
        size += part.shape[axis]
    shape = (*first.shape[:axis], size, *first.shape[axis + 1 :])
    return first.tape.node("concat", parts, shape, first.dtype, (axis,))


def stack(parts: Sequence[Symbol], axis: int) -> Symbol:
    """Join tensors of one shape along a new axis."""
    return concat([part.expanded(axis) for part in parts], axis)


def unstack(x: Symbol) -> list[Symbol]:
    """Return the parts of x along its first axis."""
    return list(x)


def split(x: Symbol, sizes: Sequence[int]) -> list[Symbol]:
    """Split the last axis into pieces of the given sizes."""
    pieces, start = [], 0
    for size in sizes:
        pieces.append(x[..., start : start + size])
        start += size
    if start != x.shape[-1]:
        raise ValueError(f"split: sizes {list(sizes)} must add up to {x.shape[-1]}, the last axis of {x.shape}")
    return pieces


def unflatten(x: Symbol, size: int) -> Symbol:
    """Split the last axis into two, the second of this size: [K, B, A * size] -> [K, B, A, size]."""
    return x.reshape(*x.shape[:-1], -1, size)


def flatten(x: Symbol) -> Symbol:
    """Flatten all axes after [K, B]."""
    return x.reshape(*x.shape[:2], -1)


# agents, members, seats, sequences


def linear(x: Symbol, weight: Symbol, bias: Symbol) -> Symbol:
    """Return x @ weight + bias for K layers at once: [K, B, in], [K, in, out], [K, out] -> [K, B, out]."""
    agents, rows, inputs = x.shape
    outputs = weight.shape[-1]
    if weight.shape != (agents, inputs, outputs) or bias.shape != (agents, outputs):
        raise ValueError(
            f"linear: shapes {x.shape}, {weight.shape} and {bias.shape} do not fit: expected [K, B, in], [K, in, out] "
            "and [K, out]"
        )
    return x.tape.node("linear", (x, weight, bias), (agents, rows, outputs))


def constants(x: Symbol) -> Symbol:
    """Return constants [K, F] as one row, [K, 1, F]."""
    return x[:, None]


def append_constants(x: Symbol, constants: Symbol) -> Symbol:
    """Append [K, F] constants to every row of [K, B, N]."""
    return concat([x, constants[:, None].broadcast((*x.shape[:2], constants.shape[1]))], -1)


def time_steps(x: Symbol, length: int) -> list[Symbol]:
    """Return the rows of each step of N sequences in a row: [K, N * length, ...] -> `length` x [K, N, ...]."""
    apart = x.reshape(x.shape[0], -1, length, *x.shape[2:])
    return [apart[:, :, i] for i in range(length)]


def joined_steps(steps: Sequence[Symbol]) -> Symbol:
    """Join the rows of steps to sequences, the inverse of `time_steps`."""
    x = stack(steps, 2)
    return x.reshape(x.shape[0], -1, *x.shape[3:])


def repeat_agents(x: Symbol, members: int) -> Symbol:
    """Repeat the rows of every agent for the members of an ensemble: [K, ...] -> [K * members, ...]."""
    return x[:, None].broadcast((x.shape[0], members, *x.shape[1:])).reshape(-1, *x.shape[1:])


def unfold_agents(x: Symbol, members: int) -> Symbol:
    """Separate the members of an ensemble: [K * members, B, N] -> [K, members, B, N]."""
    return x.reshape(-1, members, *x.shape[1:])


def fold_agents(x: Symbol) -> Symbol:
    """Join the members of ensembles, the inverse of `unfold_agents`: [K, members, B, N] -> [K * members, B, N]."""
    return x.reshape(-1, *x.shape[2:])


def seats_apart(x: Symbol, seats: int) -> Symbol:
    """Separate the seats of every agent: [K, seats * B, ...] -> [K * seats, B, ...]."""
    return x.reshape(-1, x.shape[1] // seats, *x.shape[2:])


def seats_joined(x: Symbol, seats: int) -> Symbol:
    """Join the rows of the seats of every agent, the inverse of `seats_apart`."""
    return x.reshape(-1, x.shape[1] * seats, *x.shape[2:])


def players_last(x: Symbol) -> Symbol:
    """Put players side by side: [N, B] -> [1, B, N], [N, B, A] -> [1, B, N * A]."""
    return x.moved(0, 1).reshape(1, x.shape[1], -1)


# images


def scaled_image(x: Symbol, low: Any, span: Any) -> Symbol:
    """Convert pixels [K, B, ...] to float: (x - low) / span.

    low, span: numbers, or numpy arrays that are broadcast to the axes of an image.
    """
    _check("scaled_image", x, "pixels")
    made = x.tape.node("from_pixels", (x,), x.shape)
    if isinstance(span, float):
        return (made - low) / span
    return (made - x.tape.array(low)) / x.tape.array(span)


def channels_first(x: Symbol, order: str) -> Symbol:
    """Convert images to [K, B, C, H, W]; order: of their axes, see `images.image_axes`."""
    if order == NONE:
        return x[:, :, None]
    if order == LAST:
        return x.moved(-1, 2)
    if order == FRAMES_LAST:  # [K, B, frames, H, W, C]
        x = x.moved(-1, 3)
    return x.reshape(*x.shape[:2], -1, *x.shape[4:]) if order in (FRAMES_LAST, FRAMES_FIRST) else x


def convolve(x: Symbol, weight: Symbol, bias: Symbol, stride: int, activate: Callable[[Symbol], Symbol]) -> Symbol:
    """Return activate(convolution) of K stacks: [K, B, C, H, W] with [K, O, C, h, w] -> [K, B, O, H', W'].

    It is a layer over patches; channels are the last axis in memory, so that neighboring pixels lie side by side.
    """
    agents, rows, channels, height, width = x.shape
    outputs, own_channels, down, along = weight.shape[1:]
    if weight.shape[0] != agents or own_channels != channels or bias.shape != (agents, outputs):
        raise ValueError(
            f"convolve: shapes {x.shape}, {weight.shape} and {bias.shape} do not fit: expected [K, B, C, H, W], "
            "[K, O, C, h, w] and [K, O]"
        )
    places = (height - down) // stride + 1, (width - along) // stride + 1
    shape = agents, rows, *places, down * along * channels
    patches = x.tape.node("patches", (x.moved(2, -1),), shape, "float", (down, along, stride))
    matrix = weight.moved(2, -1).moved(1, -1).reshape(agents, -1, outputs)
    made = activate(linear(patches.reshape(agents, -1, shape[-1]), matrix, bias))
    return made.reshape(agents, rows, *places, outputs).moved(-1, 2)
