"""Loading of agents, or of weights alone, into an `AlgorithmLearner`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from marltrain.core.errors import SaveError
from marltrain.core.layout import Array
from marltrain.policies.batches.batch import AgentState
from marltrain.policies.learner.copies import ActingCopies
from marltrain.policies.learner.gradient_steps import GradientSteps
from marltrain.policies.learner.weights import Weights
from marltrain.storage.checks import counted

TEAM = "team/"
"""Prefix of the names of the arrays of a team's networks in the state of an agent."""


class Loaded(Protocol):
    """The parts of an `AlgorithmLearner` that loading changes."""

    weights: Weights
    team: Weights | None
    copies: ActingCopies
    steps: GradientSteps


def load_weights(learner: Loaded, row: int, arrays: Mapping[str, Array]) -> None:
    """Load some of one agent's networks and statistics, with the names of `export`, and copy them to the targets.

    Raises SaveError for values that are not finite.
    """
    learner.copies.wait()
    learner.weights.load_some(row, {name: a for name, a in arrays.items() if not name.startswith(TEAM)})
    if learner.team is not None:
        of_team = {name.removeprefix(TEAM): a for name, a in arrays.items() if name.startswith(TEAM)}
        learner.team.load_some(0, of_team)
    learner.steps.outdated()
    learner.copies.sync()


def load_arrays(learner: Loaded, row: int, arrays: Mapping[str, Array]) -> None:
    """Load one agent's weights; the weights of the team's networks come from the agent of the first row."""
    own = {name: array for name, array in arrays.items() if not name.startswith(TEAM)}
    learner.weights.load(row, own)
    if learner.team is not None and row == 0:
        learner.team.load(0, {name.removeprefix(TEAM): array for name, array in arrays.items() if name not in own})


def counts_of(state: AgentState, actions: int) -> list[int]:
    """Return the counts of an agent's actions; raises SaveError unless there is a count for each action."""
    counts = state.value("action_counts", list)
    if len(counts) != actions:
        raise SaveError(f"{state.place('action_counts')} has {len(counts)} counts, expected {actions}")
    return [counted(state.place("action_counts"), count) for count in counts]
