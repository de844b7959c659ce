"""Recordings as sections of a table."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from marltrain.policies.tape.assembly.assembler import Assembler
from marltrain.policies.tape.assembly.elementwise import OPERATIONS, write_elementwise
from marltrain.policies.tape.assembly.images import write_patches, write_patches_gradient
from marltrain.policies.tape.assembly.lifetimes import lifetimes_of
from marltrain.policies.tape.assembly.products import (
    write_contribution,
    write_linear,
    write_linear_inputs,
    write_linear_weight,
)
from marltrain.policies.tape.assembly.shapes import (
    write_concat,
    write_copy,
    write_indexed,
    write_of_bytes,
    write_one_hot,
    write_reduction,
    write_rowwise,
    write_scatter,
)
from marltrain.policies.tape.assembly.table import DTYPES, INDEX, Section
from marltrain.policies.tape.assembly.writer import Writer
from marltrain.policies.tape.recording import Recording
from marltrain.policies.tape.symbols import Node, Symbol
from marltrain.policies.tape.views import whole

WRITERS: dict[str, Callable[[Writer, Node, int], None]] = {
    **dict.fromkeys(OPERATIONS, write_elementwise),
    **dict.fromkeys(("sum", "max"), write_reduction),
    **dict.fromkeys(("argmax", "logsumexp", "log_softmax"), write_rowwise),
    **dict.fromkeys(("take", "put"), write_indexed),
    **dict.fromkeys(("from_bytes", "from_pixels"), write_of_bytes),
    "copy": write_copy, "one_hot": write_one_hot, "concat": write_concat, "scatter": write_scatter,
    "patches": write_patches, "patches_gradient": write_patches_gradient,
    "linear": write_linear, "linear_inputs": write_linear_inputs, "linear_weight": write_linear_weight,
}  # fmt: skip
"""The function that writes each operation with arguments, to a place."""


def assemble(assembler: Assembler, section: Section, recording: Recording) -> None:
    """Append a recording to a section: what its outputs and gradients need.

    Inputs, outputs, weights ("weights/NETWORK") and gradients ("gradient/NETWORK") are segments of their names.
    Gradients are summed over the blocks.
    """
    lifetimes, writer = lifetimes_of(recording), Writer(assembler, section)
    for node in lifetimes.nodes:
        if not node.args:
            _write_source(writer, node)
        elif node.index not in lifetimes.fused:
            _write(writer, node, lifetimes.fused)
        for contribution in lifetimes.contributions.get(node.index, ()):
            write_contribution(writer, contribution)
        for ended in lifetimes.ending.get(node.index, ()):
            writer.free(ended)
    for name, output in recording.outputs.items():
        _write_output(writer, name, output)
    for output in recording.outputs.values():
        writer.free(output.node)


def _write(writer: Writer, node: Node, fused: dict[int, int]) -> None:
    """Write an operation; an activation with its layer if that is fused."""
    out, before = writer.allocate(node), node.args[0].node
    if fused.get(before.index) == node.index:
        write_linear(writer, before, out, node.op)
    else:
        WRITERS[node.op](writer, node, out)


def _write_source(writer: Writer, node: Node) -> None:
    """Find the place of what is given; gathered rows are copied to a buffer."""
    assembler, (value,) = writer.assembler, node.attrs
    if node.op == "weights":
        where = assembler.segment(f"weights/{value}", node.shape, "float", writer.section)
    elif node.op == "array":
        where = assembler.constant(value)
    elif node.op == "constant":
        where = assembler.constant((np.int64 if node.dtype == "integer" else np.float32)(value).tobytes())
    else:
        where = assembler.segment(value, node.shape, node.dtype, writer.section)
        if assembler.segments.role(value) == "gathered":
            _write_gathered(writer, node, where)
            return
    writer.places[node.index] = where


def _write_gathered(writer: Writer, node: Node, given: int) -> None:
    """Write the rows of an input [1, rows, ...] at the indices of this block."""
    rows, size = node.shape[1], math.prod(node.shape[2:]) * DTYPES[node.dtype].itemsize
    index = writer.assembler.segment(INDEX, node.shape[:2], "integer", writer.section)
    writer.emit("gather", out=writer.allocate(node), a=given, index=index, rows=rows, size=size)


def _write_output(writer: Writer, name: str, output: Symbol) -> None:
    """Write an output to the segment of its name."""
    out = writer.assembler.segment(name, output.shape, output.node.dtype, writer.section, written=True)
    writer.copy(output, out, whole(output.shape), add=writer.assembler.is_sum(name))
