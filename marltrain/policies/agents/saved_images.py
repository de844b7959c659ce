"""How the networks of a saved agent read images, held against how they would be read now.

Weights fit a network of another reading: they would compute other numbers in silence. Before this description existed,
values were divided by 255 whatever the bounds of their space, and the shorter of the outer axes held the channels.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from marltrain.core.errors import SaveError, shown
from marltrain.core.layout import Part
from marltrain.policies.interface.algorithm import Algorithm
from marltrain.policies.networks.images import AUTO, FIRST, FRAMES_LAST, LAST, NONE, image_axes
from marltrain.policies.networks.specs import NetworkSpec

IMAGES = "images"
"""Key of the description: name of an image -> order of its axes, as networks with channels="auto" read them."""


def described_images(algorithm: Algorithm) -> dict[str, dict[str, str]]:
    """Return {IMAGES: the description} of an agent whose networks, by a `NetworkSpec`, read images; else {}."""
    orders = {part.array: _order(part) for part, _ in _read(algorithm)}
    return {IMAGES: orders} if orders else {}


def check_images(algorithm: Algorithm, saved: Any) -> None:
    """Raise SaveError if the networks of a saved agent read images in another way.

    saved: the description; None if there is none.
    """
    if saved is not None and not isinstance(saved, Mapping):
        raise SaveError(f"{IMAGES!r} must describe how images are read, by their names, got {shown(saved)}")
    for part, automatic in _read(algorithm):
        space: Any = part.space
        if saved is None and not (np.all(space.low == 0) and np.all(space.high == 255)):
            raise SaveError(
                f"image{part.where}: the agent was saved by a marltrain that divided images by 255. This one "
                f"scales them by the bounds of their space, {shown(space)}, for which the weights are not made. Train "
                "the agent again, or load it with the older version"
            )
        now, before = _order(part), _older_order(part) if saved is None else saved.get(part.array)
        if automatic and now != before:
            raise SaveError(
                f"image{part.where} of shape {space.shape}: the saved networks read its axes with the channels "
                f"{shown(before)}, those of this agent read them {now!r}. Train the agent again, with "
                f"channels={LAST!r} or {FIRST!r} in its network"
            )


def _read(algorithm: Algorithm) -> Iterator[tuple[Part, bool]]:
    """Yield the images that each network by a `NetworkSpec` reads, and whether it looks for their channels itself."""
    for network in algorithm.networks().values():
        if network.layout is not None and isinstance(network.spec, NetworkSpec):
            filters, channels = getattr(network.spec, "filters", ()), getattr(network.spec, "channels", AUTO)
            yield from ((part, bool(filters) and channels == AUTO) for part in network.layout.images)


def _order(part: Part) -> str:
    return image_axes(tuple(part.space.shape or ()), part.stack)[3]


def _older_order(part: Part) -> str:
    shape = tuple(part.space.shape or ())
    if part.stack > 1:
        return FRAMES_LAST if len(shape) == 4 else FIRST
    return NONE if len(shape) == 2 else FIRST if shape[0] < shape[2] else LAST
