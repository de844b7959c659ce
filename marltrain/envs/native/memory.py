"""Arrays at addresses, inside compiled code: a batch is handed over as one number, which costs the least per call."""

from __future__ import annotations

from typing import Any

import numba
from numba import boolean, float32, float64, int64, types
from numba.extending import intrinsic

from marltrain.envs.native.compiling import compiled

carray: Any = numba.carray  # type: ignore[attr-defined]


def _pointer(_: Any, address: Any) -> Any:
    """Turn an address into a pointer that `numba.carray` takes."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.inttoptr(arguments[0], context.get_value_type(signature.return_type))

    return types.voidptr(types.int64), generate


pointer: Any = intrinsic(_pointer)


@compiled
def numbers(address: int, size: int) -> Any:
    """Return the float32 numbers at an address, [size]."""
    return carray(pointer(address), (size,), float32)


@compiled
def outcomes(address: int, size: int) -> Any:
    """Return the float64 numbers at an address, [size]."""
    return carray(pointer(address), (size,), float64)


@compiled
def wholes(address: int, size: int) -> Any:
    """Return the int64 numbers at an address, [size]."""
    return carray(pointer(address), (size,), int64)


@compiled
def flags(address: int, size: int) -> Any:
    """Return the truth values at an address, [size]."""
    return carray(pointer(address), (size,), boolean)
