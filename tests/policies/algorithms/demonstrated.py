"""Demonstrations of random decisions, and checks that algorithms over them have in common."""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium import spaces

import marltrain as mt
from marltrain.core.layout import Layout
from marltrain.policies.learner.algorithm_learner import AlgorithmLearner
from tests.policies.backends.both import BOTH
from tests.policies.some_batches import VECTOR, some_rollout, some_transitions

ACTIONS: dict[str, Any] = {
    "discrete": spaces.Discrete(3, start=2), "multidiscrete": spaces.MultiDiscrete([2, 3]),
    "box": spaces.Box(-2, 6, (2,), np.float32),
}  # fmt: skip
ROWS = 11


def demonstrated(kind: str) -> mt.Demonstrations:
    """Return decisions drawn from a fixed seed."""
    rng, space = np.random.default_rng(4), ACTIONS[kind]
    space.seed(4)
    actions = np.stack([space.sample() for _ in range(ROWS)])
    return mt.Demonstrations.from_arrays(VECTOR, space, rng.standard_normal((ROWS, 5)).astype(np.float32), actions)


def batch_of(learner: AlgorithmLearner, agents: int) -> Any:
    """Return a batch of the kind that the learner reads, of 9 rows for each agent, or 7 and 9 of a rollout."""
    rng, algorithm = np.random.default_rng(8), learner.algorithm
    if algorithm.on_policy:
        return some_rollout(rng, Layout(VECTOR), algorithm.action_space, [7, 9][-agents:])
    return some_transitions(rng, Layout(VECTOR), 3, agents, 9)


def updated(learner: Any, updates: int) -> dict[str, np.ndarray]:
    """Make updates on the same batch; return the metrics of the last one."""
    agents = learner.num_agents
    for _ in range(updates):
        metrics: dict[str, np.ndarray] = learner.update(
            batch_of(learner, agents), learn=np.ones(agents, bool), batch_size=4
        )
    return metrics


def moved_alike(agent: Any, kind: str, **settings: Any) -> None:
    """Assert equal weights after updates in both frameworks, and of a stacked agent and the same one alone."""
    result = agent(VECTOR, ACTIONS[kind], seed=0, demonstrations=demonstrated(kind), **settings)
    after = {}
    for name, backend in BOTH.items():
        both = AlgorithmLearner(result.algorithm, backend, [0, 1], draw=True)
        updated(both, 3)
        after[name] = both.export(1).arrays
    alone = AlgorithmLearner(result.algorithm, BOTH["torch"], [1], draw=True)
    updated(alone, 3) if not result.algorithm.on_policy else _second_rollout(alone)
    for name, array in after["torch"].items():
        np.testing.assert_allclose(after["tensorflow"][name], array, atol=2e-5, err_msg=name)
        np.testing.assert_allclose(alone.export(0).arrays[name], array, atol=2e-6, err_msg=name)


def _second_rollout(alone: AlgorithmLearner) -> None:
    """Make the same updates with the rows of the second agent only."""
    for _ in range(3):
        both = some_rollout(np.random.default_rng(8), Layout(VECTOR), alone.algorithm.action_space, [7, 9])
        own = type(both)(**{name: _second(value) for name, value in vars(both).items()})
        alone.update(own, learn=np.ones(1, bool), batch_size=4)


def _second(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: array[1:] for name, array in value.items()}
    return None if value is None else value[1:]
