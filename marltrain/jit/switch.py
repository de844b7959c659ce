"""A choice among compiled functions by number: one jump, where a chain of conditions would be long."""

from __future__ import annotations

from typing import Any

from llvmlite import ir  # type: ignore[import-untyped]
from numba import types
from numba.extending import intrinsic

_TYPES: Any = types


def switch(functions: tuple[Any, ...]) -> Any:
    """Return an intrinsic for compiled code: (number, x, y) -> calls functions[number](x, y), which return nothing.

    x, y: int64.  Nothing happens for a number that no function has.
    """

    def choose(typing: Any, number: Any, x: Any, y: Any) -> Any:
        """Call the function with a number."""
        kinds = [typing.resolve_value_type(function) for function in functions]
        signatures = [kind.get_call_type(typing, (types.int64, types.int64), {}) for kind in kinds]

        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            after = builder.append_basic_block("after")
            jump = builder.switch(arguments[0], after)
            for i, (kind, its) in enumerate(zip(kinds, signatures, strict=True)):
                block = builder.append_basic_block(f"function{i}")
                jump.add_case(ir.IntType(64)(i), block)
                builder.position_at_end(block)
                context.get_function(kind, its)(builder, arguments[1:])
                builder.branch(after)
            builder.position_at_end(after)
            return context.get_dummy_value()

        return _TYPES.void(types.int64, types.int64, types.int64), generate

    return intrinsic(choose)
