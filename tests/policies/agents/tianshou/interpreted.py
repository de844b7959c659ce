"""tianshou's loops in plain Python: numba would compile them anew in every process, which takes ten seconds."""

from __future__ import annotations

from importlib import import_module

import pytest

MODULES = ("tianshou.algorithm.algorithm_base", "tianshou.data.buffer.manager", "tianshou.data.utils.segtree")


def interpret(monkeypatch: pytest.MonkeyPatch) -> None:
    """Replace the compiled functions of tianshou by their Python functions."""
    for name in MODULES:
        module = import_module(name)
        for attribute, value in list(vars(module).items()):
            if hasattr(value, "py_func"):
                monkeypatch.setattr(module, attribute, value.py_func)
