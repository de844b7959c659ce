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

from marltrain.core.errors import ConfigError, did_you_mean, shown
from marltrain.core.layout import VECTOR, Allocate, Array, Layout, map_tree
from marltrain.core.settings import as_integer, checked_arguments
from marltrain.policies.networks.cells import Cell, GRUCell, LSTMCell, carries_apart, carries_joined
from marltrain.policies.networks.image_inputs import ImageInput, image_inputs
from marltrain.policies.networks.images import AUTO, CHANNELS
from marltrain.policies.networks.parameters import Parameter
from marltrain.policies.ops import Ops

ACTIVATIONS = ("tanh", "relu", "elu", "silu", "gelu")
WIDEST = 2**16
"""Maximum number of units per layer; a square layer of this width exceeds the memory."""


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
    noisy: sigma_0 of noisy networks with factorized noise (Fortunato et al. 2017, arXiv:1706.10295); 0: not noisy. Each
      fully connected layer then has a second weight and bias, the standard deviations of the first. The last input of
      a call is the noise, [K, B, `noise_width`]; zeros give the mean network.
    burn_in: rows at the start of a sequence from which no gradient flows to later ones, of a recurrent network.

    A recurrent network (GRU, LSTM) gets the carries of the rows after all other inputs, [K, B, `carry_width`], and
    returns the next carries after the outputs; those of the members of an ensemble are side by side. To evaluate
    sequences, it also gets `begins`; see `Cell.unrolled`.

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
    burn_in: int = 0

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

    @property
    def carry_width(self) -> int:
        """Number of values that recurrent networks, all members, carry from row to row; 0 for other networks."""
        return self.members * self.spec.cell.carry_width if isinstance(self.spec, Recurrent) else 0

    def empty(self, leading: tuple[int, ...], allocate: Allocate = np.zeros) -> list[Any]:
        """Allocate the inputs of a call, with `leading` axes."""
        observations = [] if self.layout is None else [self.layout.empty(leading, allocate)]
        return [*observations, *(allocate((*leading, width), np.float32) for width in self.vectors)]


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
        """Return the specification as JSON values; without channels="auto", as older versions described it."""
        values = {name: value for name, value in asdict(self).items() if (name, value) != ("channels", AUTO)}
        return {"type": type(self).__name__, **values}


def _is_size(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= WIDEST


@checked_arguments
@dataclass(frozen=True)
class MLP(NetworkSpec):
    """Fully connected layers. Images are scaled by their bounds to [0, 1] and flattened."""


@checked_arguments
@dataclass(frozen=True)
class CNN(NetworkSpec):
    """Convolutions over the images, then fully connected layers over their outputs and the vector part.

    filters: (channels, kernel, stride) of each convolution, without padding.
    channels: "first" or "last", the place of the channels among the three axes of an image; "auto": see
      `images.channels_of`.
    """

    hidden: tuple[int, ...] = (128,)
    activation: str = "relu"
    filters: tuple[tuple[int, int, int], ...] = ((16, 3, 2), (32, 3, 2))
    channels: str = AUTO

    def __post_init__(self) -> None:
        """Raise ConfigError for filters that are not triples of positive integers, and for other channels."""
        super().__post_init__()
        object.__setattr__(self, "filters", _checked_filters(self, least=1))
        _check_channels(self)


LONGEST = 1024
"""Largest `sequence_length`, which detects mistyped settings."""


@dataclass(frozen=True)
class Recurrent(NetworkSpec):
    """Base class of recurrent networks: fully connected layers, then a cell, whose output the heads read.

    hidden: widths of the layers before the cell.  units: number of outputs of the cell.
    sequence_length: rows over which gradients flow back; a rollout or a sample is learned from in such sequences.
    filters, channels: convolutions over the images before the layers, see `CNN`; none: images are flattened.
    """

    hidden: tuple[int, ...] = (64,)
    units: int = 64
    sequence_length: int = 16
    filters: tuple[tuple[int, int, int], ...] = ()
    channels: str = AUTO

    def __post_init__(self) -> None:
        """Raise ConfigError for numbers out of range."""
        super().__post_init__()
        for name, most in (("units", WIDEST), ("sequence_length", LONGEST)):
            object.__setattr__(self, name, as_integer(getattr(self, name)))
            if not _is_size(value := getattr(self, name)) or value > most:
                raise ConfigError(
                    f"{type(self).__name__}: {name} must be an integer from 1 to {most}, got {shown(value)}"
                )
        object.__setattr__(self, "filters", _checked_filters(self, least=0))
        _check_channels(self)

    @property
    def cell(self) -> Cell:
        """The cell."""
        raise TypeError(f"{type(self).__name__} must define cell")

    @property
    def without_memory(self) -> NetworkSpec:
        """The network with a fully connected layer in place of the cell."""
        hidden = (*self.hidden, self.units)
        return (
            CNN(hidden, self.activation, self.filters, self.channels) if self.filters else MLP(hidden, self.activation)
        )


@checked_arguments
@dataclass(frozen=True)
class GRU(Recurrent):
    """Layers, then a gated recurrent unit; see `Recurrent` for the arguments and `GRUCell` for the equations."""

    @property
    def cell(self) -> Cell:
        """See `Recurrent`."""
        return GRUCell(self.units)


@checked_arguments
@dataclass(frozen=True)
class LSTM(Recurrent):
    """Layers, then a long short-term memory; see `Recurrent` for the arguments and `LSTMCell` for the equations."""

    @property
    def cell(self) -> Cell:
        """See `Recurrent`."""
        return LSTMCell(self.units)


def _checked_filters(spec: Any, least: int) -> tuple[tuple[int, ...], ...]:
    """Return the filters of a specification; raises ConfigError unless they are at least `least` triples."""
    triples = spec.filters if isinstance(spec.filters, Sequence) else (None,)
    filters = tuple(tuple(map(as_integer, f)) if isinstance(f, Sequence) else () for f in triples)
    if len(filters) < least or any(len(f) != 3 or not all(map(_is_size, f)) for f in filters):
        raise ConfigError(
            f"{type(spec).__name__}: filters must be triples (channels, kernel, stride) of integers of at least 1, "
            f"such as ((16, 3, 2), (32, 3, 2)), got {shown(spec.filters)}"
        )
    return filters


def _check_channels(spec: Any) -> None:
    if not isinstance(spec.channels, str) or spec.channels not in CHANNELS:
        near = did_you_mean(spec.channels, CHANNELS)
        raise ConfigError(
            f"{type(spec).__name__}: channels must be one of {', '.join(CHANNELS)}, the place of the channels among "
            f"the axes of an image, got {shown(spec.channels)}.{near}"
        )


def spec_from(description: dict[str, Any]) -> NetworkSpec:
    """Build a specification from the result of `describe`; raises ConfigError for an unknown type."""
    kinds: dict[str, type[NetworkSpec]] = {"MLP": MLP, "CNN": CNN, "GRU": GRU, "LSTM": LSTM}
    values = dict(description)
    kind = values.pop("type", None)
    if not isinstance(kind, str) or kind not in kinds:
        raise ConfigError(f"network type must be one of {', '.join(kinds)}, got {kind!r}")
    return kinds[kind](**values)


class Plan:
    """The parameters and the forward pass of a network over a NetworkSpec.

    With several heads, each head has its own last hidden layers of full width (`NetworkDefinition.head_layers`). The
    dueling streams of Wang et al. 2016 are two heads. The heads of a recurrent network read the output of its cell.

    cell: the cell of a recurrent network, else None.
    multiply_adds: multiplications of a forward pass over one row, all members of an ensemble together.
    noise_widths: the numbers of inputs and of outputs of each noisy layer, in the order of the layers.
    """

    def __init__(self, definition: NetworkDefinition) -> None:
        """Create the parameters; raises SpecError if an image is too small for the convolutions.

        Raises ConfigError for a recurrent network that is noisy.
        """
        self.definition, self.spec, self.layout = definition, definition.spec, definition.layout
        self.heads, self.members = tuple(definition.heads), definition.members
        self._own_inputs = (self.layout is not None) + len(definition.vectors)  # those before the carries
        self._is_constant = not definition.has_inputs
        self.parameters: list[Parameter] = []
        self.multiply_adds = 0
        self.noise_widths: list[int] = []
        self.convolutions = self.spec.filters if isinstance(self.spec, CNN | Recurrent) else ()
        self.cell = self.spec.cell if isinstance(self.spec, Recurrent) else None
        if self.cell and definition.noisy:
            raise ConfigError(f"a network over {self.spec} cannot be noisy: take MLP() or CNN()")
        width = self._lay_inputs()
        hidden = () if self._is_constant else self.spec.hidden
        own = min(definition.head_layers, len(hidden)) if len(self.heads) > 1 and not self.cell else 0
        self.trunk_depth, self.own_depth = len(hidden) - own, own
        for i, size in enumerate(hidden[: self.trunk_depth]):
            self._linear(f"hidden{i}", width, size, math.sqrt(2))
            width = size
        if self.cell:
            self.parameters += self.cell.parameters(width)
            self.multiply_adds += sum(each.size for each in self.cell.parameters(width) if len(each.shape) > 1)
            width = self.cell.units
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
        self.multiply_adds *= self.members

    def _linear(self, name: str, width: int, size: int, gain: float) -> None:
        self.parameters.append(Parameter(f"{name}.weight", (width, size), gain))
        self.parameters.append(Parameter(f"{name}.bias", (size,), constant=0.0))
        self.multiply_adds += width * size * (2 if self.definition.noisy else 1)
        if self.definition.noisy:
            sigma = self.definition.noisy / math.sqrt(width)
            self.parameters.append(Parameter(f"{name}.weight_sigma", (width, size), constant=sigma))
            self.parameters.append(Parameter(f"{name}.bias_sigma", (size,), constant=sigma))
            self.noise_widths += [width, size]

    def _lay_inputs(self) -> int:
        """Add the parameters of convolutions; return the input width of the first hidden layer."""
        self.images: tuple[ImageInput, ...] = ()
        self.vector_width = width = sum(self.definition.vectors) + (self.layout.vector_size if self.layout else 0)
        if self.layout is None:
            return width
        self.names, self.with_vector = tuple(self.layout.shapes), self.layout.vector_size > 0
        self.images = image_inputs(self.layout, self.convolutions, getattr(self.spec, "channels", AUTO))
        for image in self.images:
            self.parameters += image.parameters
            self.multiply_adds += image.multiply_adds
        return width + sum(image.features for image in self.images)

    def draw(self, rng: np.random.Generator) -> Array:
        """Return the initial weights of one agent, [members * size] float32."""
        drawn = [parameter.draw(rng).reshape(-1) for _ in range(self.members) for parameter in self.parameters]
        return np.concatenate(drawn)

    def forward(self, ops: Ops, weights: Sequence[Any], *inputs: Any) -> list[Any]:
        """Return each head's output, [K, B, width], or [K, members, B, width] of an ensemble; then the next carries.

        weights: the parameters in order, each [K * members, *shape].
        """
        if self.members == 1:
            return self._forward(ops, weights, inputs)
        repeated = [map_tree(lambda x: ops.repeat_agents(x, self.members), given) for given in inputs]
        if self.cell:
            repeated[self._own_inputs] = carries_apart(ops, inputs[self._own_inputs], self.members)
        outputs = [ops.unfold_agents(out, self.members) for out in self._forward(ops, weights, repeated)]
        return [*outputs[:-1], carries_joined(ops, outputs[-1])] if self.cell else outputs

    def _forward(self, ops: Ops, weights: Sequence[Any], inputs: Sequence[Any]) -> list[Any]:
        remaining = iter(weights)
        if self._is_constant:
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

        x, memory = self._inputs(ops, remaining, activate, inputs[: self._own_inputs]), inputs[self._own_inputs :]
        carries: list[Any] = []
        for _ in range(self.trunk_depth):
            x = activate(linear(x))
        if self.cell and len(memory) == 1:
            x, *carries = self.cell.step(ops, remaining, x, *memory)
        elif self.cell:
            (carry, begins), burn_in = memory, self.definition.burn_in
            x, *carries = self.cell.unrolled(ops, remaining, self.spec.sequence_length, x, carry, begins, burn_in)
        outputs = []
        for head in self.heads:
            inner = x
            for _ in range(self.own_depth):
                inner = activate(linear(inner))
            out = linear(inner)
            outputs.append(ops.append_constants(out, next(remaining)) if head.free else out)
        return outputs + carries

    def _inputs(self, ops: Ops, remaining: Any, activate: Any, inputs: Sequence[Any]) -> Any:
        """Return the input of the first hidden layer: observation vector, further vectors, features of images."""
        pieces = list(inputs)
        if self.layout is not None:
            obs, *vectors = inputs
            arrays = obs if isinstance(obs, dict) else {self.names[0]: obs}
            pieces = [*([arrays[VECTOR]] if self.with_vector else []), *vectors]
        pieces += [image.forward(ops, remaining, activate, arrays[image.name]) for image in self.images]
        return pieces[0] if len(pieces) == 1 else ops.concat(pieces, -1)
