"""The images among the inputs of a network: their scale, the axes of their arrays, and convolutions over them."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np

from marltrain.core.errors import SpecError
from marltrain.core.layout import Layout, Part
from marltrain.policies.networks.images import Scale, image_axes, image_scale
from marltrain.policies.networks.parameters import Parameter
from marltrain.policies.ops import FrameworkOps, Ops


@dataclass(frozen=True)
class ImageInput:
    """An image of a layout, as a network reads it.

    name: of its array.  order: of its axes, see `images.image_axes`.  scale: lowest values and spans.
    strides: of the convolutions.  parameters: theirs, a weight and a bias each.
    features: number of values that enter the first hidden layer.  multiply_adds: see `networks.Plan`.
    """

    name: str
    order: str
    scale: Scale
    strides: tuple[int, ...]
    parameters: tuple[Parameter, ...]
    features: int
    multiply_adds: int

    def forward(self, ops: Ops, weights: Iterator[Any], activate: Any, pixels: Any) -> Any:
        """Return the features [K, B, features] of uint8 values [K, B, ...]; takes the weights of the parameters.

        ops: those of a framework; networks that read images never act by numpy.
        """
        own = cast("FrameworkOps", ops)
        image = own.scaled_image(pixels, *self.scale)
        if self.strides:
            image = own.channels_first(image, self.order)
            for stride in self.strides:
                image = own.convolve(image, next(weights), next(weights), stride, activate)
        return own.flatten(image)


def image_inputs(layout: Layout, filters: Sequence[tuple[int, int, int]], channels: str) -> tuple[ImageInput, ...]:
    """Return the images of a layout as inputs.

    filters: (channels, kernel, stride) of each convolution; none: images are flattened.
    channels: their place among three axes, see `images.image_axes`.
    Raises SpecError if an image is too small for the convolutions.
    """
    return tuple(_image_input(part, filters, channels) for part in layout.images)


def _image_input(part: Part, filters: Sequence[tuple[int, int, int]], place: str) -> ImageInput:
    space: Any = part.space
    channels, height, breadth, order = image_axes(tuple(space.shape), part.stack, place)
    read, parameters = f"It is read as {channels} channels of {height} x {breadth}", list[Parameter]()
    multiply_adds = 0
    for i, (outputs, kernel, stride) in enumerate(filters):
        name = f"{part.array}.conv{i}"
        parameters.append(Parameter(f"{name}.weight", (outputs, channels, kernel, kernel), math.sqrt(2)))
        parameters.append(Parameter(f"{name}.bias", (outputs,), constant=0.0))
        channels, height, breadth = outputs, (height - kernel) // stride + 1, (breadth - kernel) // stride + 1
        if height < 1 or breadth < 1:
            raise SpecError(
                f"image{part.where} of shape {space.shape} is too small for the convolutions {filters}: nothing is "
                f"left after number {i + 1}. {read}. Give CNN(filters=..., channels=...) that fit, or MLP(), which "
                "flattens it"
            )
        multiply_adds += parameters[-2].size * height * breadth
    features = channels * height * breadth if filters else int(np.prod(space.shape))
    strides = tuple(stride for *_, stride in filters)
    return ImageInput(part.array, order, image_scale(space), strides, tuple(parameters), features, multiply_adds)
