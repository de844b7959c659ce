"""Which operations of a recording are needed, in which order things are computed, and how long results live."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from marltrain.policies.tape.recording import AddedGradient, Contribution, LayerGradient, Recording
from marltrain.policies.tape.symbols import Node, Symbol

FUSED = ("tanh", "relu")
"""Activations that a layer applies itself."""


def symbols_of(contribution: Contribution) -> tuple[Symbol, ...]:
    """Return the tensors that a contribution to a gradient reads."""
    if isinstance(contribution, LayerGradient):
        return contribution.inputs, contribution.gradient
    return (contribution.gradient,)


@dataclass(frozen=True)
class Lifetimes:
    """The schedule of a recording.

    nodes: those that are needed, in the order of the tape.
    contributions: node -> what is added to gradients after it.
    fused: linear node -> the activation node that computes it, too.
    ending: node -> the nodes whose results are last read there; results of outputs are not among them.
    """

    nodes: tuple[Node, ...]
    contributions: dict[int, list[Contribution]]
    fused: dict[int, int]
    ending: dict[int, list[Node]]


def lifetimes_of(recording: Recording) -> Lifetimes:
    """Return the schedule of a recording."""
    outputs = list(recording.outputs.values())
    roots = [*outputs, *(s for contribution in recording.gradients for s in symbols_of(contribution))]
    nodes = _needed(recording, roots)
    contributions: dict[int, list[Contribution]] = {}
    readers: dict[int, list[int]] = {node.index: [] for node in nodes}
    for node in nodes:
        for arg in node.args:
            readers[arg.node.index].append(node.index)
    for contribution in recording.gradients:
        read = [symbol.node.index for symbol in symbols_of(contribution)]
        contributions.setdefault(max(read), []).append(contribution)
        for index in read:
            readers[index].append(max(read))
    kept = {symbol.node.index for symbol in outputs}
    fused = {node.args[0].node.index: node.index for node in nodes if _fuses(node, readers, kept)}
    ending: dict[int, list[Node]] = {}
    for node in nodes:
        if node.index not in kept:
            last = max((fused.get(reader, reader) for reader in readers[node.index]), default=node.index)
            ending.setdefault(last, []).append(node)
    return Lifetimes(nodes, contributions, fused, ending)


def _needed(recording: Recording, roots: Iterable[Symbol]) -> tuple[Node, ...]:
    """Return the nodes on which some symbols depend."""
    found: dict[int, Node] = {}
    waiting = [symbol.node for symbol in roots]
    while waiting:
        node = waiting.pop()
        if node.index not in found:
            found[node.index] = node
            waiting += [arg.node for arg in node.args]
    return tuple(node for node in recording.tape.nodes if node.index in found)


def _fuses(node: Node, readers: dict[int, list[int]], kept: set[int]) -> bool:
    """Return whether a node is the activation of a layer whose own outputs nothing else reads."""
    if node.op not in FUSED:
        return False
    (arg,) = node.args
    before = arg.node
    return before.op == "linear" and arg.is_whole and readers[before.index] == [node.index] and before.index not in kept


__all__ = ["AddedGradient", "LayerGradient", "Lifetimes", "lifetimes_of", "symbols_of"]
