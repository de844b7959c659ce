"""Arrays and functions at addresses, inside compiled code: one number is what costs the least to hand over."""

from __future__ import annotations

from typing import Any

import numba
from llvmlite import ir  # type: ignore[import-untyped]
from numba import boolean, float32, float64, int64, types, uint8
from numba.core import cgutils
from numba.extending import intrinsic
from numpy.typing import NDArray

from marltrain.compiling import compiled

carray: Any = numba.carray  # type: ignore[attr-defined]
_CGUTILS: Any = cgutils
_TYPES: Any = types


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


def _call(_: Any, function: Any, arguments: Any) -> Any:
    """Call a program that lies at an address with a tuple of whole numbers; see `entry`."""
    count = len(arguments)

    def generate(context: Any, builder: Any, signature: Any, given: Any) -> Any:
        whole = ir.IntType(64)
        kind = ir.FunctionType(whole, [whole] * count).as_pointer()
        return builder.call(builder.inttoptr(given[0], kind), _CGUTILS.unpack_tuple(builder, given[1], count))

    return types.int64(types.int64, _TYPES.UniTuple(types.int64, count)), generate


call: Any = intrinsic(_call)


def _fma(_: Any, a: Any, b: Any, c: Any) -> Any:
    """Compute a * b + c, rounded once: the same on every path, which a compiler's own choice would not be."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.fma(*arguments)

    return types.float32(types.float32, types.float32, types.float32), generate


fma: Any = intrinsic(_fma)


def _next_bits(_: Any, function: Any, state: Any) -> Any:
    """Return 32 random bits of numpy's bit generator that lies at an address, by its own function."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        kind = ir.FunctionType(ir.IntType(32), [ir.IntType(64)]).as_pointer()
        return builder.zext(builder.call(builder.inttoptr(arguments[0], kind), arguments[1:]), ir.IntType(64))

    return types.int64(types.int64, types.int64), generate


next_bits: Any = intrinsic(_next_bits)


def entry(program: Any, arguments: int) -> int:
    """Return where compiled code can `call` a program of whole numbers; it is compiled, or read from disk, if need be.

    What several programs have to do with is compiled once, as a program of its own.
    """
    kinds = (types.int64,) * arguments
    program.compile(types.int64(*kinds))
    made = program.overloads[kinds]
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
