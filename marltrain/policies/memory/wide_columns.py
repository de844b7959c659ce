"""The wide columns of batches: observations, legal actions, actions, extras, global states.

A reader whose learner computes on a GPU gathers them there, from mirrors of the ring (`MirroredColumns`); the batch
then holds tensors in their place. Other columns (rewards, discounts, weights) are arrays in any case.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from marltrain.core.layout import VECTOR, Array, map_tree
from marltrain.policies.backends.row_memory import RowMemory
from marltrain.policies.memory.mirror import LEGAL, Mirror, OfPlayers, Source
from marltrain.policies.memory.needs import Needs
from marltrain.policies.memory.ring import Ring
from marltrain.policies.memory.rows import joined


class Wide(NamedTuple):
    """Wide columns of rows, [*cells.shape, ...], and of what follows them; arrays, or tensors on a device."""

    obs: Any
    legal: Any
    action: Any
    extras: dict[str, Any]
    next_obs: Any
    next_legal: Any


def zero_where_not(valid: Array, obs: Any) -> Any:
    """Return observations with zeros where `valid` [N, B] is False: losses multiply them by 0, also if not finite."""
    if np.count_nonzero(valid) == valid.size:
        return obs
    return map_tree(lambda x: np.where(valid.reshape(*valid.shape, *[1] * (x.ndim - 2)), x, x.dtype.type(0)), obs)


def legal_where_not(valid: Array, legal: Array | None) -> Array | None:
    """Return legal actions [N, B, n]; all where `valid` [N, B] is False, since losses need at least one."""
    return None if legal is None else legal | ~valid[..., None]


class MirroredColumns:
    """Gathers the wide columns of batches in the memory of a device; the values are those of the ring."""

    def __init__(self, ring: Ring, needs: Needs, identities: Array, memory: RowMemory) -> None:
        """Take or make the mirrors of the ring and of the global states that `needs` asks for.

        identities: see `Reader`; of each player of the ring, its place among `needs.identity`.
        """
        self._ring, self._needs = ring, needs
        self._rows = _mirror_of(ring, memory)
        self._states = None if needs.state is None else ring.states[needs.state.kind]
        self._mirrored_states = None if self._states is None else _mirror_of(self._states, memory)
        self._join, self._hot = memory.join, None
        if needs.identity:
            blank = np.append(identities, -1)
            hot = blank[:, None] == np.arange(len(needs.identity))
            self._hot = OfPlayers(memory.send([hot.astype(np.float32)])[0])

    def read(
        self, cells: Array, last: Array, pointers: Array, present: Array | None, next_present: Array | None
    ) -> Wide:
        """See `Reader._wide`."""
        ring, rows, blank = self._ring, self._rows, self._rows.place_of_blank()
        there, then = _blanked(cells, present, blank), _blanked(ring.place_after(last, pointers), next_present, blank)
        wanted: dict[Any, tuple[Any, Array]] = {"action": ("action", cells)}
        wanted |= {("extra", name): (f"extras/{name}", cells) for name in self._needs.columns}
        if ring.legal is not None:
            wanted |= {LEGAL: (LEGAL, there), "next_legal": (LEGAL, then)}
        places = ring.places_at(cells), ring.places_after(last, pointers)
        plain = there, then
        for when, own, valid, usual in zip(("obs", "next"), places, (present, next_present), plain, strict=True):
            for name, at in own.items():
                wanted[when, name] = (f"obs/{name}", usual if at.shape == usual.shape else _blanked(at, valid, blank))
        if self._hot is not None:
            of_last = there if last is cells and next_present is present else _blanked(last, next_present, blank)
            wanted |= {("obs", None): (self._hot, there), ("next", None): (self._hot, of_last)}
        found = dict(zip(wanted, rows.read(list(wanted.values())), strict=True))
        return Wide(
            obs=self._observed(found, "obs"), legal=found.get(LEGAL), action=found["action"],
            extras={name: found["extra", name] for name in self._needs.columns},
            next_obs=self._observed(found, "next"), next_legal=found.get("next_legal"),
        )  # fmt: skip

    def _observed(self, found: Mapping[Any, Any], when: str) -> Any:
        """Return observations from the arrays that were found for "obs" or "next", with the players' one-hots."""
        arrays = {name: found[when, name] for name in self._ring.obs}
        if self._hot is None:
            return joined(arrays)
        hot = found[when, None]
        vector = self._join([arrays[VECTOR], hot]) if VECTOR in arrays else hot
        return joined({VECTOR: vector, **{name: array for name, array in arrays.items() if name != VECTOR}})

    def states(self, places: Array, following: Array) -> tuple[Any, Any]:
        """Return the global states at places and those at the places `following`."""
        if self._mirrored_states is None:
            return None, None
        state, after = self._mirrored_states.read([("state", places), ("state", following)])
        return state, after


def mirror_size(ring: Ring, needs: Needs) -> int:
    """Return the bytes that the mirrors of a reader take on a device."""
    sources: list[Source] = [ring, *([] if needs.state is None else [ring.states[needs.state.kind]])]
    return sum(
        column.nbytes + (0 if final is None else final.nbytes)
        for source in sources for column, final in source.mirrored().values()
    )  # fmt: skip


def _mirror_of(source: Any, memory: RowMemory) -> Mirror:
    """Return the mirror of a source on a device; readers of one source have one."""
    if memory.name not in source.mirrors:
        source.mirrors[memory.name] = Mirror(source, memory)
    found: Mirror = source.mirrors[memory.name]
    return found


def _blanked(places: Array, valid: Array | None, blank: int) -> Array:
    """Return places [*valid.shape, ...], the blank one where `valid` is False."""
    if valid is None or np.count_nonzero(valid) == valid.size:
        return places
    return np.where(valid.reshape(*valid.shape, *[1] * (places.ndim - valid.ndim)), places, blank)
