"""Compiles a game together with the batch loop, and keeps the machine code on disk for the next process.

Numba's own cache looks at the file of a function, not at what that function calls: a changed rule would be served
stale. So every program has a folder of its own, named by a hash of all that goes into it: the sources of this package,
the game's own functions and all that they reach, its sizes, numba, and the processor.
"""

from __future__ import annotations

import functools
import hashlib
import importlib.util
import os
import sys
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import llvmlite.binding  # type: ignore[import-untyped]
import numba
import numpy as np

from marltrain.envs.native.game import Game
from marltrain.errors import EnvError

F = TypeVar("F", bound=Callable[..., Any])
Program = Callable[[int, int, int, int, int], int]
"""`kernel.run`, compiled for one game."""
_HOOKS = ("reset", "step", "observe", "legal", "state")
_CONFIG: Any = numba.config
_LIBRARIES = ("math", "numba", "numpy")
_PROGRAMS: dict[str, Program] = {}


def compiled(function: F) -> F:
    """Compile a function that rules call, at its first call from compiled code."""
    compile_lazily: Any = numba.njit(error_model="numpy", nogil=True)
    return compile_lazily(function)


def program(game: Game) -> Program:
    """Return `kernel.run` for a game, compiled, loaded from disk, or made before in this process."""
    sizes = _sizes(game)
    key = _key(game, sizes)
    if key not in _PROGRAMS:
        _PROGRAMS[key] = _build(game, sizes, key)
    return _PROGRAMS[key]


def table_of(players: int) -> np.dtype[Any]:
    """Return the record of addresses that the kernel is given; [P] addresses are those of one player's row."""
    one = ("num_envs", "records", "rules", "restart", "state_size", "state", "final_state", "ended", "episode")
    each = ("action", "choices", "width", "obs", "legal", "final_obs", "final_legal", "turn", "alive", "reward",
            "terminated", "truncated")  # fmt: skip
    return np.dtype([(name, np.int64) for name in one] + [(name, np.int64, (players,)) for name in each])


def cache_folder() -> Path:
    """Return where compiled programs are kept: $NUMBA_CACHE_DIR, or the user's own cache."""
    home = _CONFIG.CACHE_DIR or os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(home) / "marltrain" / "native"


def _sizes(game: Game) -> dict[str, Any]:
    return {
        "FIELDS": game.fields,
        "RULES": game.rules.dtype,
        "TABLE": table_of(len(game.players)),
        "PLAYERS": len(game.players),
        "DISCRETE": game.discrete,
        "WIDTHS": tuple(player.layout.vector_size for player in game.players),
    }


def _build(game: Game, sizes: dict[str, Any], key: str) -> Program:
    """Run a fresh copy of the kernel's file and put the game in; see there."""
    spec = importlib.util.spec_from_file_location(f"{__package__}.kernel_{key}", Path(__file__).with_name("kernel.py"))
    if spec is None or spec.loader is None:
        raise ImportError(f"{Path(__file__).with_name('kernel.py')} cannot be loaded")
    kernel = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = kernel  # numba looks there for the module of what it loads from disk
    spec.loader.exec_module(kernel)
    hooks = {name: compiled(_plain(getattr(game, name))) for name in _HOOKS if getattr(game, name) is not None}
    hooks.setdefault("state", kernel.everybody_in_a_row if game.state_size else kernel.no_state)
    hooks.setdefault("legal", kernel.no_mask)
    vars(kernel).update(sizes, **hooks)
    function = kernel.run.py_func
    function.__qualname__ = f"run_{key}"  # names the files on disk
    before, _CONFIG.CACHE_DIR = _CONFIG.CACHE_DIR, str(cache_folder() / key)
    try:
        return numba.njit(error_model="numpy", nogil=True, cache=True)(function)
    except RuntimeError as error:
        raise EnvError(
            f"compiled games cannot be kept: {error}. Set NUMBA_CACHE_DIR to a folder to write to."
        ) from error
    finally:
        _CONFIG.CACHE_DIR = before


def _key(game: Game, sizes: dict[str, Any]) -> str:
    hooks = {name: getattr(game, name) for name in _HOOKS if getattr(game, name) is not None}
    told = [_sources(), numba.__version__, np.__version__, llvmlite.binding.get_host_cpu_name(),
            llvmlite.binding.get_host_cpu_features().flatten(), repr(sizes), str(bool(game.state_size))]  # fmt: skip
    for name, hook in hooks.items():
        told += [name, *_told_by(_plain(hook), set())]
    return hashlib.sha256("\n".join(told).encode()).hexdigest()[:20]


@functools.cache
def _sources() -> str:
    """A hash of every file of this package."""
    digest = hashlib.sha256()
    for path in sorted(Path(__file__).parent.rglob("*.py")):
        digest.update(path.read_bytes())
    return digest.hexdigest()


def _plain(function: Any) -> Any:
    return getattr(function, "py_func", function)


def _told_by(function: types.FunctionType, seen: set[types.FunctionType]) -> Iterator[str]:
    """Say all that compiling a function depends on: its code, and the constants and functions that it reaches."""
    if function in seen or function.__module__.split(".")[0] in _LIBRARIES:
        return
    seen.add(function)
    for code in _codes(function.__code__):
        constants = [constant for constant in code.co_consts if not isinstance(constant, types.CodeType)]
        yield f"{code.co_code.hex()} {constants} {code.co_names} {code.co_varnames}"
        for name in code.co_names:
            if name in function.__globals__:
                yield from _told_of(name, function.__globals__[name], code.co_names, seen)


def _codes(code: types.CodeType) -> Iterator[types.CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _codes(constant)


def _told_of(name: str, value: Any, names: tuple[str, ...], seen: set[types.FunctionType]) -> Iterator[str]:
    """Say what a global name stands for; of a module, what the code may take from it."""
    if isinstance(_plain(value), types.FunctionType):
        yield from _told_by(_plain(value), seen)
    elif isinstance(value, types.ModuleType) and value.__name__.split(".")[0] not in _LIBRARIES:
        for inner in names:
            if hasattr(value, inner):
                yield from _told_of(inner, getattr(value, inner), names, seen)
    elif isinstance(value, np.ndarray):
        yield f"{name} {value.dtype} {value.shape} {value.tobytes().hex()}"
    elif isinstance(value, int | float | str | tuple | np.generic):
        yield f"{name} {value!r}"
