"""Places of offered decisions in reservoirs, in compiled code; see `memory.reservoir`."""

from __future__ import annotations

from typing import Any

import numpy as np

from marltrain.core.layout import Array
from marltrain.jit.compiling import compiled, program


@program
def places_of(new: Array, chosen: Array, keys: Array, heap: Array, held: Array, offered: Array) -> Array:
    """Return the places for the decisions that are offered with the keys `new` [P, E]: [P, E] int64, -1 for none.

    chosen: [P, E] bool, those that count.  keys: [P, C] float32, written.  heap: see `Reservoir`.
    """
    places = np.full(new.shape, -1, np.int64)
    for p in range(new.shape[0]):
        for e in range(new.shape[1]):
            if chosen[p, e] and new[p, e] > 0:
                places[p, e] = place_for(new[p, e], keys[p], heap[p], held, offered, p)
    return places


@compiled
def place_for(key: Any, keys: Any, heap: Any, held: Any, offered: Any, player: int) -> int:
    """Return the place for an offered decision of a player, whose key is written there; -1 if it is not taken.

    keys, heap: those of the player, [C].  held, offered: of all players, counted.
    """
    offered[player] += 1
    count = held[player]
    if count < len(keys):
        keys[count], heap[count] = key, count
        held[player] += 1
        rise(keys, heap, count)
        return count
    place: int = heap[0]
    if key <= keys[place]:
        return -1
    keys[place] = key
    sink(keys, heap)
    return place


@compiled
def rise(keys: Any, heap: Any, at: int) -> None:
    """Move the last place of a heap up to where it belongs."""
    while at and is_less(keys, heap[at], heap[(at - 1) // 2]):
        above = (at - 1) // 2
        heap[at], heap[above] = heap[above], heap[at]
        at = above


@compiled
def sink(keys: Any, heap: Any) -> None:
    """Move the first place of a heap down to where it belongs."""
    at, below_it = 0, 1
    while below_it < len(heap):
        if below_it + 1 < len(heap) and is_less(keys, heap[below_it + 1], heap[below_it]):
            below_it += 1
        if not is_less(keys, heap[below_it], heap[at]):
            break
        heap[at], heap[below_it] = heap[below_it], heap[at]
        at, below_it = below_it, 2 * below_it + 1


@compiled
def is_less(keys: Any, place: int, other: int) -> bool:
    """Return whether the key of a place is smaller than that of another; of equal keys, that of the smaller place."""
    return bool(keys[place] < keys[other] or (keys[place] == keys[other] and place < other))
