"""Observations of decisions that follow each other, as files of episodes hold them."""

from __future__ import annotations

from typing import Any

import numpy as np

from marltrain.core.errors import AgentError
from marltrain.core.layout import Array, Layout, Obs, arrays_of


def followed(obs: Obs, following: Obs) -> Array:
    """Return whether the next observation of each row is the observation of the row after it, [N] bool."""
    parts = zip(arrays_of(obs), arrays_of(following), strict=True)
    equal = [(after[:-1] == seen[1:]).all(tuple(range(1, seen.ndim))) for seen, after in parts]
    return np.append(np.all(equal, axis=0), False)


def check_chain(obs: Obs, following: Obs, ends: Array) -> None:
    """Raise AgentError unless the decisions of each episode follow each other."""
    apart = np.flatnonzero(~ends & ~followed(obs, following))
    if len(apart):
        raise AgentError(
            f"a Minari dataset holds the observations of an episode as a chain, and the next observation of decision "
            f"{apart[0]} is not the observation of decision {apart[0] + 1}, which is of the same episode (so are "
            f"{len(apart):,} of {len(ends):,} decisions). Sort the decisions by time, or give ends=, true for the last "
            "decision of each piece"
        )


def equal(one: Obs | None, other: Obs | None) -> bool:
    """Return whether both are None, or hold equal arrays."""
    if one is None or other is None:
        return one is other
    return all(np.array_equal(a, b) for a, b in zip(arrays_of(one), arrays_of(other), strict=True))


def in_space(layout: Layout, what: str, obs: Obs) -> Any:
    """Return observations in the structure of their space; raises AgentError for arrays that change by this."""
    decoded = layout.decode(obs)
    pairs = zip(arrays_of(layout.encode(decoded, bounds=False)[0]), arrays_of(obs), strict=True)
    changed = np.any([(a != b).any(tuple(range(1, b.ndim))) for a, b in pairs], axis=0)
    if changed.any():
        row = int(np.flatnonzero(changed)[0])
        raise AgentError(
            f"a Minari dataset holds observations of {layout.space}, and {what} of decision {row} is none of them: "
            "its values are not those of an encoded observation. Make the demonstrations with from_arrays"
        )
    return decoded
