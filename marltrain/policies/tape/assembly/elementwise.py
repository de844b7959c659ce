"""Instructions of operations entry by entry."""

from __future__ import annotations

from contextlib import ExitStack

from marltrain.policies.tape.assembly.strides import Axes, joined
from marltrain.policies.tape.assembly.table import DTYPES
from marltrain.policies.tape.assembly.writer import Writer
from marltrain.policies.tape.instructions import BINARY, TERNARY, UNARY
from marltrain.policies.tape.symbols import Node
from marltrain.policies.tape.views import whole

SWAPPED = {"greater": "less", "greater_equal": "less_equal"}
"""Operations that are another one with its two arguments exchanged."""
AS_NUMBERS = {"and": "multiply", "or": "maximum"}
"""Operations on booleans, as those on 0.0 and 1.0."""
OF_INTEGERS = ("less", "less_equal", "equal", "not_equal", "where")
"""Operations that exist for int64, too."""
UNROLLED = 8
"""Instructions of an operation with more than two axes, from which operands are copied if that takes fewer."""
OPERATIONS = (*UNARY, *BINARY, *TERNARY, *SWAPPED, *AS_NUMBERS)


def write_elementwise(writer: Writer, node: Node, out: int) -> None:
    """Write an operation entry by entry; operands that go on evenly over at most two axes are read where they are."""
    args = list(node.args[::-1] if node.op in SWAPPED else node.args)
    operation = AS_NUMBERS.get(node.op, SWAPPED.get(node.op, node.op))
    if operation in OF_INTEGERS and args[-1].node.dtype == "integer":
        operation = f"integer_{operation}"
    own = whole(node.shape).strides
    axes = joined(node.shape, own, *(arg.strides for arg in args))
    places, strides = [writer.at(arg) for arg in args], [arg.strides for arg in args]
    with ExitStack() as temporary:
        alone = [joined(node.shape, own, arg.strides) for arg in args]
        uneven = [i for i, each in enumerate(alone) if len(each.sizes) > 1]
        if axes.count > max(UNROLLED, 1 + sum(alone[i].count for i in uneven)):
            for i in uneven:
                places[i], strides[i] = writer.plain(args[i], temporary), own
            axes = joined(node.shape, own, *strides)
        _emit(writer, operation, [out, *places], [node, *(arg.node for arg in args)], axes)


def _emit(writer: Writer, operation: str, places: list[int], nodes: list[Node], axes: Axes) -> None:
    """Write an operation on matrices, once for each index of further axes."""
    sizes = [DTYPES[node.dtype].itemsize for node in nodes]
    for offsets, rows, columns, pairs in axes.matrices():
        moved = [place + size * offset for place, size, offset in zip(places, sizes, offsets, strict=True)]
        fields = {"out": moved[0], "rows": rows, "columns": columns, "out_row": pairs[0][0]}
        for name, where, (row, column) in zip("abc", moved[1:], pairs[1:], strict=False):
            fields |= {name: where, f"{name}_row": row, f"{name}_column": column}
        writer.emit(operation, **fields)
