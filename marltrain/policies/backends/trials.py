"""The result of a trial of a user's model in training: whether the rows of a batch may be computed in parts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from marltrain.core.layout import Array, arrays_of, map_tree
from marltrain.policies.networks.specs import NetworkDefinition

ROWS = 4
"""Rows of a trial's batches; only the first row is equal in both."""
CLOSE = 1e-4
"""Largest relative difference of the outputs of equal rows."""


@dataclass(frozen=True)
class Trial:
    """What a user's model does in a call in training, beside computing the outputs of each row.

    couples: a sentence without its end that names the layer whose results depend on several rows; None: there is none.
    changes: the same for a layer that changes arrays of its own, such as the state of a random generator.
    """

    couples: str | None = None
    changes: str | None = None


def keeps(layer: str) -> str:
    """Return `Trial.couples` for a layer that keeps statistics over a batch."""
    return f"{layer} keeps statistics over the rows of a batch"


def reads_others(layer: str) -> str:
    """Return `Trial.couples` for a layer whose output of a row depends on other rows."""
    return f"{layer} computes the output of a row from other rows of the batch"


def described(name: str, kind: object) -> str:
    """Return a layer's name and class as text; name: "" for the model itself."""
    return f"layer {name!r} ({type(kind).__name__})" if name else f"the model ({type(kind).__name__})"


def two_batches(definition: NetworkDefinition, tensor: Callable[[Array], Any]) -> list[list[Any]]:
    """Return the inputs of two calls of a user's model, each [ROWS, ...], with equal first rows.

    tensor: converts an array.
    """
    drawn = [definition.empty((ROWS,), _drawn_by(np.random.default_rng(seed))) for seed in range(2)]
    for one, other in zip(*drawn, strict=True):
        for here, there in zip(arrays_of(one), arrays_of(other), strict=True):
            there[0] = here[0]
    return [[map_tree(tensor, given) for given in batch] for batch in drawn]


def _drawn_by(rng: np.random.Generator) -> Callable[[tuple[int, ...], Any], Array]:
    """Return a function of shape and dtype; its numbers are below 1, so that a model that casts them gets indices."""

    def random(shape: tuple[int, ...], dtype: Any) -> Array:
        if dtype == np.uint8:
            return rng.integers(256, size=shape, dtype=np.uint8)
        result: Array = rng.random(shape).astype(dtype)
        return result

    return random
