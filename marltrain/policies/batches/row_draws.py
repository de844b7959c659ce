"""Random numbers for the rows of a batch, drawn from the agents' own streams."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from marltrain.core.layout import Array

Draw = Callable[[Sequence[np.random.Generator], int], Mapping[str, Any]]
"""(K generators, B rows) -> arrays, or mappings of arrays, [K, B, ...] by name.

The arrays of agent k depend on its own generator and on B only.
"""


def drawn_rows(draw: Draw, rngs: Sequence[np.random.Generator], rows: Array) -> dict[str, Any]:
    """Return what `draw` draws, [K, B, ...], for the agents' rows where `rows` [K, B] is True; the others are zeros.

    An agent without rows draws nothing, and padding draws nothing: the numbers do not depend on the other agents.
    """
    if np.count_nonzero(rows) == rows.size:
        return dict(draw(rngs, rows.shape[1]))
    result: dict[str, Any] = {}
    for k, own in enumerate(rows):
        if count := int(np.count_nonzero(own)):
            _place(result, draw([rngs[k]], count), k, rows)
    return result


def _place(made: dict[str, Any], drawn: Mapping[str, Any], k: int, rows: Array) -> None:
    """Copy the arrays [1, n, ...] of agent k to its rows in arrays [K, B, ...], which are made if they are missing."""
    for name, values in drawn.items():
        if isinstance(values, Mapping):
            _place(made.setdefault(name, {}), values, k, rows)
            continue
        if name not in made:
            made[name] = np.zeros((*rows.shape, *values.shape[2:]), values.dtype)
        made[name][k, rows[k]] = values[0]
