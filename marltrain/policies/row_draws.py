"""Random numbers for the rows of a batch, drawn from the agents' own streams."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from marltrain.layout import Array

Draw = Callable[[Sequence[np.random.Generator], int], Mapping[str, Any]]
"""(K generators, B rows) -> arrays, or mappings of arrays, [K, B, ...] by name.

The arrays of agent k depend on its own generator and on B only.
"""


def drawn_rows(draw: Draw, rngs: Sequence[np.random.Generator], counts: Array, rows: int) -> dict[str, Any]:
    """Return what `draw` draws, [K, rows, ...], for the first `counts[k]` rows of each agent; the others are zeros.

    An agent without rows draws nothing, and padding draws nothing: the numbers do not depend on the other agents.
    """
    if np.count_nonzero(counts == rows) == len(rngs):
        return dict(draw(rngs, rows))
    made: dict[str, Any] = {}
    for k, count in enumerate(counts.tolist()):
        if count:
            _place(made, draw([rngs[k]], count), k, (len(rngs), rows))
    return made


def _place(made: dict[str, Any], drawn: Mapping[str, Any], k: int, leading: tuple[int, int]) -> None:
    """Copy the arrays [1, count, ...] of agent k into arrays [K, rows, ...], which are made if they are missing."""
    for name, values in drawn.items():
        if isinstance(values, Mapping):
            _place(made.setdefault(name, {}), values, k, leading)
            continue
        if name not in made:
            made[name] = np.zeros((*leading, *values.shape[2:]), values.dtype)
        made[name][k, : values.shape[1]] = values[0]
