"""Instructions of operations along an axis, and of those that move numbers."""

from __future__ import annotations

import math
from contextlib import ExitStack

from marltrain.policies.tape.assembly.strides import joined
from marltrain.policies.tape.assembly.writer import Writer
from marltrain.policies.tape.interpreter.reductions import scratch_size
from marltrain.policies.tape.symbols import Node, Symbol
from marltrain.policies.tape.views import View, whole


def write_copy(writer: Writer, node: Node, out: int) -> None:
    """Write a copy in order."""
    writer.copy(node.args[0], out, whole(node.shape))


def write_of_bytes(writer: Writer, node: Node, out: int) -> None:
    """Write booleans of bytes, or numbers of pixels, which are an input."""
    (given,) = node.args
    where, axes = writer.at(given), joined(node.shape, whole(node.shape).strides, given.strides)
    for (down, along), rows, columns, ((out_row, _), (row, column)) in axes.matrices():
        writer.emit(
            node.op, out=out + 4 * down, a=where + along, rows=rows, columns=columns, out_row=out_row, a_row=row,
            a_column=column,
        )  # fmt: skip


def write_reduction(writer: Writer, node: Node, out: int) -> None:
    """Write a sum, or the largest entry, along any axis."""
    (x,), (axis,) = node.args, node.attrs
    length, before, behind = x.shape[axis], slice(axis), slice(axis + 1, None)
    outer, inner = joined(x.shape[before], x.strides[before]), joined(x.shape[behind], x.strides[behind])
    with ExitStack() as temporary:
        if len(outer.sizes) > 1 or len(inner.sizes) > 1:
            where, size = writer.plain(x, temporary), math.prod(x.shape[behind])
            sizes, steps = (math.prod(x.shape[before]), size), (length * size, size, 1)
        else:
            (most, (down,)), (size, (along,)) = outer.vector(), inner.vector()
            where, sizes, steps = writer.at(x), (most, size), (down, x.strides[axis], along)
        writer.emit(
            node.op, out=out, a=where, outer=sizes[0], length=length, inner=sizes[1], a_outer=steps[0],
            a_length=steps[1], a_inner=steps[2],
        )  # fmt: skip


def write_rowwise(writer: Writer, node: Node, out: int) -> None:
    """Write an operation on the rows along an axis: argmax, logsumexp, log_softmax."""
    (x,) = node.args
    axis = node.attrs[0] if node.attrs else x.ndim - 1
    x = x.moved(axis, -1)
    columns, rows = x.shape[-1], math.prod(x.shape[:-1])
    with ExitStack() as temporary:
        where, row, column = _rows_of(writer, x, temporary)
        scratch = temporary.enter_context(writer.buffer(4 * scratch_size(rows, columns)))
        writer.emit(node.op, out=out, a=where, scratch=scratch, rows=rows, columns=columns, a_row=row, a_column=column)


def _rows_of(writer: Writer, x: Symbol, temporary: ExitStack) -> tuple[int, int, int]:
    """Return the place of x [..., columns], and the strides between rows and columns; copied if there are several."""
    leading = joined(x.shape[:-1], x.strides[:-1])
    if len(leading.sizes) > 1:
        return writer.plain(x, temporary), x.shape[-1], 1
    return writer.at(x), leading.vector()[1][0], x.strides[-1]


def write_indexed(writer: Writer, node: Node, out: int) -> None:
    """Write `take` or `put`: an entry of each row at its index."""
    given, index = node.args
    columns = given.shape[-1] if node.op == "take" else node.attrs[0]
    leading = given.strides[: index.ndim]
    axes = joined(index.shape, leading, index.strides)
    with ExitStack() as temporary:
        if len(axes.sizes) > 1:
            where, chosen = writer.plain(given, temporary), writer.plain(index, temporary)
            rows, row, column, step = index.size, (columns if node.op == "take" else 1), 1, 1
        else:
            rows, (row, step) = axes.vector()
            where, chosen, column = writer.at(given), writer.at(index), given.strides[-1] if node.op == "take" else 0
        writer.emit(
            node.op, out=out, a=where, index=chosen, rows=rows, columns=columns, a_row=row, a_column=column,
            index_row=step,
        )  # fmt: skip


def write_one_hot(writer: Writer, node: Node, out: int) -> None:
    """Write 1.0 at indices."""
    (index,), (columns,) = node.args, node.attrs
    axes = joined(index.shape, index.strides)
    with ExitStack() as temporary:
        several = len(axes.sizes) > 1
        where = writer.plain(index, temporary) if several else writer.at(index)
        rows, (step,) = (index.size, [1]) if several else axes.vector()
        writer.emit("one_hot", out=out, index=where, rows=rows, columns=columns, index_row=step)


def write_concat(writer: Writer, node: Node, out: int) -> None:
    """Write parts side by side."""
    (axis,), own, start = node.attrs, whole(node.shape), 0
    for part in node.args:
        writer.copy(part, out, View(start * own.strides[axis], part.shape, own.strides))
        start += part.shape[axis]


def write_scatter(writer: Writer, node: Node, out: int) -> None:
    """Write zeros, to which parts are added at their places."""
    cover, views = node.attrs
    if cover != "one":
        writer.emit("zero", out=out, size=node.size)
    for part, view in zip(node.args, views, strict=True):
        writer.copy(part, out, view, add=cover == "several")
