"""Network specifications: parameters and forward pass, written with `ops` for all frameworks.

K networks of one specification form one stack with weights [K, in, out] and batched matrix products. Initial weights
are drawn with numpy from each agent's own stream, so equal seeds give equal weights in every framework.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from marltrain.config import as_integer, checked_arguments
from marltrain.errors import ConfigError, SpecError, did_you_mean, shown
from marltrain.layout import VECTOR, Allocate, Array, Layout, map_tree

ACTIVATIONS = ("tanh", "relu", "elu", "silu", "gelu")
WIDEST = 2**16
"""Maximum number of units per layer; a square layer of this width exceeds the memory."""
LARGE = 2**20
"""Number of weights above which a tall matrix is orthogonalised with its Gram matrix, which is several times faster."""


@dataclass(frozen=True)
class Head:
    """One output of a network.

    width: number of outputs.  gain: gain of the initial weights.
    free: number of trained constants appended to the output, such as a Gaussian's log standard deviations. They do not
    depend on the observation; their initial value is `free_start`.
    """

    width: int
    gain: float = 1.0
    free: int = 0
    free_start: float = 0.0


@dataclass(frozen=True)
class NetworkDefinition:
    """A network of an algorithm: its layers, outputs and inputs.

    spec: a NetworkSpec, or a custom model or a function that makes one; None for a network without inputs.
    heads: the outputs.
    layout: layout of the observations, the first input; None for a network that gets no observations.
    vectors: widths of further inputs, such as an action or a goal, which are joined to the vector of the observation.
      A call gives all inputs in this order: `nets["critic"](obs, action)`.
    members: number of networks of an ensemble. They get the same inputs; an output is [K, members, B, width].
    head_layers: number of hidden layers that each head has for itself, if there are several heads.
    noisy: sigma_0 of noisy networks with factorised noise (Fortunato et al. 2017, arXiv:1706.10295); 0: not noisy. Each
      fully connected layer then has a second weight and bias, the standard deviations of the first. The last input of
      a call is the noise, [K, B, `noise_width`]; zeros give the mean network.

    Without inputs, the network consists of the trained constants of its heads (`Head.free`), [K, 1, free]. A custom
    model gets the inputs as arguments and returns the outputs of all heads side by side, [B, sum of widths]; those of
    an ensemble, member after member.
    """

    spec: Any
    heads: Sequence[Head]
    layout: Layout | None
    vectors: tuple[int, ...] = ()
    members: int = 1
    head_layers: int = 1
    noisy: float = 0.0

    @property
    def has_inputs(self) -> bool:
        """Whether a call gives any input."""
        return self.layout is not None or bool(self.vectors)

    @property
    def widths(self) -> list[int]:
        """Number of outputs of each head, its constants included."""
        return [head.width + head.free for head in self.heads]

    @property
    def noise_width(self) -> int:
        """Number of values of the noise of a row: f(epsilon) of the inputs and outputs of each noisy layer."""
        return sum(Plan(self).noise_widths) if self.noisy else 0

    def empty(self, leading: tuple[int, ...], allocate: Allocate = np.zeros) -> list[Any]:
        """Allocate the inputs of a call, with `leading` axes."""
        observations = [] if self.layout is None else [self.layout.empty(leading, allocate)]
        return [*observations, *(allocate((*leading, width), np.float32) for width in self.vectors)]


@dataclass(frozen=True)
class Parameter:
    """Name, shape (without the K axis) and initialisation of one array: orthogonal with `gain`, or `constant`."""

    name: str
    shape: tuple[int, ...]
    gain: float = 1.0
    constant: float | None = None

    @property
    def size(self) -> int:
        """Number of values."""
        return int(np.prod(self.shape, dtype=int))

    def draw(self, rng: np.random.Generator) -> Array:
        """Return initial values: orthogonal rows or columns (Saxe et al. 2014), or the constant."""
        if self.constant is not None:
            return np.full(self.shape, self.constant, np.float32)
        fan_in_first = self.shape if len(self.shape) == 2 else (self.shape[0], int(np.prod(self.shape[1:])))
        rows, columns = fan_in_first
        q = _orthogonal(rng.standard_normal((max(rows, columns), min(rows, columns))))
        return (self.gain * (q if rows >= columns else q.T)).reshape(self.shape).astype(np.float32)


def _orthogonal(normal: Array) -> Array:
    """Return Q of the QR decomposition of normal [M, N], M >= N, with a positive diagonal of R.

    R is also the Cholesky factor of the Gram matrix. The rounding errors of that factor grow with the square of the
    condition number. For a matrix of normal numbers with M much larger than N this number is small (about 3 for
    M = 4 N).
    """
    if normal.size > LARGE and len(normal) >= 4 * normal.shape[1]:
        lower = np.linalg.cholesky(normal.T @ normal)
        orthogonal: Array = normal @ np.linalg.inv(lower).T
        return orthogonal
    q, r = np.linalg.qr(normal)
    return q * np.sign(np.diag(r))


@dataclass(frozen=True)
class NetworkSpec:
    """Base class of network specifications: widths of the hidden layers and the activation."""

    hidden: tuple[int, ...] = (64, 64)
    activation: str = "tanh"

    def __post_init__(self) -> None:
        """Raise ConfigError for widths below 1 or an unknown activation."""
        name = type(self).__name__
        if not isinstance(self.hidden, Sequence) or isinstance(self.hidden, str):
            raise ConfigError(f"{name}: hidden must be a tuple of widths, such as (64, 64), got {shown(self.hidden)}")
        object.__setattr__(self, "hidden", tuple(map(as_integer, self.hidden)))
        if not all(_is_size(width) for width in self.hidden):
            raise ConfigError(f"{name}: hidden must hold integers from 1 to {WIDEST}, got {shown(self.hidden)}")
        if not isinstance(self.activation, str) or self.activation not in ACTIVATIONS:
            near = did_you_mean(self.activation, ACTIVATIONS)
            raise ConfigError(
                f"{name}: activation must be one of {', '.join(ACTIVATIONS)}, got {shown(self.activation)}.{near}"
            )

    def describe(self) -> dict[str, Any]:
        """Return the specification as JSON values."""
        return {"type": type(self).__name__, **asdict(self)}


def _is_size(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= WIDEST


@checked_arguments
@dataclass(frozen=True)
class MLP(NetworkSpec):
    """Fully connected layers. Images are flattened and scaled to [0, 1]."""


@checked_arguments
@dataclass(frozen=True)
class CNN(NetworkSpec):
    """Convolutions over the images, then fully connected layers over their outputs and the vector part.

    filters: (channels, kernel, stride) of each convolution, without padding.
    """

    hidden: tuple[int, ...] = (128,)
    activation: str = "relu"
    filters: tuple[tuple[int, int, int], ...] = ((16, 3, 2), (32, 3, 2))

    def __post_init__(self) -> None:
        """Raise ConfigError for filters that are not triples of positive integers."""
        super().__post_init__()
        triples = self.filters if isinstance(self.filters, Sequence) else ()
        filters = tuple(tuple(map(as_integer, f)) if isinstance(f, Sequence) else () for f in triples)
        if not filters or any(len(f) != 3 or not all(map(_is_size, f)) for f in filters):
            raise ConfigError(
                "CNN: filters must be triples (channels, kernel, stride) of integers of at least 1, such as "
                f"((16, 3, 2), (32, 3, 2)), got {shown(self.filters)}"
            )
        object.__setattr__(self, "filters", filters)


Filters = tuple[tuple[int, int, int], ...]
FULL_SIZE = 64 * 64
"""Number of pixels above which an image gets the larger default network."""
MOST_FEATURES = 4096
"""Target for the image features that enter the hidden layer of the larger default network.

Further convolutions reduce the features to this number, as long as their kernels fit.
"""
_LARGE_FILTERS: Filters = ((32, 8, 4), (64, 4, 2), (64, 3, 1))
_FURTHER = (64, 3, 2)


def default_network(layout: Layout) -> NetworkSpec:
    """Return the default network for a layout's observations: MLP() without images, otherwise a CNN.

    Images of more than 64 x 64 pixels get the convolutions of Mnih et al. 2015, then convolutions of stride 2 until at
    most 4096 features are left, and 256 hidden units. Smaller images get CNN(), with stride 1 if a side is shorter than
    7 pixels. No kernel is larger than its input, so images of 1 x 1 pixel are valid.
    """
    sides = [_image_axes(tuple(part.space.shape or ()), part.stack)[1:3] for part in layout.images]
    if not sides:
        return MLP()
    shortest = min(map(min, sides))
    if max(height * breadth for height, breadth in sides) > FULL_SIZE:
        return CNN(hidden=(256,), filters=_fitted(_LARGE_FILTERS, sides, MOST_FEATURES))
    if shortest >= 7:
        return CNN()
    kernel = 3 if shortest >= 5 else 2
    return CNN(filters=_fitted(tuple((channels, kernel, 1) for channels, _, _ in CNN().filters), sides))


def _fitted(filters: Filters, sides: list[tuple[int, int]], most: int | None = None) -> Filters:
    """Return filters with kernels no larger than their inputs.

    sides: (height, width) of each image.
    most: maximum number of features; filters of stride 2 are appended until it is reached or they no longer fit.
    """
    fitted: list[tuple[int, int, int]] = []
    waiting = list(filters)
    while waiting:
        channels, kernel, stride = waiting.pop(0)
        kernel = min(kernel, *map(min, sides))
        fitted.append((channels, kernel, stride := min(stride, kernel)))
        sides = [((height - kernel) // stride + 1, (width - kernel) // stride + 1) for height, width in sides]
        left = channels * sum(height * width for height, width in sides)
        if not waiting and most is not None and left > most and min(map(min, sides)) >= _FURTHER[1]:
            waiting.append(_FURTHER)
    return tuple(fitted)


def spec_from(description: dict[str, Any]) -> NetworkSpec:
    """Build a specification from the result of `describe`; raises ConfigError for an unknown type."""
    kinds = {"MLP": MLP, "CNN": CNN}
    values = dict(description)
    kind = values.pop("type", None)
    if not isinstance(kind, str) or kind not in kinds:
        raise ConfigError(f"network type must be one of {', '.join(kinds)}, got {kind!r}")
    return kinds[kind](**values)


def _image_axes(shape: tuple[int, ...], stack: int) -> tuple[int, int, int, str]:
    """Return (channels, height, width, order of axes) of an image part."""
    if stack > 1:
        channels = shape[3] if len(shape) == 4 else 1
        return stack * channels, shape[1], shape[2], "stacked" if len(shape) == 4 else "first"
    if len(shape) == 2:
        return 1, shape[0], shape[1], "none"
    if shape[0] < shape[2]:  # the shorter of the outer axes holds the channels
        return shape[0], shape[1], shape[2], "first"
    return shape[2], shape[0], shape[1], "last"


class Plan:
    """The parameters and the forward pass of a network over a NetworkSpec.

    With several heads, each head has its own last hidden layers of full width (`NetworkDefinition.head_layers`). The
    dueling streams of Wang et al. 2016 are two heads.

    noise_widths: the numbers of inputs and of outputs of each noisy layer, in the order of the layers.
    """

    def __init__(self, definition: NetworkDefinition) -> None:
        """Create the parameters; raises SpecError if an image is too small for the convolutions."""
        self.definition, self.spec, self.layout = definition, definition.spec, definition.layout
        self.heads, self.members = tuple(definition.heads), definition.members
        self.parameters: list[Parameter] = []
        self.noise_widths: list[int] = []
        self.convolutions = self.spec.filters if isinstance(self.spec, CNN) else ()
        width = self._lay_inputs()
        hidden = self.spec.hidden if definition.has_inputs else ()
        own = min(definition.head_layers, len(hidden)) if len(self.heads) > 1 else 0
        self.trunk_depth, self.own_depth = len(hidden) - own, own
        for i, size in enumerate(hidden[: self.trunk_depth]):
            self._linear(f"hidden{i}", width, size, math.sqrt(2))
            width = size
        for h, head in enumerate(self.heads):
            inner = width
            for i, size in enumerate(hidden[self.trunk_depth :]):
                self._linear(f"head{h}.hidden{i or ''}", inner, size, math.sqrt(2))
                inner = size
            if head.width:
                self._linear(f"head{h}", inner, head.width, head.gain)
            if head.free:
                self.parameters.append(Parameter(f"head{h}.free", (head.free,), constant=head.free_start))
        self.size = sum(parameter.size for parameter in self.parameters)

    def _linear(self, name: str, width: int, size: int, gain: float) -> None:
        self.parameters.append(Parameter(f"{name}.weight", (width, size), gain))
        self.parameters.append(Parameter(f"{name}.bias", (size,), constant=0.0))
        if self.definition.noisy:
            sigma = self.definition.noisy / math.sqrt(width)
            self.parameters.append(Parameter(f"{name}.weight_sigma", (width, size), constant=sigma))
            self.parameters.append(Parameter(f"{name}.bias_sigma", (size,), constant=sigma))
            self.noise_widths += [width, size]

    def _lay_inputs(self) -> int:
        """Add the convolutions' parameters; return the input width of the first hidden layer."""
        self.image_orders: dict[str, str] = {}
        self.vector_width = width = sum(self.definition.vectors) + (self.layout.vector_size if self.layout else 0)
        if self.layout is None:
            return width
        self.names, self.with_vector = tuple(self.layout.shapes), self.layout.vector_size > 0
        for part in self.layout.images:
            shape = tuple(part.space.shape or ())
            self.image_orders[part.name or "image"] = _image_axes(shape, part.stack)[3]
            if not self.convolutions:
                width += int(np.prod(shape))
                continue
            channels, height, breadth, _ = _image_axes(shape, part.stack)
            for i, (filters, kernel, stride) in enumerate(self.convolutions):
                name = f"{part.name or 'image'}.conv{i}"
                self.parameters.append(Parameter(f"{name}.weight", (filters, channels, kernel, kernel), math.sqrt(2)))
                self.parameters.append(Parameter(f"{name}.bias", (filters,), constant=0.0))
                channels, height, breadth = filters, (height - kernel) // stride + 1, (breadth - kernel) // stride + 1
                if height < 1 or breadth < 1:
                    raise SpecError(
                        f"image{part.where} of shape {shape} is too small for the convolutions {self.convolutions}: "
                        f"nothing is left after number {i + 1}. Give CNN(filters=...) that fit"
                    )
            width += channels * height * breadth
        return width

    def draw(self, rng: np.random.Generator) -> Array:
        """Return the initial weights of one agent, [members * size] float32."""
        drawn = [parameter.draw(rng).reshape(-1) for _ in range(self.members) for parameter in self.parameters]
        return np.concatenate(drawn)

    def forward(self, ops: Any, weights: Sequence[Any], *inputs: Any) -> list[Any]:
        """Return each head's output, [K, B, width], or [K, members, B, width] of an ensemble.

        weights: the parameters in order, each [K * members, *shape].
        """
        if self.members == 1:
            return self._forward(ops, weights, inputs)
        repeated = [map_tree(lambda x: ops.repeat_agents(x, self.members), given) for given in inputs]
        return [ops.unfold_agents(out, self.members) for out in self._forward(ops, weights, repeated)]

    def _forward(self, ops: Any, weights: Sequence[Any], inputs: Sequence[Any]) -> list[Any]:
        remaining = iter(weights)
        if not self.definition.has_inputs:
            return [ops.constants(next(remaining)) for _ in self.heads]
        activate = getattr(ops, self.spec.activation)
        factors: Iterator[Any] = iter(())
        if self.definition.noisy:
            *inputs, noise = inputs
            factors = iter(ops.split(noise, self.noise_widths))

        def linear(x: Any) -> Any:
            mean = ops.linear(x, next(remaining), next(remaining))
            if not self.definition.noisy:
                return mean
            before, after = next(factors), next(factors)  # eqs. 10 and 11: the noise of a weight is their product
            return mean + ops.linear(x * before, next(remaining), next(remaining)) * after

        x = self._inputs(ops, remaining, activate, inputs)
        for _ in range(self.trunk_depth):
            x = activate(linear(x))
        outputs = []
        for head in self.heads:
            inner = x
            for _ in range(self.own_depth):
                inner = activate(linear(inner))
            out = linear(inner)
            outputs.append(ops.append_constants(out, next(remaining)) if head.free else out)
        return outputs

    def _inputs(self, ops: Any, remaining: Any, activate: Any, inputs: Sequence[Any]) -> Any:
        """Return the input of the first hidden layer: observation vector, further vectors, features of images."""
        pieces = list(inputs)
        if self.layout is not None:
            obs, *vectors = inputs
            arrays = obs if isinstance(obs, dict) else {self.names[0]: obs}
            pieces = [*([arrays[VECTOR]] if self.with_vector else []), *vectors]
        for name, order in self.image_orders.items():
            image = ops.scaled_image(arrays[name])
            if self.convolutions:
                image = ops.channels_first(image, order)
                for _, _, stride in self.convolutions:
                    image = activate(ops.convolve(image, next(remaining), next(remaining), stride))
            pieces.append(ops.flatten(image))
        return pieces[0] if len(pieces) == 1 else ops.concat(pieces, -1)
