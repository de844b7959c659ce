"""Reductions of numbers without gaps in vector registers: 16 parts, which are joined in a fixed order.

The number of parts does not depend on the processor, and so the results do not, either.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llvmlite import ir  # type: ignore[import-untyped]
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

LANES = 16
_FLOAT, _WHOLE, _INT = ir.FloatType(), ir.IntType(64), ir.IntType(32)
_VECTOR = ir.VectorType(_FLOAT, LANES)
_TYPES: Any = types
_TOOLS: Any = cgutils


def _reduction(combine: Callable[[Any, Any, Any], Any]) -> Any:
    """Return an intrinsic: (address, vectors) -> the float32 that `vectors` times LANES numbers combine to.

    vectors: at least 1.  combine: (builder, a, b) -> value, of vectors or of numbers.
    """

    def reduce(_: Any, address: Any, vectors: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            start = builder.inttoptr(arguments[0], _FLOAT.as_pointer())
            parts = _TOOLS.alloca_once(builder, _VECTOR)
            builder.store(_vector_at(builder, start, _WHOLE(0)), parts)
            with _TOOLS.for_range(builder, arguments[1], start=_WHOLE(1)) as loop:
                read = _vector_at(builder, start, builder.mul(loop.index, _WHOLE(LANES)))
                builder.store(combine(builder, builder.load(parts), read), parts)
            joined, width = builder.load(parts), LANES // 2
            while width:
                moved = [(lane + width) % LANES for lane in range(LANES)]
                shuffled = builder.shuffle_vector(joined, joined, ir.Constant(ir.VectorType(_INT, LANES), moved))
                joined, width = combine(builder, joined, shuffled), width // 2
            return builder.extract_element(joined, _INT(0))

        return _TYPES.float32(types.int64, types.int64), generate

    return intrinsic(reduce)


def _vector_at(builder: Any, start: Any, index: Any) -> Any:
    """Load LANES numbers from an index on."""
    return builder.load(builder.bitcast(builder.gep(start, [index]), _VECTOR.as_pointer()), align=4)


def _sum(builder: Any, a: Any, b: Any) -> Any:
    return builder.fadd(a, b)


def _larger(builder: Any, a: Any, b: Any) -> Any:
    """Return the larger of a and b; NaN if one is."""
    larger = builder.select(builder.fcmp_ordered(">", a, b), a, b)
    return builder.select(builder.fcmp_unordered("uno", a, a), a, larger)


sum_of_vectors: Any = _reduction(_sum)
largest_of_vectors: Any = _reduction(_larger)
