"""Functions compiled by Numba, with a cache of their machine code on disk.

Numba's own cache checks only the file of a function, not the functions that it calls, so it could return outdated code.
Therefore every program has a cache folder of its own. The folder is named by a hash of the code, the constants and
functions that it uses, the versions of Numba and NumPy, and the processor.
"""

from __future__ import annotations

import hashlib
import itertools
import os
import threading
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import llvmlite.binding  # type: ignore[import-untyped]
import numba
import numba.core.event as numba_event
import numpy as np
from numba.core.bytecode import FunctionIdentity

from marltrain.core.errors import EnvError
from marltrain.jit.cache import FORMAT, cache_folder
from marltrain.jit.linked import LinkedCompiler
from marltrain.jit.machine_code import MachineCode
from marltrain.jit.notices import Compilation
from marltrain.jit.turns import turn

F = TypeVar("F", bound=Callable[..., Any])
_CONFIG: Any = numba.config
_FOLDER = threading.Lock()
"""Lock for changes of Numba's cache folder: a learning thread may compile programs at the same time."""
LOCATORS = "NUMBA_CACHE_LOCATOR_CLASSES"
"""Environment variable with classes that Numba imports to locate its cache."""
_LIBRARIES = ("llvmlite", "math", "numba", "numpy")


_SYMBOLS = f"numbered from a random start, {FORMAT!r}"
"""Part of every key: programs that were compiled without `_number_symbols`, or kept otherwise, are not loaded."""


def _number_symbols() -> None:
    """Number the functions that this process compiles from a random start.

    Numba names the symbols of machine code by function and number. With a start of 1 in each process, programs that two
    processes compiled could define one symbol for different functions, and a third process that loads both would
    execute the first for both.
    """
    identity: Any = FunctionIdentity
    identity._unique_ids = itertools.count(int.from_bytes(os.urandom(6)))


_number_symbols()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_number_symbols)


class _Announced(numba_event.Listener):
    """Announces compilations of `cached_on_disk` functions; loading a function from disk causes no event."""

    def __init__(self) -> None:
        self.names: dict[Callable[..., Any], str] = {}
        self._depth = 0
        self._under_way: Compilation | None = None

    def on_start(self, event: Any) -> None:
        self._depth += 1
        name = self.names.get(event.data["dispatcher"].py_func)
        if self._depth == 1 and name is not None:
            self._under_way = Compilation(name)

    def on_end(self, event: Any) -> None:
        self._depth -= 1
        if self._depth == 0 and self._under_way is not None:
            self._under_way.done()
            self._under_way = None


ANNOUNCED = _Announced()
_REGISTER: Any = numba_event.register
_REGISTER("numba:compile", ANNOUNCED)


def compiled(function: F) -> F:
    """Return a function that Numba compiles at its first call, from compiled code or from Python."""
    compile_lazily: Any = numba.njit(error_model="numpy", nogil=True)
    return compile_lazily(function)


class _Inner:
    """A function that Numba treats as compiled, and that Python cannot call."""

    def __init__(self, function: Callable[..., Any]) -> None:
        njit: Any = numba.njit
        make = njit(error_model="numpy", nogil=True, no_cpython_wrapper=True, no_cfunc_wrapper=True,
                    pipeline_class=LinkedCompiler)  # fmt: skip
        self.py_func, self._made = function, make(function)
        self._template, self._made.get_call_template = self._made.get_call_template, self._without_literals
        self._numba_type_ = self._made._numba_type_  # Numba treats an object with this attribute as the type it names

    def _without_literals(self, kinds: Sequence[Any], by_name: Mapping[str, Any]) -> Any:
        """Return Numba's template of a call, as if no argument were written as a number in the code.

        Otherwise there is a version for each of these numbers, and a version that calls another version of the
        function is not linked.
        """
        plain: Any = numba.types.unliteral
        return self._template([plain(kind) for kind in kinds], {name: plain(kind) for name, kind in by_name.items()})

    def __call__(self, *arguments: Any) -> Any:
        name = self.py_func.__name__
        raise TypeError(f"{name} is for compiled code: call it from a game's rules, or {name}.py_func from Python")


def inner(function: F) -> F:
    """Return a function for calls from compiled code only; without a Python wrapper it compiles faster."""
    result: Any = _Inner(function)
    return result


def cached_on_disk(function: Callable[..., Any], key: str) -> Any:
    """Return a function that is compiled at its first call, or loaded from disk: by one process at a time.

    key: hash of everything that the machine code depends on.  A file that is damaged, or not this user's own, gives a
    warning, and the function is compiled anew.  Raises EnvError if there is no folder for the cache.
    """
    function.__qualname__ = f"{function.__name__}_{key}"  # unique file names, since Numba may use another folder
    with _FOLDER:
        own = {"CACHE_DIR": str(cache_folder() / key), "CACHE_LOCATOR_CLASSES": os.environ.get(LOCATORS, "")}
        before = {name: getattr(_CONFIG, name, "") for name in own}
        vars(_CONFIG).update(own)
        try:
            result: Any = numba.njit(error_model="numpy", nogil=True)(function)
            result._cache = cache = MachineCode(function, cache_folder())
        except RuntimeError as error:
            raise EnvError(
                f"compiled code cannot be kept: {error}. Set NUMBA_CACHE_DIR to a folder to write to; `marltrain "
                "doctor` shows the state of the present one."
            ) from error
        finally:
            vars(_CONFIG).update(before)
    compile_at_once = result.compile

    def compile_in_turn(signature: Any) -> Any:
        with turn(Path(cache.cache_path)):
            return compile_at_once(signature)  # looks for the machine code on disk first

    result.compile = compile_in_turn
    ANNOUNCED.names[function] = f"machine code ({function.__module__.rpartition('.')[2].removesuffix(f'_{key}')})"
    return result


def program(function: Callable[..., Any], *layouts: np.dtype[Any]) -> Any:
    """Return a `compiled` function as a program that is `cached_on_disk`; layouts: dtypes of its records."""
    code: Any = python_function(function)
    return cached_on_disk(code, key_of(*map(repr, layouts), *dependencies(code)))


def key_of(*texts: str) -> str:
    """Return a hash of texts, the versions of Numba and NumPy, and the processor."""
    here = [_SYMBOLS, numba.__version__, np.__version__, llvmlite.binding.get_host_cpu_name(),
            llvmlite.binding.get_host_cpu_features().flatten()]  # fmt: skip
    return hashlib.sha256("\n".join([*here, *texts]).encode()).hexdigest()[:20]


def python_function(function: Any) -> Any:
    """Return the Python function behind a compiled function or an intrinsic."""
    return getattr(function, "py_func", getattr(function, "_defn", function))


def dependencies(function: types.FunctionType, seen: set[types.FunctionType] | None = None) -> Iterator[str]:
    """Yield texts of everything that compiling a function depends on: its code, constants and called functions."""
    seen = set() if seen is None else seen
    if function in seen or function.__module__.split(".")[0] in _LIBRARIES:
        return
    seen.add(function)
    for cell in function.__closure__ or ():
        yield from _texts_of("enclosed", cell.cell_contents, (), seen)
    for code in _codes(function.__code__):
        constants = [constant for constant in code.co_consts if not isinstance(constant, types.CodeType)]
        yield f"{code.co_code.hex()} {constants} {code.co_names} {code.co_varnames}"
        for name in code.co_names:
            if name in function.__globals__:
                yield from _texts_of(name, function.__globals__[name], code.co_names, seen)


def _codes(code: types.CodeType) -> Iterator[types.CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _codes(constant)


def _texts_of(name: str, value: Any, names: tuple[str, ...], seen: set[types.FunctionType]) -> Iterator[str]:
    """Yield texts of the value of a global name; for a module, of its members that the code may use."""
    if isinstance(python_function(value), types.FunctionType):
        yield from dependencies(python_function(value), seen)
    elif isinstance(value, types.ModuleType) and value.__name__.split(".")[0] not in _LIBRARIES:
        for inner in names:
            if hasattr(value, inner):
                yield from _texts_of(inner, getattr(value, inner), names, seen)
    elif isinstance(value, tuple) and any(isinstance(python_function(each), types.FunctionType) for each in value):
        for each in value:
            yield from _texts_of(name, each, (), seen)
    elif isinstance(value, np.ndarray):
        yield f"{name} {value.dtype} {value.shape} {value.tobytes().hex()}"
    elif isinstance(value, int | float | str | tuple | np.generic | np.dtype | numba.types.Type):
        yield f"{name} {value!r}"
