"""Losses of real learners with the columns and numbers of an update, and their gradients by torch."""

import copy
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from marltrain.policies.learner.algorithm_learner import AlgorithmLearner
from marltrain.policies.learner.joint_learner import JointLearner
from marltrain.policies.learner.programs.recorded_step import TapeOperations
from marltrain.policies.tape.derive import derive
from marltrain.policies.tape.network import RecordedNetwork
from marltrain.policies.tape.operations import DType
from marltrain.policies.tape.recording import Recording
from marltrain.policies.tape.symbols import Tape
from tests.policies.some_batches import (
    some_replayed,
    some_rollout,
    some_team,
    with_carries,
    with_states,
)

DTYPES: dict[torch.dtype, DType] = {torch.float32: "float", torch.int64: "integer", torch.bool: "bytes",
                                    torch.uint8: "pixels"}  # fmt: skip


@dataclass
class Loss:
    """A loss at the place where a step asks for its gradients: what it was given, and what torch computed.

    losses: (nets, columns, hyper) -> (loss, outputs), a method of a step.
    plans: network -> (plan, agents).  weights: network -> [K, N].  measured, gradients: of torch.
    """

    losses: Any
    plans: dict[str, tuple[Any, int]]
    trains: list[str]
    columns: Mapping[str, Any]
    hyper: Mapping[str, Any]
    weights: dict[str, np.ndarray]
    measured: dict[str, np.ndarray]
    gradients: dict[str, np.ndarray]


def recorded(loss: Loss) -> Recording:
    """Return the recording of a loss."""
    tape = Tape()
    nets = {name: RecordedNetwork(tape, name, plan, agents) for name, (plan, agents) in loss.plans.items()}
    columns, hyper = inputs_of(tape, loss.columns, "columns"), inputs_of(tape, loss.hyper, "hyper")
    total, outputs = loss.losses.__self__.losses(TapeOperations(tape), nets, columns, hyper)
    return Recording(tape, outputs, derive(total, {name: nets[name].leaf for name in loss.trains}))


def inputs_of(tape: Tape, tree: Any, path: str) -> Any:
    """Return a tree of symbols like a tree of tensors."""
    if isinstance(tree, dict):
        return {name: inputs_of(tape, part, f"{path}/{name}") for name, part in tree.items()}
    return None if tree is None else tape.input(path, tuple(tree.shape), DTYPES[tree.dtype])


def arrays_of(tree: Any, path: str) -> dict[str, np.ndarray]:
    """Return the arrays of a tree of tensors by the names of `inputs_of`."""
    if isinstance(tree, dict):
        return {key: a for name, part in tree.items() for key, a in arrays_of(part, f"{path}/{name}").items()}
    return {} if tree is None else {path: tree.detach().numpy()}


def losses_of(learner: Any, batch: Any, rows: int) -> list[Loss]:
    """Return the first loss of each step of a learner's update."""
    backend, found = copy.copy(learner.backend), dict[int, Loss]()
    plain = backend.gradients

    def gradients(losses: Any, nets: Any, trains: Any, columns: Any, hyper: Any) -> Any:
        weights = {name: net.flat.detach().numpy().copy() for name, net in nets.items()}
        columns = {name: copy.copy(column) for name, column in columns.items()}
        measured, grads = plain(losses, nets, trains, dict(columns), hyper)
        found.setdefault(id(losses.__self__), Loss(
            losses, {name: (net.plan, net.num_agents) for name, net in nets.items()}, list(trains), columns, hyper,
            weights, {name: value.detach().numpy().copy() for name, value in measured.items()},
            {name: grad.numpy().copy() for name, grad in zip(trains, grads, strict=True)},
        ))  # fmt: skip
        return measured, grads

    backend.gradients = gradients
    for step in learner.steps.steps:
        step.backend = backend
    learner.update(batch, learn=np.ones(learner.num_agents, bool), batch_size=rows)
    return list(found.values())


def learner_of(kind: Any, space: Any, actions: Any, agents: int, settings: Mapping[str, Any]) -> Any:
    """Return a learner of K agents, or of a team of them."""
    part = stacked(kind, space, actions, agents, settings)
    return JointLearner([part], [1], list(range(agents))) if hasattr(part.algorithm, "team_networks") else part


def stacked(kind: Any, space: Any, actions: Any, agents: int, settings: Mapping[str, Any]) -> AlgorithmLearner:
    """Return a learner of K agents with weights of their own."""
    first = kind(space, actions, seed=0, device="cpu", **settings)
    return AlgorithmLearner(first.algorithm, first.backend, list(range(agents)), draw=True)


def batch_of(learner: Any, actions: Any, rows: int, masked: bool, seed: int = 1) -> Any:
    """Return random rows as the memory of a learner would give them."""
    rng = np.random.default_rng(seed)
    batch: Any
    if isinstance(learner, JointLearner):
        return with_team_carries(rng, some_team(rng, learner.members, [1], rows, masked=masked), learner.members)
    agents = learner.num_agents
    if learner.algorithm.on_policy:
        batch = some_rollout(rng, learner.algorithm.layout, actions, [rows - k for k in range(agents)], masked=masked)
    else:
        batch = some_replayed(rng, learner.algorithm, agents, rows, masked=masked)
    return with_states(rng, with_carries(rng, batch, learner), learner)


def with_team_carries(rng: np.random.Generator, batch: Any, parts: Any) -> Any:
    """Return the batch of a team with the carries of recurrent networks; others unchanged."""
    for part, rows in zip(parts, batch.members, strict=True):
        if part.needs.block:
            columns = part.needs.columns.items()
            rows.extras = {name: 0.3 * rng.standard_normal((*rows.weight.shape, *column.shape), np.float32)
                           for name, column in columns}  # fmt: skip
            rows.begins = rng.random(rows.weight.shape) < 0.25
    return batch
