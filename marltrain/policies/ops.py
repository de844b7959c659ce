"""The operations in which networks, distributions and algorithms are written, the same for all frameworks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

Tensor = Any
"""A tensor of the framework; in acting by numpy, an array."""


class Ops(Protocol):
    """Operations on tensors of PyTorch and TensorFlow (`ops.py` in their folders), and on arrays (`numpy_ops.py`).

    Algorithms get them as the argument `ops`; with the annotation `ops: mt.Ops`, editors complete and check them.
    Arguments are positional. Floating point tensors are float32, indices int64. Axes: K agents, B rows, A actions,
    [...] any axes. Operations on tensors of two shapes broadcast. Gradients flow through all operations but `argmax`,
    `flag`, `isfinite`, `one_hot`, `stop_gradient` and `tensor_like`.
    """

    def exp(self, x: Tensor, /) -> Tensor:
        """Return e to the power of x, [...]."""

    def log(self, x: Tensor, /) -> Tensor:
        """Return the natural logarithm of x, [...]; NaN below 0."""

    def sqrt(self, x: Tensor, /) -> Tensor:
        """Return the square root of x, [...]; NaN below 0."""

    def square(self, x: Tensor, /) -> Tensor:
        """Return x * x, [...]."""

    def absolute(self, x: Tensor, /) -> Tensor:
        """Return the size of x, [...]."""

    def cos(self, x: Tensor, /) -> Tensor:
        """Return the cosine of x in radians, [...]."""

    def sin(self, x: Tensor, /) -> Tensor:
        """Return the sine of x in radians, [...]."""

    def tanh(self, x: Tensor, /) -> Tensor:
        """Return the hyperbolic tangent of x, [...]."""

    def sigmoid(self, x: Tensor, /) -> Tensor:
        """Return 1 / (1 + exp(-x)), [...]."""

    def relu(self, x: Tensor, /) -> Tensor:
        """Return max(x, 0), [...]."""

    def elu(self, x: Tensor, /) -> Tensor:
        """Return x where it is positive, exp(x) - 1 elsewhere, [...]."""

    def silu(self, x: Tensor, /) -> Tensor:
        """Return x * sigmoid(x), [...]."""

    def gelu(self, x: Tensor, /) -> Tensor:
        """Return x * Phi(x), [...]; Phi is the normal distribution function, without approximation."""

    def softplus(self, x: Tensor, /) -> Tensor:
        """Return log(1 + exp(x)), [...]."""

    def erf(self, x: Tensor, /) -> Tensor:
        """Return the error function of x, [...]."""

    def lgamma(self, x: Tensor, /) -> Tensor:
        """Return the logarithm of the gamma function of x > 0, [...]."""

    def digamma(self, x: Tensor, /) -> Tensor:
        """Return the derivative of `lgamma` at x > 0, [...]."""

    def isfinite(self, x: Tensor, /) -> Tensor:
        """Return whether x is neither infinite nor NaN, [...] bool."""

    def flag(self, x: Tensor, /) -> Tensor:
        """Return booleans [...] as float32: 0.0 and 1.0."""

    def zeros_like(self, x: Tensor, /) -> Tensor:
        """Return zeros of the shape and dtype of x."""

    def ones_like(self, x: Tensor, /) -> Tensor:
        """Return ones of the shape and dtype of x."""

    def stop_gradient(self, x: Tensor, /) -> Tensor:
        """Return x, as a constant of the loss."""

    def minimum(self, x: Tensor, y: Tensor, /) -> Tensor:
        """Return the smaller of x and y, entry by entry, [...]."""

    def maximum(self, x: Tensor, y: Tensor, /) -> Tensor:
        """Return the larger of x and y, entry by entry, [...]."""

    def clip(self, x: Tensor, low: Any, high: Any, /) -> Tensor:
        """Return x limited to [low, high], [...]; the limits are numbers or tensors."""

    def where(self, condition: Tensor, x: Tensor, y: Any, /) -> Tensor:
        """Return x where `condition` [...] bool is True, y elsewhere; y is a tensor or a number."""

    def sum(self, x: Tensor, axis: int, /) -> Tensor:
        """Return the sum over one axis, which the result lacks."""

    def mean(self, x: Tensor, axis: int, /) -> Tensor:
        """Return the mean over one axis, which the result lacks."""

    def max(self, x: Tensor, axis: int, /) -> Tensor:
        """Return the largest entry along one axis, which the result lacks."""

    def argmax(self, x: Tensor, axis: int, /) -> Tensor:
        """Return the index of the largest entry along one axis, int64; the first of equal ones."""

    def logsumexp(self, x: Tensor, axis: int, /) -> Tensor:
        """Return log(sum(exp(x))) over one axis, which the result lacks."""

    def softmax(self, x: Tensor, axis: int, /) -> Tensor:
        """Return exp(x) / sum(exp(x)) over one axis, of the shape of x."""

    def log_softmax(self, x: Tensor, axis: int, /) -> Tensor:
        """Return the logarithm of `softmax`, of the shape of x."""

    def concat(self, parts: list[Tensor] | tuple[Tensor, ...], axis: int, /) -> Tensor:
        """Join tensors along an axis that they have."""

    def stack(self, parts: list[Tensor] | tuple[Tensor, ...], axis: int, /) -> Tensor:
        """Join tensors of one shape along a new axis."""

    def unstack(self, x: Tensor, /) -> Sequence[Tensor]:
        """Return the parts of x along its first axis: [N, ...] -> N x [...]."""

    def split(self, x: Tensor, sizes: Sequence[int], /) -> Sequence[Tensor]:
        """Split the last axis: [..., sum of sizes] -> [..., size] for each size."""

    def unflatten(self, x: Tensor, size: int, /) -> Tensor:
        """Split the last axis into two, the second of this size: [K, B, A * size] -> [K, B, A, size]."""

    def take(self, x: Tensor, index: Tensor, /) -> Tensor:
        """Select an entry of the last axis: x [..., A], index [...] int64 -> [...]."""

    def one_hot(self, index: Tensor, choices: int, /) -> Tensor:
        """Return 1.0 at the index and 0.0 elsewhere: [...] int64 -> [..., choices] float32."""

    def only(self, x: Tensor, chosen: Tensor, /) -> Tensor:
        """Return x [..., A] in the rows that are `chosen` [...] bool, 0 in the others."""

    def tensor_like(self, x: Tensor, values: Sequence[Any], /) -> Tensor:
        """Return numbers [N], or nested lists of them, as a constant tensor, of the dtype and on the device of x."""

    def constants(self, x: Tensor, /) -> Tensor:
        """Return the trained constants of each agent as one row: [K, F] -> [K, 1, F]."""

    def append_constants(self, x: Tensor, constants: Tensor, /) -> Tensor:
        """Append constants [K, F] to every row: [K, B, N] -> [K, B, N + F]."""

    def linear(self, x: Tensor, weight: Tensor, bias: Tensor, /) -> Tensor:
        """Return x @ weight + bias of each agent: [K, B, in], [K, in, out], [K, out] -> [K, B, out]."""

    def time_steps(self, x: Tensor, length: int, /) -> Sequence[Tensor]:
        """Return the rows of each step of N sequences in a row: [K, N * length, ...] -> `length` x [K, N, ...]."""

    def joined_steps(self, steps: Sequence[Tensor], /) -> Tensor:
        """Join the rows of steps to sequences, the inverse of `time_steps`."""

    def repeat_agents(self, x: Tensor, members: int, /) -> Tensor:
        """Repeat each agent for the members of an ensemble: [K, ...] -> [K * members, ...]."""

    def unfold_agents(self, x: Tensor, members: int, /) -> Tensor:
        """Separate the members of an ensemble: [K * members, B, N] -> [K, members, B, N]."""

    def fold_agents(self, x: Tensor, /) -> Tensor:
        """Join the members of an ensemble, the inverse of `unfold_agents`."""

    def seats_apart(self, x: Tensor, seats: int, /) -> Tensor:
        """Separate the seats of every agent: [K, seats * B, ...] -> [K * seats, B, ...]."""

    def seats_joined(self, x: Tensor, seats: int, /) -> Tensor:
        """Join the seats of every agent, the inverse of `seats_apart`."""

    def players_last(self, x: Tensor, /) -> Tensor:
        """Put players side by side: [N, B] -> [1, B, N], [N, B, A] -> [1, B, N * A]."""


class FrameworkOps(Ops, Protocol):
    """Operations of PyTorch and TensorFlow alone: those on images, which agents act on in tensors."""

    def scaled_image(self, x: Tensor, low: Any, span: Any, /) -> Tensor:
        """Convert pixels [K, B, ...] uint8 to (x - low) / span, float32."""

    def channels_first(self, x: Tensor, order: str, /) -> Tensor:
        """Convert images to [K, B, C, H, W]; order: of their axes, see `images.image_axes`."""

    def convolve(
        self, x: Tensor, weight: Tensor, bias: Tensor, stride: int, activate: Callable[[Tensor], Tensor], /
    ) -> Tensor:
        """Convolve without padding: [K, B, C, H, W], [K, O, C, h, w], [K, O] -> [K, B, O, H', W'].

        activate: a function entry by entry, applied to the result.
        """

    def flatten(self, x: Tensor, /) -> Tensor:
        """Flatten all axes after the first two: [K, B, ...] -> [K, B, N]."""
