"""The array operations that algorithms use, for PyTorch.

Arrays have a leading axis K (agents). Most names are plain aliases; `axis` arguments are positional.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from marltrain.policies.backends.torch import places

exp, log, sqrt, square, absolute = torch.exp, torch.log, torch.sqrt, torch.square, torch.abs
cos, sin = torch.cos, torch.sin
relu, elu, silu, gelu = functional.relu, functional.elu, functional.silu, functional.gelu
softplus, minimum, maximum, where, clip = functional.softplus, torch.minimum, torch.maximum, torch.where, torch.clamp
isfinite, unstack, lgamma, digamma, erf = torch.isfinite, torch.unbind, torch.lgamma, torch.digamma, torch.erf
logsumexp, softmax, sigmoid = torch.logsumexp, functional.softmax, torch.sigmoid
zeros_like, ones_like, stop_gradient = torch.zeros_like, torch.ones_like, torch.Tensor.detach
sum, mean, max, argmax, concat, stack = torch.sum, torch.mean, torch.amax, torch.argmax, torch.cat, torch.stack


class _Tanh(torch.autograd.Function):
    """tanh by numpy: torch's own uses MKL, which is slow on some processors (benchmarks/kernels.py)."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        y = torch.from_numpy(np.tanh(x.detach().numpy()))
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        (y,) = ctx.saved_tensors
        return y.square().neg_().add_(1.0).mul_(grads[0])


FEW_NUMBERS = 2**13
"""Numbers below which a call of numpy takes longer than MKL, such as in the steps of a recurrent network."""


def tanh(x: Tensor) -> Tensor:
    """Return the hyperbolic tangent."""
    if not x.is_cpu or places.STAND_INS or torch.compiler.is_exporting():
        return torch.tanh(x)
    if x.numel() < FEW_NUMBERS and x.requires_grad:
        return torch.tanh(x)
    if not x.requires_grad:
        return torch.from_numpy(np.tanh(x.numpy()))
    result: Tensor = _Tanh.apply(x)  # type: ignore[no-untyped-call]
    return result


def log_softmax(x: Tensor, axis: int) -> Tensor:
    """Return the logarithm of the softmax; for few choices, two operations are faster than torch's single one."""
    return x - x.logsumexp(axis, keepdim=True)


def take(x: Tensor, index: Tensor) -> Tensor:
    """Select x[..., index] along the last axis; index has one axis less than x."""
    return x.gather(-1, index.unsqueeze(-1)).squeeze(-1)


def one_hot(index: Tensor, choices: int) -> Tensor:
    """Return 1.0 at the index and 0.0 elsewhere, [..., choices], for indices [...]."""
    return (torch.arange(choices, device=index.device) == index.unsqueeze(-1)).to(torch.float32)


def unflatten(x: Tensor, size: int) -> Tensor:
    """Split the last axis into two, the second of this size: [K, B, A * size] -> [K, B, A, size]."""
    return x.unflatten(-1, (-1, size))


def time_steps(x: Tensor, length: int) -> Sequence[Tensor]:
    """Return the rows of each step of N sequences in a row: [K, N * length, ...] -> `length` x [K, N, ...]."""
    return x.unflatten(1, (-1, length)).unbind(2)


def joined_steps(steps: Sequence[Tensor]) -> Tensor:
    """Join the rows of steps to sequences, the inverse of `time_steps`."""
    return torch.stack(list(steps), 2).flatten(1, 2)


def only(x: Tensor, chosen: Tensor) -> Tensor:
    """Return x [..., A] in the rows that are `chosen` [...], 0 in the others."""
    return torch.where(chosen.unsqueeze(-1), x, 0.0)


def split(x: Tensor, sizes: Sequence[int]) -> Sequence[Tensor]:
    """Split the last axis into pieces of the given sizes."""
    return x.split_with_sizes(list(sizes), -1)


def flag(x: Tensor) -> Tensor:
    """Convert booleans to 0.0 and 1.0."""
    return x.to(torch.float32)


NARROW, MANY_ROWS = 16, 64


def linear(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """Return x @ weight + bias for K layers at once: [K, B, in], [K, in, out], [K, out] -> [K, B, out].

    A layer with few outputs is padded with columns of zeros for large batches: on a CPU, the product with 5 columns
    takes longer than with 16 (benchmarks/kernels.py).
    """
    outputs = weight.shape[2]
    exporting = torch.compiler.is_exporting()  # for any number of rows
    if exporting or outputs >= NARROW or x.shape[1] < MANY_ROWS or not places.on_cpu(x.device):
        return torch.baddbmm(bias.unsqueeze(1), x, weight)
    wide = functional.pad(weight, (0, NARROW - outputs))
    return torch.bmm(x, wide)[..., :outputs] + bias.unsqueeze(1)


def append_constants(x: Tensor, constants: Tensor) -> Tensor:
    """Append [K, F] constants to every row of [K, B, N]."""
    return torch.cat([x, constants.unsqueeze(1).expand(-1, x.shape[1], -1)], -1)


def repeat_agents(x: Tensor, members: int) -> Tensor:
    """Repeat the rows of every agent for the members of an ensemble: [K, ...] -> [K * members, ...]."""
    return x.repeat_interleave(members, 0)


def unfold_agents(x: Tensor, members: int) -> Tensor:
    """Separate the members of an ensemble: [K * members, B, N] -> [K, members, B, N]."""
    return x.unflatten(0, (-1, members))


def fold_agents(x: Tensor) -> Tensor:
    """Join the members of ensembles, the inverse of `unfold_agents`: [K, members, B, N] -> [K * members, B, N]."""
    return x.flatten(0, 1)


def constants(x: Tensor) -> Tensor:
    """Return constants [K, F] as one row, [K, 1, F]: a copy, which does not change with the weights."""
    return x.unsqueeze(1).clone()


def tensor_like(x: Tensor, values: Sequence[Any]) -> Tensor:
    """Return constant numbers as a tensor of the type and on the device of x."""
    if places.on_cpu(x.device):
        return torch.tensor(values, dtype=x.dtype)
    return _constant(values, x.dtype, x.device)


def _constant(values: Any, dtype: torch.dtype, device: torch.device) -> Tensor:
    """Return numbers as a tensor that is made once: a captured call cannot copy numbers of the CPU to a GPU."""
    values = np.asarray(values)
    key = values.dtype.str, values.shape, values.tobytes(), dtype, device
    if key not in _CONSTANTS:
        _CONSTANTS[key] = torch.tensor(values, dtype=dtype, device=device)
    return _CONSTANTS[key]


_CONSTANTS: dict[Any, Tensor] = {}


def scaled_image(x: Tensor, low: Any, span: Any) -> Tensor:
    """Convert uint8 pixels [K, B, ...] to float32: (x - low) / span.

    low, span: numbers, or numpy arrays that are broadcast to the axes of an image.
    """
    x = x.to(torch.float32)
    if isinstance(span, float):
        return x / span if low == 0 else (x - low) / span
    if places.on_cpu(x.device):
        return (x - torch.as_tensor(low)) / torch.as_tensor(span)
    return (x - _constant(low, x.dtype, x.device)) / _constant(span, x.dtype, x.device)


def channels_first(x: Tensor, order: str) -> Tensor:
    """Convert images to [K, B, C, H, W]; order: of their axes, see `images.image_axes`."""
    if order == "none":
        return x.unsqueeze(2)
    if order == "last":
        return x.movedim(-1, 2)
    if order == "frames, last":  # [K, B, frames, H, W, C]
        return x.movedim(-1, 3).flatten(2, 3)
    if order == "frames, first":  # [K, B, frames, C, H, W]
        return x.flatten(2, 3)
    return x


def convolve(x: Tensor, weight: Tensor, bias: Tensor, stride: int, activate: Callable[[Tensor], Tensor]) -> Tensor:
    """Return activate(convolution) of K stacks: [K, B, C, H, W] with [K, O, C, h, w] -> [K, B, O, H', W'].

    It loops over K: a grouped convolution takes as long on a CPU and needs copies of both operands.
    """
    rows = [functional.conv2d(x[k], weight[k], bias[k], stride) for k in range(x.shape[0])]
    return activate(torch.stack(rows) if len(rows) > 1 else rows[0].unsqueeze(0))


def flatten(x: Tensor) -> Tensor:
    """Flatten all axes after [K, B]."""
    return x.flatten(2)


def seats_apart(x: Tensor, seats: int) -> Tensor:
    """Separate the seats of every agent: [K, seats * B, ...] -> [K * seats, B, ...]."""
    return x if seats == 1 else x.unflatten(1, (seats, -1)).flatten(0, 1)


def seats_joined(x: Tensor, seats: int) -> Tensor:
    """Join the rows of the seats of every agent, the inverse of `seats_apart`."""
    return x if seats == 1 else x.unflatten(0, (-1, seats)).flatten(1, 2)


def players_last(x: Tensor) -> Tensor:
    """Put players side by side: [N, B] -> [1, B, N], [N, B, A] -> [1, B, N * A]."""
    return x.movedim(0, 1).flatten(1).unsqueeze(0)
