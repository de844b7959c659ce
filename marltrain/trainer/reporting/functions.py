"""Descriptions of functions of the user's own, by which runs with different ones are told apart."""

from __future__ import annotations

import dis
import functools
import hashlib
from collections.abc import Callable, Iterator, Mapping
from types import CodeType, FunctionType, MethodType
from typing import Any

import numpy as np

PLAIN = (type(None), bool, int, float, complex, str, bytes, np.generic)
"""Types of values that are described by their repr."""


def described_function(function: Callable[..., Any]) -> dict[str, str]:
    """Return the name of a function and the hash of its code, as {"name": ..., "code": ...}.

    The hash covers constants, defaults, and the plain values and functions that the function uses: code of functions of
    its own package, names of other functions. Of other objects, it covers their class and plain attributes. Another
    version of Python may compile another code.
    """
    inner: Any = function
    while isinstance(inner, functools.partial):
        inner = inner.func
    name = getattr(inner, "__qualname__", type(inner).__qualname__)
    own = str(getattr(inner, "__module__", "")).partition(".")[0]
    text = "\n".join(_Texts(own).of(function))
    return {"name": name.rpartition("<locals>.")[2], "code": hashlib.sha256(text.encode()).hexdigest()}


class _Texts:
    """Texts that are equal for equal values.

    package: package of the functions whose code counts.
    """

    def __init__(self, package: str) -> None:
        self.package = package
        self._seen: dict[int, tuple[int, Any]] = {}  # identity -> number and object, which thus keeps its identity

    def of(self, value: Any) -> Iterator[str]:
        """Yield the texts of a value."""
        if isinstance(value, PLAIN):
            yield repr(value)
        elif id(value) in self._seen:
            yield f"again {self._seen[id(value)][0]}"
        else:
            self._seen[id(value)] = len(self._seen), value
            yield from self._of_object(value)

    def _of_object(self, value: Any) -> Iterator[str]:
        if isinstance(value, tuple | list):
            yield from self._of_each("list", value)
        elif isinstance(value, set | frozenset):
            yield from self._of_each("set", sorted(value, key=repr))
        elif isinstance(value, Mapping):
            yield from self._of_each("mapping", [entry for pair in value.items() for entry in pair])
        elif isinstance(value, np.ndarray):
            yield f"array {value.dtype} {value.shape} {hashlib.sha256(np.ascontiguousarray(value).data).hexdigest()}"
        elif isinstance(value, FunctionType) and str(value.__module__).partition(".")[0] == self.package:
            yield from self._of_function(value)
        elif isinstance(value, CodeType):
            yield from self._of_each(f"code {value.co_code.hex()} {value.co_names}", value.co_consts)
        elif isinstance(value, functools.partial):
            yield from self._of_each("partial", (value.func, value.args, value.keywords))
        elif isinstance(value, MethodType):
            yield from self._of_each("method", (value.__self__, value.__func__))
        elif hasattr(value, "__name__"):  # a module, a class, or a function of another package
            yield f"{getattr(value, '__module__', '')} {getattr(value, '__qualname__', value.__name__)}"
        else:
            held = {name: own for name, own in getattr(value, "__dict__", {}).items() if isinstance(own, PLAIN)}
            yield from self._of_each(f"a {type(value).__qualname__}", (vars(type(value)).get("__call__"), held))

    def _of_function(self, function: FunctionType) -> Iterator[str]:
        """Yield the texts of a function's code, and of the values that it uses."""
        known = function.__globals__
        used = {name: known[name] for name in sorted(_globals_of(function.__code__)) if name in known}
        closed = [cell.cell_contents for cell in function.__closure__ or ()]
        parts = (function.__code__, function.__defaults__, function.__kwdefaults__, closed, used)
        yield from self._of_each("function", parts)

    def _of_each(self, kind: str, values: Any) -> Iterator[str]:
        yield f"{kind} {len(values)}"
        for value in values:
            yield from self.of(value)


def _globals_of(code: CodeType) -> set[str]:
    """Return the names of globals that code and the functions in it look up."""
    own = {step.argval for step in dis.get_instructions(code) if step.opname == "LOAD_GLOBAL"}
    return own.union(*(_globals_of(const) for const in code.co_consts if isinstance(const, CodeType)))
