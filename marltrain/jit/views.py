"""Access to arrays and functions by address, for compiled code: one number is the cheapest argument."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
from llvmlite import ir  # type: ignore[import-untyped]
from numba import boolean, float32, float64, int32, int64, types, uint8
from numba.core import cgutils
from numba.extending import intrinsic
from numba.np import arrayobj
from numpy.typing import NDArray

from marltrain.jit.compiling import compiled

_ARRAYS: Any = arrayobj
_CGUTILS: Any = cgutils
_TYPES: Any = types
_CHAR: Any = ctypes.c_char
_FUNCTIONS: dict[tuple[type, str], int] = {}
"""(class of bit generators, name) -> the address of the function."""


def address_of(array: NDArray[Any]) -> int:
    """Return the address of an array's first element."""
    if array.dtype.names is not None:  # the interface of an array of records describes all their fields
        return array.ctypes.data
    view = array.data
    if view.c_contiguous and view.nbytes and not view.readonly:  # it tells the address in half of the time
        return ctypes.addressof(_CHAR.from_buffer(view))
    return array.__array_interface__["data"][0]


def _array_of(kind: Any) -> Any:
    """Return an intrinsic: (address, size) -> array view of `kind` elements at that address."""

    def view(_: Any, address: Any, size: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            array = _ARRAYS.make_array(signature.return_type)(context, builder)
            width = context.get_constant(types.intp, context.get_abi_sizeof(context.get_data_type(kind)))
            data = builder.inttoptr(arguments[0], array.data.type)
            _ARRAYS.populate_array(array, data=data, shape=arguments[1:], strides=[width], itemsize=width, meminfo=None)
            return array._getvalue()

        return _TYPES.Array(kind, 1, "C")(types.int64, types.int64), generate

    return intrinsic(view)


f32: Any = _array_of(float32)
"""f32(address, size): view of the float32 numbers at an address, [size].

This and the following intrinsics work in compiled code only.
"""
f64: Any = _array_of(float64)
"""f64(address, size): view of the float64 numbers at an address, [size]."""
i32: Any = _array_of(int32)
"""i32(address, size): view of the int32 numbers at an address, [size]."""
i64: Any = _array_of(int64)
"""i64(address, size): view of the int64 numbers at an address, [size]."""
bools: Any = _array_of(boolean)
"""bools(address, size): view of the bool values at an address, [size]."""
u8: Any = _array_of(uint8)
"""u8(address, size): view of the uint8 numbers at an address, [size]."""


def _record_at(_: Any, address: Any, layout: Any) -> Any:
    """Return the record at an address; layout: its NumPy dtype. Its fields can be written."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.inttoptr(arguments[0], context.get_value_type(signature.return_type))

    return layout.dtype(types.int64, layout), generate


record_at: Any = intrinsic(_record_at)


def _call(_: Any, function: Any, arguments: Any) -> Any:
    """Call the program at an address with a tuple of integers; see `entry`."""
    count = len(arguments)

    def generate(context: Any, builder: Any, signature: Any, given: Any) -> Any:
        integer = ir.IntType(64)
        kind = ir.FunctionType(integer, [integer] * count).as_pointer()
        return builder.call(builder.inttoptr(given[0], kind), _CGUTILS.unpack_tuple(builder, given[1], count))

    return types.int64(types.int64, arguments), generate


call: Any = intrinsic(_call)


def _add_at(_: Any, address: Any, number: Any) -> Any:
    """Add atomically to the int64 at an address; return its previous value."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        place = builder.inttoptr(arguments[0], ir.IntType(64).as_pointer())
        return builder.atomic_rmw("add", place, arguments[1], "seq_cst")

    return types.int64(types.int64, types.int64), generate


add_at: Any = intrinsic(_add_at)


def _value_at(_: Any, address: Any) -> Any:
    """Load the int64 at an address atomically; earlier writes of threads that used `add_at` are visible."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.load_atomic(builder.inttoptr(arguments[0], ir.IntType(64).as_pointer()), "seq_cst", 8)

    return types.int64(types.int64), generate


value_at: Any = intrinsic(_value_at)


def _fma(_: Any, a: Any, b: Any, c: Any) -> Any:
    """Compute a * b + c with one rounding; explicit, because the compiler fuses only some of these operations."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.fma(*arguments)

    return types.float32(types.float32, types.float32, types.float32), generate


fma: Any = intrinsic(_fma)


def _next_bits(_: Any, function: Any, state: Any) -> Any:
    """Return 32 random bits of a NumPy bit generator; function, state: addresses of its function and its state."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        kind = ir.FunctionType(ir.IntType(32), [ir.IntType(64)]).as_pointer()
        return builder.zext(builder.call(builder.inttoptr(arguments[0], kind), arguments[1:]), ir.IntType(64))

    return types.int64(types.int64, types.int64), generate


next_bits: Any = intrinsic(_next_bits)


def _next_double(_: Any, function: Any, state: Any) -> Any:
    """Return a random float64 in [0, 1) of a NumPy bit generator; function, state: as for `next_bits`."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        kind = ir.FunctionType(ir.DoubleType(), [ir.IntType(64)]).as_pointer()
        return builder.call(builder.inttoptr(arguments[0], kind), arguments[1:])

    return types.float64(types.int64, types.int64), generate


next_double: Any = intrinsic(_next_double)


def function_of(rng: np.random.Generator, name: str) -> int:
    """Return the address of a function of a generator, such as "next_uint32" or "next_double"."""
    key = type(rng.bit_generator), name  # all generators of a class have the same functions
    if (address := _FUNCTIONS.get(key)) is None:
        pointer = getattr(rng.bit_generator.ctypes, name)
        address = _FUNCTIONS[key] = ctypes.cast(pointer, ctypes.c_void_p).value or 0
    return address


def entry(program: Any, arguments: int) -> int:
    """Return the address by which compiled code can `call` a program of integers.

    The program is compiled, or loaded from disk, if necessary. Code shared by several programs is a program of its own,
    so that it is compiled once.
    """
    kinds = (types.int64,) * arguments
    program.compile(types.int64(*kinds))
    result = program.overloads[kinds]
    return result.library.get_pointer_to_function(result.fndesc.llvm_cfunc_wrapper_name)


@compiled
def copy(source: int, target: int, size: int) -> None:
    """Copy `size` bytes from address `source` to address `target`."""
    read, written = u8(source, size), u8(target, size)
    for i in range(size):
        written[i] = read[i]
