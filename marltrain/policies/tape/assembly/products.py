"""Instructions of layers: products of matrices and the gradients of weights."""

from __future__ import annotations

from contextlib import ExitStack

from marltrain.policies.compiled.layers import NONE, RELU, TANH
from marltrain.policies.tape.assembly.segments import GRADIENT
from marltrain.policies.tape.assembly.strides import is_plain
from marltrain.policies.tape.assembly.writer import Writer
from marltrain.policies.tape.recording import AddedGradient, Contribution, LayerGradient
from marltrain.policies.tape.symbols import Node, Symbol

ACTIVATIONS = {"tanh": TANH, "relu": RELU}


def write_linear(writer: Writer, node: Node, out: int, activation: str | None = None) -> None:
    """Write the outputs of a layer of each network."""
    x, weight, bias = node.args
    code = NONE if activation is None else ACTIVATIONS[activation]
    _, rows, outputs = node.shape
    for k in range(node.shape[0]):
        with ExitStack() as temporary:
            w, b = writer.plain(weight[k], temporary), writer.plain(bias[k], temporary)
            _emit_product(writer, x[k], w, b, outputs, out + 4 * k * rows * outputs, code)


def write_linear_inputs(writer: Writer, node: Node, out: int) -> None:
    """Write the gradient of a layer's inputs, by its transposed weights."""
    gradient, weight = node.args
    _, rows, inputs = node.shape
    zeros = writer.assembler.zeros(inputs)
    for k in range(node.shape[0]):
        with ExitStack() as temporary:
            transposed = _transposed(writer, weight[k], temporary)
            _emit_product(writer, gradient[k], transposed, zeros, inputs, out + 4 * k * rows * inputs, NONE)


def _emit_product(writer: Writer, x: Symbol, weight: int, bias: int, outputs: int, out: int, activation: int) -> None:
    """Write activation(x @ weight + bias)."""
    rows, inputs = x.shape
    row, column = x.strides
    writer.emit(
        "linear", out=out, a=writer.at(x), weight=weight, bias=bias, rows=rows, inputs=inputs, outputs=outputs,
        a_row=row, a_column=column, activation=activation,
    )  # fmt: skip


def _transposed(writer: Writer, weight: Symbol, temporary: ExitStack) -> int:
    """Return the place of transposed weights [N, M]: those of a network are transposed once, before all rows."""
    inputs, outputs = weight.shape
    if weight.node.op != "weights" or not is_plain(weight.view):
        where = temporary.enter_context(writer.buffer(4 * weight.size))
        writer.emit("transpose", out=where, a=writer.plain(weight, temporary), rows=inputs, columns=outputs)
        return where
    assembler = writer.assembler
    where, new = assembler.kept((weight.node.attrs, weight.view), 4 * weight.size)
    if new:
        assembler.emit("before", "transpose", out=where, a=writer.at(weight), rows=inputs, columns=outputs)
    return where


def write_contribution(writer: Writer, contribution: Contribution) -> None:
    """Write the addition of a contribution to the gradient of a network."""
    network, leaf = contribution.network, _leaf(contribution).node
    out = writer.assembler.segment(GRADIENT + network, leaf.shape, "float", writer.section, written=True)
    if isinstance(contribution, AddedGradient):
        writer.copy(contribution.gradient, out, contribution.view.view, add=True)
        return
    for k in range(contribution.gradient.shape[0]):
        _write_layer_gradient(writer, contribution, k, out)


def _leaf(contribution: Contribution) -> Symbol:
    return contribution.weight if isinstance(contribution, LayerGradient) else contribution.view


def _write_layer_gradient(writer: Writer, layer: LayerGradient, k: int, out: int) -> None:
    """Write the gradient of the weights and biases of network k, which lie in order in its leaf."""
    weight, bias = out + 4 * layer.weight[k].offset, out + 4 * layer.bias[k].offset
    _emit_layer_gradient(writer, layer.inputs[k], layer.gradient[k], weight, bias)


def write_linear_weight(writer: Writer, node: Node, out: int) -> None:
    """Write the gradient of a layer's weights that are no parameters of a network."""
    x, gradient = node.args
    agents, inputs, outputs = node.shape
    writer.emit("zero", out=out, size=node.size)
    for k in range(agents):
        with writer.buffer(4 * outputs) as unused:
            _emit_layer_gradient(writer, x[k], gradient[k], out + 4 * k * inputs * outputs, unused)


def _emit_layer_gradient(writer: Writer, x: Symbol, gradient: Symbol, weight: int, bias: int) -> None:
    """Write the addition of x^T @ gradient to weights, and of the sum of the gradient's rows to biases."""
    (rows, inputs), outputs = x.shape, gradient.shape[1]
    writer.assembler.zeros(inputs)
    with ExitStack() as temporary:
        plain = writer.plain(gradient, temporary)
        straight = x.strides[1] == 1 or inputs == 1
        where, row = (writer.at(x), x.strides[0]) if straight else (writer.plain(x, temporary), inputs)
        scratch = temporary.enter_context(writer.buffer(4 * inputs * outputs))
        writer.emit(
            "layer_gradient", weight=weight, bias=bias, a=where, gradient=plain, scratch=scratch, rows=rows,
            inputs=inputs, outputs=outputs, a_row=row,
        )  # fmt: skip
