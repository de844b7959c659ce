"""Two equal learners, of which one makes its gradient steps by programs."""

import copy
from collections.abc import Sequence
from typing import Any

import numpy as np

from marltrain.jit.notices import listening
from marltrain.policies.learner.programs.program_step import ProgramStep
from tests.policies.tape.test_recording import AGENTS, ROWS, learners_of, rows_of

TOLERANCE = 1e-5


def by_programs(learner: Any) -> Any:
    """Return the learner with gradient steps by programs in place of those of the framework."""
    learner.steps.steps = [ProgramStep(step.number, step.team) for step in learner.steps.steps]
    return learner


def pair(name: str, agents: int = AGENTS, **settings: Any) -> tuple[Any, Any, Any]:
    """Return a learner of a case, its equal by programs, and the action space."""
    (plain, other), actions = learners_of(name, 2, agents, **settings)
    return plain, by_programs(other), actions


def update(learner: Any, batch: Any, learn: Sequence[bool] | None = None) -> dict[str, Any]:
    """Make an update with a copy of a batch; return its metrics, and the errors of its rows if they are known."""
    batch = copy.deepcopy(batch)
    due = np.ones(learner.num_agents, bool) if learn is None else np.array(learn)
    measured = learner.update(batch, learn=due, batch_size=ROWS)
    errors = getattr(batch, "errors", None)
    return dict(measured) if errors is None else {**measured, "the errors of rows": errors}


def state_of(learner: Any) -> dict[str, Any]:
    """Return copies of weights, target weights, moments and step counts of all networks, [K_i, ...]."""
    team, numpy = learner.steps.team, learner.backend.numpy
    tensors = {name: net.flat for name, net in team.nets.items()}
    for name, optimizer in team.optimizers.items():
        tensors |= {f"{slot} of {name}": value for slot, value in optimizer.state().items()}
    return {name: numpy(tensor).copy() for name, tensor in tensors.items()}


def assert_equal_states(found: Any, expected: Any, tolerance: float = TOLERANCE) -> None:
    """Compare the states of learners, relative to the largest number of each array."""
    theirs = state_of(expected)
    for name, array in state_of(found).items():
        largest = max(np.abs(theirs[name]).max(), 1e-8)
        np.testing.assert_allclose(array, theirs[name], rtol=0, atol=tolerance * largest, err_msg=name)


def assert_equal_metrics(found: dict[str, Any], expected: dict[str, Any]) -> None:
    assert list(found) == list(expected)
    for name, values in expected.items():
        np.testing.assert_allclose(found[name], values, rtol=1e-4, atol=1e-5, err_msg=name)


def told_by(work: Any) -> list[str]:
    """Return the notices of phases that the framework computes, while a function runs."""
    told: list[str] = []
    with listening(told.append):
        work()
    return [line for line in told if "cannot be recorded" in line]


def batches(name: str, learner: Any, actions: Any, count: int, rows: int = ROWS) -> list[Any]:
    return [rows_of(name, learner, actions, rows, seed) for seed in range(count)]
