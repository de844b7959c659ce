"""Growing tables: `Readings` in memory, `LongTable` with older rows on disk."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from marltrain.core.errors import SaveError
from marltrain.core.layout import Array
from marltrain.storage.checks import shaped
from marltrain.storage.files import inside, pack_arrays, read_arrays, replacing, sha256
from marltrain.storage.state import State


class Readings:
    """Table of named numbers in memory; rows may lack names (nan) or add new ones."""

    def __init__(self, names: Iterable[str]) -> None:
        """Create an empty table with these names."""
        self._columns = {name: i for i, name in enumerate(names)}
        self._values = np.full((64, len(self._columns)), math.nan)
        self.rows = 0

    @property
    def names(self) -> list[str]:
        """All names so far, in order of their first use."""
        return list(self._columns)

    @property
    def values(self) -> Array:
        """A copy of all rows, [rows, names] float64."""
        return self._values[: self.rows].copy()

    def column(self, name: str) -> list[float]:
        """Return all values of a name."""
        values: list[float] = self._values[: self.rows, self._columns[name]].tolist()
        return values

    def add(self, row: Mapping[str, float]) -> None:
        """Add a row."""
        for name in row:
            self._columns.setdefault(name, len(self._columns))
        height, width = self._values.shape
        if width < len(self._columns) or height == self.rows:
            larger = np.full((max(64, 2 * self.rows), len(self._columns)), math.nan)
            larger[: self.rows, :width] = self._values[: self.rows]
            self._values = larger
        for name, value in row.items():
            self._values[self.rows, self._columns[name]] = value
        self.rows += 1

    def state(self) -> State:
        """Return all rows."""
        return State({"names": self.names}, {"rows": self.values})

    def restore(self, state: State) -> None:
        """Restore what `state` returned; raises SaveError for a table with other first names."""
        names, values = state.names("names"), state.any_array("rows")
        shaped(state.place("rows"), values, np.float64, (*values.shape[:1], len(names)))
        if names[: len(self._columns)] != list(self._columns):
            raise SaveError(f"a table that begins with {', '.join(self._columns)} is written with {names}")
        self._columns = {name: i for i, name in enumerate(names)}
        self._values, self.rows = values.copy(), len(values)


class LongTable:
    """Table of named columns of numbers: the newest rows in memory, the others in files of a folder.

    A file holds `held` rows, never changes, and is named "<number of its first row>-<its checksum>". So a state holds
    only the newest rows and the names of files, and runs resumed from one checkpoint do not overwrite each other's
    files.
    """

    def __init__(self, dtypes: Mapping[str, Any], folder: str | Path | None, held: int) -> None:
        """Create an empty table; the folder is created with the first file.

        dtypes: columns.  folder: None keeps all rows in memory.  held: rows of a file.
        """
        self._newest: dict[str, Array] = {name: np.empty(held, dtype) for name, dtype in dtypes.items()}
        self._folder, self._held = None if folder is None else Path(folder), held
        self._files: list[str] = []
        self._filled = 0

    def __len__(self) -> int:
        """Return the number of rows."""
        return len(self._files) * self._held + self._filled

    def add(self, *values: float) -> None:
        """Add a row, with values in the order of the columns; raises SaveError if a file cannot be written."""
        for column, value in zip(self._newest.values(), values, strict=True):
            column[self._filled] = value
        self._filled += 1
        if self._filled == self._held:
            self._store()

    def extend(self, rows: int, *values: float | Array) -> None:
        """Add rows: for each column, in order, an array [rows] or one number for all rows; see `add`."""
        end = self._filled + rows
        if end >= self._held:
            for row in zip(*(np.broadcast_to(value, rows).tolist() for value in values), strict=True):
                self.add(*row)
            return
        for column, value in zip(self._newest.values(), values, strict=True):
            column[self._filled : end] = value
        self._filled = end

    def parts(self) -> Iterator[dict[str, Array]]:
        """Yield all rows in order, in parts; the arrays are overwritten as the table grows."""
        for name in self._files:
            yield self._read(name)
        yield {name: column[: self._filled] for name, column in self._newest.items()}

    def arrays(self) -> dict[str, Array]:
        """Return a copy of every column, with all rows."""
        result = {name: np.empty(len(self), column.dtype) for name, column in self._newest.items()}
        start = 0
        for part in self.parts():
            for name, values in part.items():
                result[name][start : start + len(values)] = values
            start += self._held
        return result

    def state(self) -> State:
        """Return the newest rows and the names of the files with the others."""
        newest = {name: column[: self._filled].copy() for name, column in self._newest.items()}
        return State({"files": list(self._files)}, newest)

    def restore(self, state: State) -> None:
        """Restore what `state` returned; raises SaveError for a missing, damaged or unrelated file."""
        files, filled = state.values("files", str), {len(np.atleast_1d(values)) for values in state.arrays.values()}
        if state.arrays.keys() != self._newest.keys() or len(filled) != 1 or max(filled) >= self._held:
            raise SaveError(f"a table of the columns {', '.join(self._newest)} holds {sorted(filled)} rows in memory "
                            f"of {', '.join(state.arrays)}; fewer than {self._held} of each were expected")  # fmt: skip
        (rows,) = filled
        newest = {name: state.array(name, column.dtype, (rows,)) for name, column in self._newest.items()}
        for i, name in enumerate(files):
            self._check(name, i * self._held)
        self._files, self._filled = files, rows
        for name, values in newest.items():
            self._newest[name][:rows] = values

    def _store(self) -> None:
        """Write the rows in memory to a new file; without a folder double the memory for rows."""
        if self._folder is None:
            self._newest = {name: np.concatenate([rows, np.empty_like(rows)]) for name, rows in self._newest.items()}
            self._held *= 2
            return
        data = pack_arrays(self._newest)
        name = f"{len(self._files) * self._held}-{hashlib.sha256(data).hexdigest()}"
        with replacing(self._file(name)) as beside:
            beside.write_bytes(data)
        self._files.append(name)
        self._filled = 0

    def _check(self, name: str, first: int) -> None:
        """Raise SaveError unless a file exists, matches the checksum in its name, and starts with row `first`."""
        path = self._file(name)
        if name != f"{first}-{sha256(path)}":
            raise SaveError(f"{path}: its checksum is not the one in its name, or it is not the part of the table that "
                            f"begins with row {first}: it was changed or damaged")  # fmt: skip
        self._read(name)

    def _read(self, name: str) -> dict[str, Array]:
        path = self._file(name)
        held = read_arrays(path)
        kinds = {name: (values.dtype, values.shape) for name, values in held.items()}
        if kinds != {name: (column.dtype, column.shape) for name, column in self._newest.items()}:
            raise SaveError(f"{path}: holds {kinds}; {self._held} rows of {', '.join(self._newest)} were expected")
        return {name: held[name] for name in self._newest}

    def _file(self, name: str) -> Path:
        if self._folder is None:
            raise SaveError(f"the table has no folder to hold {name}.safetensors")
        return inside(self._folder, f"{name}.safetensors")
