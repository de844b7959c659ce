"""Arrays and functions at addresses, inside compiled code: one number is what costs the least to hand over."""

from __future__ import annotations

from typing import Any

import numba
from llvmlite import ir  # type: ignore[import-untyped]
from numba import boolean, float32, float64, int64, types, uint8
from numba.extending import intrinsic
from numpy.typing import NDArray

from marltrain.compiling import compiled

carray: Any = numba.carray  # type: ignore[attr-defined]


def address_of(array: NDArray[Any]) -> int:
    """Return where an array begins."""
    address: int = array.__array_interface__["data"][0]
    return address


def _pointer(_: Any, address: Any) -> Any:
    """Turn an address into a pointer that `numba.carray` takes."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.inttoptr(arguments[0], context.get_value_type(signature.return_type))

    return types.voidptr(types.int64), generate


pointer: Any = intrinsic(_pointer)


def _call(_: Any, function: Any, address: Any, what: Any, low: Any, high: Any, number: Any) -> Any:
    """Call the program of a game that lies at an address."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        whole = ir.IntType(64)
        kind = ir.FunctionType(whole, [whole] * 5).as_pointer()
        return builder.call(builder.inttoptr(arguments[0], kind), arguments[1:])

    return types.int64(*[types.int64] * 6), generate


call: Any = intrinsic(_call)


def _fma(_: Any, a: Any, b: Any, c: Any) -> Any:
    """Compute a * b + c, rounded once: the same on every path, which a compiler's own choice would not be."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.fma(*arguments)

    return types.float32(types.float32, types.float32, types.float32), generate


fma: Any = intrinsic(_fma)


def entry(program: Any) -> int:
    """Return where compiled code can `call` a program (int, int, int, int, int) -> int; it is compiled if need be."""
    program.compile(types.int64(*[types.int64] * 5))
    made = program.overloads[(types.int64,) * 5]
    address: int = made.library.get_pointer_to_function(made.fndesc.llvm_cfunc_wrapper_name)
    return address


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


@compiled
def copy(source: int, target: int, size: int) -> None:
    """Copy `size` bytes."""
    read, written = carray(pointer(source), (size,), uint8), carray(pointer(target), (size,), uint8)
    for i in range(size):
        written[i] = read[i]
