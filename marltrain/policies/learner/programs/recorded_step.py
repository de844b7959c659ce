"""The gradient step of a phase as recordings: what is computed over all rows, and losses with their gradients."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from marltrain.core.layout import Array, map_tree
from marltrain.policies.backends.base import Backend
from marltrain.policies.batches.tensor_batch import TensorBatch
from marltrain.policies.learner.gradient_step import ERRORS, TOTAL, GradientStep
from marltrain.policies.learner.trained_team import ALONE, OF_TEAM, Columns
from marltrain.policies.tape import ops
from marltrain.policies.tape.derive import derive
from marltrain.policies.tape.network import RecordedNetwork
from marltrain.policies.tape.operations import DType
from marltrain.policies.tape.recording import Recording
from marltrain.policies.tape.symbols import RecordError, Symbol, Tape

DTYPES: dict[Any, DType] = {
    np.dtype(np.float32): "float", np.dtype(np.int64): "integer", np.dtype(np.bool_): "bytes",
    np.dtype(np.uint8): "pixels",
}  # fmt: skip
"""Data types of columns that a tape has."""
COLUMNS, MADE, MEASURED, HYPER, DUE = "columns", "made", "measured", "hyper", "due"
"""Beginnings of names: of given columns, "columns/0/obs"; of those that `Algorithm.over_rows` makes, "made/advantage";
of metrics, "measured/loss"; of numbers of a member, "hyper/0/gamma"; of the agents of a member that learn, "due/0".
"""


class TapeOperations:
    """The operations of a tape; see `gradient_step.Computing`."""

    def __init__(self, tape: Tape) -> None:
        """Record on a tape."""
        self.ops, self.no_gradient = ops, tape.no_gradient


def agents_of(step: GradientStep) -> dict[str, int]:
    """Return the agents that a program computes at once: one of the agents alone; all of each member of a team."""
    team = step.team
    if not team.is_joint:
        return {ALONE: 1}
    return {**dict(zip(team.members, team.agents, strict=True)), OF_TEAM: 1}


def recorded_losses(
    step: GradientStep, columns: Columns, rows: int | None, made: Mapping[str, Symbol] | None = None
) -> Recording:
    """Record the metrics of a phase, its loss, the rows' errors, and the gradient.

    columns: arrays, whose shapes and types count.  rows: of an agent, None: as many as the columns have.
    made: the columns that `recorded_over_rows` returned.  Raises RecordError for models of the user, and other
    exceptions for what the functions of the phase do with tensors without numbers.
    """
    tape, nets, given = recorded_inputs(step, columns, rows, made or {})
    loss, outputs = step.losses(TapeOperations(tape), nets, given, hyper_of(tape, step))
    outputs = {f"{MEASURED}/{name}": _of_all(step, name, value) for name, value in outputs.items()}
    return Recording(tape, outputs, derive(loss, {name: nets[name].leaf for name in step.trains}))


def recorded_inputs(
    step: GradientStep, columns: Columns, rows: int | None, made: Mapping[str, Symbol]
) -> tuple[Tape, dict[str, RecordedNetwork], Any]:
    """Return a tape with networks and columns for the losses of a phase; see `recorded_losses`."""
    tape, agents, nets = Tape(), agents_of(step), dict[str, RecordedNetwork]()
    for name, net in step.team.nets.items():
        if not hasattr(net, "plan"):
            raise RecordError(f"network {name.split('/')[1]!r} is a model of your own")
        nets[name] = RecordedNetwork(tape, name, net.plan, agents[name.split("/")[0]])
    given = inputs(tape, columns, COLUMNS, step, rows)
    for name, value in made.items():
        shape = value.shape if rows is None or value.ndim < 2 else (1, rows, *value.shape[2:])
        given[ALONE][name.removeprefix(f"{MADE}/")] = tape.input(name, shape, value.node.dtype)
    return tape, nets, given


def recorded_over_rows(step: GradientStep, columns: Columns, rows: int | None = None) -> Recording:
    """Record the columns of an agent alone that are computed over all rows, and replace given ones or are new.

    rows: of a minibatch; None: as many as the columns have.
    """
    tape = Tape()
    batch = TensorBatch(**inputs(tape, columns, COLUMNS, step, rows)[ALONE])
    before = dict(batch.columns)
    step.team.algorithm.over_rows(ops, batch)
    made = {name: value for name, value in batch.columns.items() if value is not before.get(name)}
    return Recording(tape, {f"{MADE}/{name}": value for name, value in made.items()}, ())


def inputs(tape: Tape, tree: Any, path: str, step: GradientStep, rows: int | None) -> Any:
    """Return a tree of tensors like a tree of arrays, which are named by their paths; of one agent alone."""
    if tree is None:
        return None
    if isinstance(tree, Mapping):
        return {name: inputs(tape, part, f"{path}/{name}", step, rows) for name, part in tree.items()}
    if tree.dtype not in DTYPES:
        raise RecordError(f"column {path.split('/', 2)[2]!r} of {tree.dtype}: expected float32, int64, bool or uint8")
    shape = tree.shape
    if not step.team.is_joint:
        shape = (1, *shape[1:]) if rows is None or len(shape) < 2 else (1, rows, *shape[2:])
    return tape.input(path, shape, DTYPES[tree.dtype])


def hyper_of(tape: Tape, step: GradientStep) -> dict[str, dict[str, Symbol]]:
    """Return the hyperparameters of each member, [K_i, 1]."""
    agents = agents_of(step)
    return {
        key: {name: tape.input(f"{HYPER}/{key}/{name}", (agents[key], 1)) for name in member.algorithm.numbers()}
        for key, member in step.team.members.items()
    }


def as_arrays(backend: Backend, tree: Any) -> Any:
    """Return a tree of tensors as arrays on their memory."""
    return map_tree(backend.numpy, tree)


def arrays_in(tree: Any, path: str) -> dict[str, Array]:
    """Return the arrays of a tree by the names of `inputs`."""
    if not isinstance(tree, dict):
        return {} if tree is None else {path: tree}
    found: dict[str, Array] = {}
    for name, part in tree.items():
        if isinstance(part, dict):
            found |= arrays_in(part, f"{path}/{name}")
        elif part is not None:
            found[f"{path}/{name}"] = part
    return found


def _of_all(step: GradientStep, name: str, value: Any) -> Any:
    """Return a metric of all agents of a team; that of its loss is [1]."""
    of_team = step.team.is_joint and name not in (TOTAL, ERRORS) and value.shape == (1,)
    return value.broadcast((step.team.num_agents,)) if of_team else value
