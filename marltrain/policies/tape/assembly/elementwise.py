"""Instructions of operations entry by entry."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass

from marltrain.policies.tape.assembly.strides import Axes, joined
from marltrain.policies.tape.assembly.table import DTYPES
from marltrain.policies.tape.assembly.writer import Writer
from marltrain.policies.tape.instructions import BINARY, TERNARY, UNARY
from marltrain.policies.tape.symbols import Node
from marltrain.policies.tape.views import whole

EQUIVALENT: dict[str, tuple[str | int | float, ...]] = {
    "and": ("multiply", 0, 1),
    "greater": ("less", 1, 0),
    "greater_equal": ("less_equal", 1, 0),
    "negative": ("subtract", -0.0, 0),
    "not": ("subtract", 1.0, 0),
    "or": ("maximum", 0, 1),
    "relu": ("maximum", 0, 0.0),
    "square": ("multiply", 0, 0),
}
"""Operations that another one computes -> that one, and its operands: numbers of arguments (int), constants (float)."""
OF_INTEGERS = ("less", "less_equal", "equal", "not_equal", "where")
"""Operations that exist for int64, too."""
UNROLLED = 8
"""Instructions of an operation with more than two axes, from which operands are copied if that takes fewer."""
OPERATIONS = (*UNARY, *BINARY, *TERNARY, *EQUIVALENT)


@dataclass(frozen=True)
class Operand:
    """Numbers that an operation reads or writes: their place, strides in elements, and the bytes of an element."""

    place: int
    strides: tuple[int, ...]
    itemsize: int


def write_elementwise(writer: Writer, node: Node, out: int) -> None:
    """Write an operation entry by entry; operands that go on evenly over at most two axes are read where they are."""
    name, *chosen = EQUIVALENT.get(node.op, (node.op, *range(len(node.args))))
    operation, args = str(name), [_argument(writer, node, each) for each in chosen]
    if operation in OF_INTEGERS and node.args[-1].node.dtype == "integer":
        operation = f"integer_{operation}"
    own = Operand(out, whole(node.shape).strides, DTYPES[node.dtype].itemsize)
    axes = joined(node.shape, own.strides, *(arg.strides for arg in args))
    with ExitStack() as temporary:
        alone = [joined(node.shape, own.strides, arg.strides) for arg in args]
        uneven = [i for i, each in enumerate(alone) if len(each.sizes) > 1]
        if axes.count > max(UNROLLED, 1 + sum(alone[i].count for i in uneven)):
            for i in uneven:
                copied = writer.plain(node.args[int(chosen[i])], temporary)
                args[i] = Operand(copied, own.strides, args[i].itemsize)
            axes = joined(node.shape, own.strides, *(arg.strides for arg in args))
        _emit(writer, operation, [own, *args], axes)


def _argument(writer: Writer, node: Node, chosen: str | int | float) -> Operand:
    """Return an argument of a node by its number, or a constant, which repeats without strides."""
    if isinstance(chosen, int):
        arg = node.args[chosen]
        return Operand(writer.at(arg), arg.strides, DTYPES[arg.node.dtype].itemsize)
    return Operand(writer.assembler.number(float(chosen)), (0,) * len(node.shape), 4)


def _emit(writer: Writer, operation: str, operands: list[Operand], axes: Axes) -> None:
    """Write an operation on matrices, once for each index of further axes.  operands: the result first."""
    for offsets, rows, columns, pairs in axes.matrices():
        places = [each.place + each.itemsize * offset for each, offset in zip(operands, offsets, strict=True)]
        fields = {"out": places[0], "rows": rows, "columns": columns, "out_row": pairs[0][0]}
        for name, where, (row, column) in zip("abc", places[1:], pairs[1:], strict=False):
            fields |= {name: where, f"{name}_row": row, f"{name}_column": column}
        writer.emit(operation, **fields)
