"""Files of machine code in the cache of compiled programs, which are checked before they are read.

Numba unpickles its files, and ends in an error of pickle, or of the processor, where one is damaged. Here a file holds
a checksum, and it is read only if it belongs to this user and nobody else may write it. A file that cannot be used is
no error: the program is compiled anew, and takes the place of the file.
"""

from __future__ import annotations

import itertools
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numba
from numba.core.caching import FunctionCache
from numba.core.serialize import dumps

from marltrain.core.errors import warn
from marltrain.jit.cache import UnusableError, read_checked, reason, write_checked

_WARNED: set[Path] = set()
"""Folders of caches of which this process has warned."""


class MachineCode(FunctionCache):
    """Numba's cache of a function, with checked files. Failures of reading and writing are warnings."""

    def __init__(self, function: Callable[..., Any], cache: Path) -> None:
        """Locate the files of a function, as Numba does.  cache: the folder of the whole cache, for warnings."""
        super().__init__(function)  # type: ignore[no-untyped-call]
        stamp = self._cache_file._source_stamp
        files: Any = _Files(Path(self._cache_path), self._impl.filename_base, stamp, cache)
        self._cache_file = files
        self._cache = cache

    def save_overload(self, sig: Any, data: Any) -> None:
        """Keep a compiled function; warn if it cannot be kept."""
        try:
            super().save_overload(sig, data)  # type: ignore[no-untyped-call]
        except OSError as error:
            warn_once(self._cache, f"{self._cache_path}: machine code cannot be kept: {reason(error)}. It is compiled "
                      "anew in the next process")  # fmt: skip


class _Files:
    """The index and the data files of a function, with the methods that Numba's cache calls.

    NAME.nbi maps keys (types of arguments, processor, hash of the code) to names of files; each NAME.<number>.nbc holds
    a key and its values. All are pickled, behind `code_cache.FORMAT` and a checksum.
    """

    def __init__(self, folder: Path, name: str, stamp: Any, cache: Path) -> None:
        """Take the folder and the beginning of the names.  stamp: of the source.  cache: see `MachineCode`."""
        self._folder, self._name, self._cache = folder, name, cache
        self._version = (numba.__version__, stamp)

    def load(self, key: Any) -> Any:
        """Return the values of a key, or None.

        Processes that write at the same time may give one name to the values of two keys: a file holds its key, too.
        """
        name = self._names().get(key)
        kept, values = (None if name is None else self._read(name)) or (None, None)
        return values if kept == key else None

    def save(self, key: Any, values: Any) -> None:
        """Write the values of a key; raises OSError if they cannot be written."""
        names = self._names()
        if key not in names:
            numbered = (f"{self._name}.{number}.nbc" for number in itertools.count(1))
            names[key] = next(name for name in numbered if name not in names.values())
            self._write(f"{self._name}.nbi", (self._version, names))
        self._write(names[key], (key, values))

    def flush(self) -> None:
        """Forget all keys."""
        self._write(f"{self._name}.nbi", (self._version, {}))

    def _names(self) -> dict[Any, str]:
        version, names = self._read(f"{self._name}.nbi") or (None, {})
        return names if version == self._version else {}

    def _read(self, name: str) -> Any:
        """Return the values in a file, or None if there is none; warn if it cannot be used."""
        try:
            return _values(self._folder / name)
        except UnusableError as error:
            warn_once(self._cache, f"{self._folder / name}: {error}. The program is compiled anew. If this is seen "
                      f"again, remove the folder {self._cache}")  # fmt: skip
            return None

    def _write(self, name: str, values: Any) -> None:
        write_checked(self._folder / name, dumps(values))  # type: ignore[no-untyped-call]


def _values(path: Path) -> Any:
    """Return the values in a file, or None if there is none; raises UnusableError for a file that is not to be used."""
    data = read_checked(path)
    if data is None:
        return None
    try:
        return pickle.loads(data)
    except Exception as error:  # undamaged, but of classes that have moved
        raise UnusableError(f"the machine code is that of other versions: {reason(error)}") from error


def warn_once(cache: Path, message: str) -> None:
    """Warn of a cache that cannot be used, once in this process."""
    if cache not in _WARNED:
        _WARNED.add(cache)
        warn(message)
