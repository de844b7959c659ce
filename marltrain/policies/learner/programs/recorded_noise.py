"""The gradient step of a phase as recordings while its gradient noise is measured: two parts of the rows."""

from __future__ import annotations

from collections.abc import Mapping

from marltrain.policies.learner.gradient_noise import Part, halves, joined, noise_of, sizes_of
from marltrain.policies.learner.gradient_step import GradientStep
from marltrain.policies.learner.programs.recorded_step import (
    MEASURED,
    TapeOperations,
    agents_of,
    hyper_of,
    recorded_inputs,
)
from marltrain.policies.learner.trained_team import ALONE, Columns
from marltrain.policies.tape import ops
from marltrain.policies.tape.assembly.segments import GRADIENT
from marltrain.policies.tape.derive import derive
from marltrain.policies.tape.recording import Contribution, Recording
from marltrain.policies.tape.symbols import Symbol, Tape

TOTAL_WEIGHT, SQUARED_WEIGHT = "total weight", "squared weight"
"""Beginnings of the names of sums over the rows of a part: of the weights, and of their squares."""


def recorded_halves(step: GradientStep, columns: Columns, rows: int, made: Mapping[str, Symbol]) -> Recording:
    """Do the same as `recorded_losses`, with the gradients of both parts of the rows of an agent alone.

    The gradients are those of networks with the names of `half_of`.  The parts of a block are those of all rows if the
    number of rows before the block is even.
    """
    tape, nets, given = recorded_inputs(step, columns, rows, made)
    hyper, outputs, metrics, gradients = hyper_of(tape, step), dict[str, Symbol](), [], list[Contribution]()
    first, second = halves(given)
    if rows == 1:  # no array is empty: the second part is the row with weight 0
        second = {ALONE: {**given[ALONE], "weight": 0.0 * given[ALONE]["weight"]}}
    for i, part in enumerate((first, second)):
        loss, measured = step.losses(TapeOperations(tape), nets, part, hyper)
        gradients += derive(loss, {half_of(name, i): nets[name].leaf for name in step.trains})
        metrics.append(measured)
        names = f"{TOTAL_WEIGHT}/{i}", f"{SQUARED_WEIGHT}/{i}"
        outputs |= dict(zip(names, sizes_of(ops, part[ALONE]["weight"]), strict=True))
    of_rows = joined(metrics, lambda a, b: _interleaved(a, b)[:, :rows])
    outputs |= {f"{MEASURED}/{name}": value for name, value in of_rows.items()}
    return Recording(tape, outputs, tuple(gradients))


def recorded_noise(step: GradientStep) -> Recording:
    """Record the metrics of the gradient noise, and the gradients of all rows, after both parts' gradients."""
    tape, (agents,) = Tape(), agents_of(step).values()
    parts = []
    for i in range(2):
        grads = [
            tape.input(f"{GRADIENT}{half_of(name, i)}", (agents, int(step.team.nets[name].flat.shape[1])))
            for name in step.trains
        ]
        sizes = (tape.input(f"{name}/{i}", (agents,)) for name in (TOTAL_WEIGHT, SQUARED_WEIGHT))
        parts.append(Part(grads, *sizes))
    first, second = parts
    measured = noise_of(ops, first, second, step.phase.trains)
    outputs = {f"{MEASURED}/{name}": value for name, value in measured.items()}
    for name, a, b in zip(step.trains, first.grads, second.grads, strict=True):
        outputs[f"{GRADIENT}{name}"] = a + b
    return Recording(tape, outputs, ())


def half_of(network: str, i: int) -> str:
    """Return the name of a network whose gradient is that of part i, 0 or 1."""
    return f"{network}/{i}"


def _interleaved(first: Symbol, second: Symbol) -> Symbol:
    """Return rows [K, B] and [K, B] or [K, B - 1] in turn, [K, 2 B]; if B is odd, the last one has no meaning."""
    if second.shape != first.shape:
        second = ops.concat([second, first[:, -1:]], -1)
    return ops.stack([first, second], 2).reshape(first.shape[0], -1)
