"""The segments of a table while it is assembled: arrays by name, with one shape and type wherever they are used."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from marltrain.core.errors import MarlTrainError
from marltrain.policies.tape.assembly.table import DTYPES, INDEX, Role, Section, Segment
from marltrain.policies.tape.instructions import FIXED, SEGMENTS, place
from marltrain.policies.tape.operations import DType

WITH_ROWS: tuple[Role, ...] = ("rows", "gathered", "own rows")
"""Roles of arrays whose axis 1 are rows."""


GRADIENT = "gradient/"
"""Beginning of the names of the gradients of networks; the name of the network follows."""


class AssemblyError(MarlTrainError, ValueError):
    """A recording that has no table."""


class Segments:
    """The arrays of a program.

    found: name -> segment, in the order of their numbers.
    """

    def __init__(self, roles: Mapping[str, Role]) -> None:
        """Start without segments.  roles: name -> role, of those that are not "agent"."""
        self._roles: dict[str, Role] = {INDEX: "rows", **roles}
        self.found: dict[str, Segment] = {}
        self._rows: dict[Section, int] = {}  # of each section

    def role(self, name: str) -> Role:
        """Return the role of a name; gradients are sums of the thread unless they have another."""
        return self._roles.get(name, "own sum" if name.startswith(GRADIENT) else "agent")

    def add(self, name: str, shape: Sequence[int], dtype: DType, section: Section, *, written: bool = False) -> int:
        """Enter the use of an array in a section and return its place; raises AssemblyError if it is used otherwise.

        shape: [K, ...], or [K, rows, ...].
        """
        role = self.role(name)
        if role in WITH_ROWS and len(shape) < 2:
            raise AssemblyError(f"segment {name!r}: expected the rows in axis 1, got shape {tuple(shape)}")
        rows: dict[Section, int] = {section: shape[1]} if role in WITH_ROWS else {}
        if rows and shape[1] != (known := self._rows.setdefault(section, shape[1])):
            raise AssemblyError(f"segment {name!r}: expected {known} rows in section {section!r}, got {shape[1]}")
        new = Segment(name, DTYPES[dtype], (*shape[:1], 0, *shape[2:]) if rows else tuple(shape), role, rows, written)
        old = self.found.get(name, new)
        if old.shape != new.shape or old.dtype != new.dtype or {**rows, **old.rows} != {**old.rows, **rows}:
            raise AssemblyError(
                f"segment {name!r} in section {section!r}: expected {old.dtype} {old.shape} with rows {old.rows} as "
                f"elsewhere, got {new.dtype} {new.shape} with rows {new.rows}"
            )
        if name not in self.found and len(FIXED) + len(self.found) == SEGMENTS:
            raise AssemblyError(f"expected at most {SEGMENTS - len(FIXED)} segments, got another, {name!r}")
        self.found[name] = replace(old, rows={**old.rows, **rows}, written=old.written or written)
        return self.place(name)

    def place(self, name: str, offset: int = 0) -> int:
        """Return a place in a segment, `offset` in bytes; raises ValueError if there is none of that name."""
        return place(len(FIXED) + list(self.found).index(name), offset)
