"""Compilation of a game together with the batch loop: one program for each game and combination of sizes."""

from __future__ import annotations

import functools
import hashlib
import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from marltrain.envs.native.game import Game
from marltrain.jit import views
from marltrain.jit.compiling import cached_on_disk, dependencies, inner, key_of, python_function

Program = Callable[[int, int, int, int, int], int]
"""`kernel.run`, compiled for one game."""
_HOOKS = ("reset", "step", "observe", "legal", "state")
_PROGRAMS: dict[str, Program] = {}


def program(game: Game) -> Program:
    """Return `kernel.run` for a game: compiled now, loaded from disk, or cached in this process."""
    sizes = _sizes(game)
    key = _key(game, sizes)
    if key not in _PROGRAMS:
        _PROGRAMS[key] = _build(game, sizes, key)
    return _PROGRAMS[key]


def table_of(players: int) -> np.dtype[Any]:
    """Return the dtype of the kernel's table of addresses; a [P] entry holds the addresses of each player's row."""
    one = ("num_envs", "records", "rules", "restart", "state_size", "state", "final_state", "ended", "episode")
    each = ("action", "choices", "width", "obs", "legal", "final_obs", "final_legal", "turn", "alive", "reward",
            "terminated", "truncated")  # fmt: skip
    return np.dtype([(name, np.int64) for name in one] + [(name, np.int64, (players,)) for name in each])


def _sizes(game: Game) -> dict[str, Any]:
    return {
        "FIELDS": game.fields,
        "FIELDS_SIZE": game.fields.itemsize,
        "RULES": game.rules.dtype,
        "TABLE": table_of(len(game.players)),
        "PLAYERS": len(game.players),
        "DISCRETE": game.discrete,
        "CONCATENATED_STATE": game.state is None and game.state_size > 0,
    }


def _build(game: Game, sizes: dict[str, Any], key: str) -> Program:
    """Execute a fresh copy of the kernel's file and insert the game; see `kernel`."""
    spec = importlib.util.spec_from_file_location(f"{__package__}.kernel_{key}", Path(__file__).with_name("kernel.py"))
    if spec is None or spec.loader is None:
        raise ImportError(f"{Path(__file__).with_name('kernel.py')} cannot be loaded")
    kernel = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = kernel  # numba looks up the module of cached code there
    spec.loader.exec_module(kernel)
    hooks = {name: inner(python_function(getattr(game, name))) for name in _HOOKS if getattr(game, name) is not None}
    hooks.setdefault("state", kernel.no_state)
    hooks.setdefault("legal", kernel.no_mask)
    vars(kernel).update(sizes, **hooks)
    return cached_on_disk(kernel.run.py_func, key)


def _key(game: Game, sizes: dict[str, Any]) -> str:
    hooks = {name: getattr(game, name) for name in _HOOKS if getattr(game, name) is not None}
    texts = [_sources(), repr(sizes)]
    for name, hook in hooks.items():
        texts += [name, *dependencies(python_function(hook))]
    return key_of(*texts)


@functools.cache
def _sources() -> str:
    """Return a hash of all files of this package and of `marltrain.jit.views`."""
    digest = hashlib.sha256()
    for path in [*sorted(Path(__file__).parent.rglob("*.py")), Path(str(views.__file__))]:
        digest.update(path.read_bytes())
    return digest.hexdigest()
