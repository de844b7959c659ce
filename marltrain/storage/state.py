"""The saved state of an object: a tree of JSON values and named arrays, read with checks."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from marltrain.core.errors import SaveError
from marltrain.core.layout import Array
from marltrain.storage.checks import MOST_COUNTED, counted, of_type, shaped


@dataclass
class State:
    """State of an object, for saving and restoring it.

    info: plain JSON values.  arrays: named NumPy arrays.  name: path of the state, as in "memory/0/ends", for messages.
    """

    info: dict[str, Any] = field(default_factory=dict)
    arrays: dict[str, Array] = field(default_factory=dict)
    name: str = field(default="", compare=False, repr=False)

    @classmethod
    def joined(cls, **parts: State) -> State:
        """Return a state that combines several states; `part` returns them by name."""
        result = cls()
        for name, part in parts.items():
            result.add(name, part)
        return result

    def add(self, name: str, part: State) -> None:
        """Add the state of a part; its arrays get names "<name>/..."."""
        self.info[name] = part.info
        self.arrays.update({f"{name}/{key}": array for key, array in part.arrays.items()})

    def part(self, name: str) -> State:
        """Return the part added under a name; raises SaveError if there is none."""
        start = f"{name}/"
        held = {key.removeprefix(start): array for key, array in self.arrays.items() if key.startswith(start)}
        return State(self.value(name, dict), held, self.place(name))

    def place(self, name: str) -> str:
        """Return the path of a value or array of this state, for messages."""
        return f"{self.name}/{name}".removeprefix("/")

    def value(self, name: str, *kinds: type) -> Any:
        """Return a JSON value; raises SaveError if it is missing or of another type than `kinds`."""
        if name not in self.info:
            raise SaveError(f"{self.place(name)} is missing")
        return of_type(self.place(name), self.info[name], *kinds)

    def values(self, name: str, *kinds: type) -> list[Any]:
        """Return a list of JSON values; raises SaveError if one of them is of another type than `kinds`."""
        return [of_type(f"{self.place(name)}[{i}]", one, *kinds) for i, one in enumerate(self.value(name, list))]

    def names(self, name: str) -> list[str]:
        """Return a list of names; raises SaveError if one is not text or occurs twice."""
        found = self.values(name, str)
        if len(set(found)) != len(found):
            raise SaveError(f"{self.place(name)} holds a name twice: {', '.join(found):.200}")
        return found

    def count(self, name: str, low: int = 0, high: int = MOST_COUNTED) -> int:
        """Return an integer; raises SaveError if it is missing or not from `low` to `high`."""
        return counted(self.place(name), self.value(name, int), low, high)

    def array(self, name: str, dtype: Any, shape: tuple[int, ...]) -> Array:
        """Return an array; raises SaveError if it is missing or has another dtype or shape."""
        return shaped(self.place(name), self.any_array(name), dtype, shape)

    def any_array(self, name: str) -> Array:
        """Return an array of any dtype and shape; raises SaveError if it is missing."""
        if name not in self.arrays:
            raise SaveError(f"{self.place(name)} is missing")
        return self.arrays[name]
