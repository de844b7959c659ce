"""Arrays and functions at addresses, for compiled code: one number is the cheapest argument."""

from __future__ import annotations

from typing import Any

from llvmlite import ir  # type: ignore[import-untyped]
from numba import boolean, float32, float64, int64, types, uint8
from numba.core import cgutils
from numba.extending import intrinsic
from numba.np import arrayobj
from numpy.typing import NDArray

from marltrain.compiling import compiled

_ARRAYS: Any = arrayobj
_CGUTILS: Any = cgutils
_TYPES: Any = types


def address_of(array: NDArray[Any]) -> int:
    """Return where an array begins."""
    address: int = array.__array_interface__["data"][0]
    return address


def _array_of(kind: Any) -> Any:
    """Return a function of an address and a size that gives the array which lies there."""

    def view(_: Any, address: Any, size: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            array = _ARRAYS.make_array(signature.return_type)(context, builder)
            width = context.get_constant(types.intp, context.get_abi_sizeof(context.get_data_type(kind)))
            data = builder.inttoptr(arguments[0], array.data.type)
            _ARRAYS.populate_array(array, data=data, shape=arguments[1:], strides=[width], itemsize=width, meminfo=None)
            return array._getvalue()

        return _TYPES.Array(kind, 1, "C")(types.int64, types.int64), generate

    return intrinsic(view)


numbers: Any = _array_of(float32)
"""numbers(address, size): the float32 numbers at an address, [size]. In compiled code only, as all that follows."""
outcomes: Any = _array_of(float64)
"""outcomes(address, size): the float64 numbers at an address, [size]."""
wholes: Any = _array_of(int64)
"""wholes(address, size): the int64 numbers at an address, [size]."""
flags: Any = _array_of(boolean)
"""flags(address, size): the truth values at an address, [size]."""
_bytes: Any = _array_of(uint8)


def _record_at(_: Any, address: Any, layout: Any) -> Any:
    """Return the record of a layout, a numpy dtype, that lies at an address; its fields may be written."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.inttoptr(arguments[0], context.get_value_type(signature.return_type))

    return layout.dtype(types.int64, layout), generate


record_at: Any = intrinsic(_record_at)


def _call(_: Any, function: Any, arguments: Any) -> Any:
    """Call a program that lies at an address with a tuple of whole numbers; see `entry`."""
    count = len(arguments)

    def generate(context: Any, builder: Any, signature: Any, given: Any) -> Any:
        whole = ir.IntType(64)
        kind = ir.FunctionType(whole, [whole] * count).as_pointer()
        return builder.call(builder.inttoptr(given[0], kind), _CGUTILS.unpack_tuple(builder, given[1], count))

    return types.int64(types.int64, arguments), generate


call: Any = intrinsic(_call)


def _add_at(_: Any, address: Any, number: Any) -> Any:
    """Add to the int64 at an address, which several threads may do at once; return what it was."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        place = builder.inttoptr(arguments[0], ir.IntType(64).as_pointer())
        return builder.atomic_rmw("add", place, arguments[1], "seq_cst")

    return types.int64(types.int64, types.int64), generate


add_at: Any = intrinsic(_add_at)


def _value_at(_: Any, address: Any) -> Any:
    """Return the int64 at an address, which other threads may `add_at`, and see what they wrote before."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.load_atomic(builder.inttoptr(arguments[0], ir.IntType(64).as_pointer()), "seq_cst", 8)

    return types.int64(types.int64), generate


value_at: Any = intrinsic(_value_at)


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
def copy(source: int, target: int, size: int) -> None:
    """Copy `size` bytes."""
    read, written = _bytes(source, size), _bytes(target, size)
    for i in range(size):
        written[i] = read[i]
