"""The network that an agent gets without `network=`, by its observations."""

from __future__ import annotations

from marltrain.core.layout import Layout
from marltrain.policies.networks.images import image_axes
from marltrain.policies.networks.specs import CNN, MLP, NetworkSpec

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
    sides = [image_axes(tuple(part.space.shape or ()), part.stack)[1:3] for part in layout.images]
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
