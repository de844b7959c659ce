"""An exported file held against its agent, on random observations."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from gymnasium import spaces

from marltrain.core.errors import SaveError
from marltrain.core.layout import Array
from marltrain.core.legal import Legal
from marltrain.policies.agents.algorithm_agent import LearningAgent
from marltrain.tools.export.function import ACTION, CARRY, LEGAL, PLAYER, UNIFORM, PolicyFunction
from marltrain.tools.export.loading import ExportedPolicy

TOLERANCE = 1e-5
"""Largest difference of probabilities, and of values and actions relative to their size, if that is above 1."""
STEPS = 10
"""Decisions of an episode, over which recurrent networks carry their state."""


@dataclass(frozen=True)
class Checked:
    """How far a file is from its agent.

    observations: number of compared rows.  differences: largest differences by output: of probabilities; of values, of
    actions of a Box and of carries relative to max(1, size).
    """

    observations: int
    differences: Mapping[str, float]

    def __str__(self) -> str:
        """Return the result in one line."""
        parts = [f"{name} {value:.1g}" for name, value in self.differences.items()]
        return f"{self.observations:,} observations, largest differences: {', '.join(parts)}"


def check_exported(
    agent: LearningAgent, function: PolicyFunction, policy: ExportedPolicy, observations: int
) -> Checked:
    """Compare a file with its agent; raises SaveError if they differ by more than `TOLERANCE`.

    Observations and masks are random, uniform where the space is bounded. Greedy actions are compared with those of
    `agent.act`; the other outputs, and sampled actions, with the policy in the agent's own framework.
    """
    rng = np.random.default_rng(0)
    rows = -(-observations // STEPS)
    nets, differences = function.own_networks(), dict[str, float]()
    carry: Any = None
    state = {p.name: np.zeros((rows, *p.shape), np.float32) for p in function.inputs if p.name.startswith(CARRY)}
    kept = state
    for _ in range(STEPS):
        observation = _observations(agent, rng, rows)
        inputs, names = _inputs(agent, policy, function, observation, rng, rows)
        result = policy.run({**inputs, **state})
        expected = function.in_arrays(agent.backend, nets, {**inputs, **kept})
        if UNIFORM not in inputs:
            expected[ACTION], carry = agent.act_with_carry(
                observation, carry, inputs.get(LEGAL), False, names if agent.identity else None
            )
        for name, value in _differences(agent, result, expected, inputs.get(LEGAL)).items():
            differences[name] = float(np.maximum(differences.get(name, 0.0), value))  # keeps NaN
        state, kept = (
            {name.removeprefix("next_"): x[name] for name in x if name.startswith(f"next_{CARRY}")}
            for x in (result, expected)
        )
    if wrong := {name: value for name, value in differences.items() if not value <= TOLERANCE}:
        found = ", ".join(f"{name} by {value:.3g}" for name, value in wrong.items())
        raise SaveError(f"export: the file differs from the agent: {found}, more than {TOLERANCE:g}; it is not kept")
    return Checked(rows * STEPS, differences)


def _observations(agent: LearningAgent, rng: np.random.Generator, rows: int) -> Any:
    """Return random observations in the environment's format, with a leading axis."""
    layout, _ = agent._seated()
    space = layout.space
    space.seed(int(rng.integers(2**31)))
    obs = layout.empty((rows,))
    for i in range(rows):
        layout.write(space.sample(), obs, i)
    return layout.decode(obs)


def _inputs(
    agent: LearningAgent, policy: ExportedPolicy, function: PolicyFunction, observation: Any,
    rng: np.random.Generator, rows: int,
) -> tuple[dict[str, Array], list[str]]:  # fmt: skip
    """Return the inputs but the carries, and the name of the player of each row."""
    ports = {port.name: port for port in function.inputs}
    inputs, _ = policy.arrays(observation)
    names: list[str] = []
    if PLAYER in ports:
        inputs[PLAYER] = rng.integers(len(agent.identity), size=rows)
        names = [agent.identity[i] for i in inputs[PLAYER]]
    if LEGAL in ports:
        mask = rng.random((rows, *ports[LEGAL].shape)) < 0.6
        first = 0
        for size in Legal(agent.action_space).sizes:
            mask[np.arange(rows), first + rng.integers(size, size=rows)] = True
            first += size
        inputs[LEGAL] = mask
    if UNIFORM in ports:
        inputs[UNIFORM] = rng.random((rows, *ports[UNIFORM].shape), np.float32)
    return inputs, names


def _differences(
    agent: LearningAgent, outputs: Mapping[str, Array], expected: Mapping[str, Array], legal: Array | None
) -> dict[str, float]:
    """Return the largest difference of each output; that of actions that are choices is 0 or infinite."""
    found = {}
    for name, reference in expected.items():
        if name == ACTION and not isinstance(agent.action_space, spaces.Box):
            wrong = (outputs[name] != reference).reshape(len(reference), -1).any(1)
            found[name] = (
                np.inf if (wrong & ~near_ties(agent.action_space, outputs[ACTION], expected, legal)).any() else 0.0
            )
        else:
            scale = np.maximum(1.0, np.abs(reference))
            found[name] = float((np.abs(outputs[name].astype(np.float64) - reference) / scale).max())
    return found


def near_ties(space: Any, actions: Array, expected: Mapping[str, Array], legal: Array | None) -> Array:
    """Return the rows [B] whose actions are legal choices with the same numbers as the expected ones, up to rounding.

    space: Discrete or MultiDiscrete.  actions: [B] or [B, choices].  expected: outputs of the agent.  legal: [B, A].
    """
    numbers = expected.get("probabilities", expected.get("values"))
    if numbers is None:
        return np.zeros(len(actions), bool)
    sizes = np.ravel(space.nvec if isinstance(space, spaces.MultiDiscrete) else space.n)
    starts = np.ravel(space.start)
    chosen, reference = (np.reshape(action, (len(actions), -1)) - starts for action in (actions, expected[ACTION]))
    first, inside = np.cumsum(sizes) - sizes, (chosen >= 0) & (chosen < sizes)
    chosen = np.clip(chosen, 0, sizes - 1)
    number, wanted = (np.take_along_axis(numbers, first + choice, 1) for choice in (chosen, reference))
    near = inside & (np.abs(number - wanted) <= TOLERANCE * np.maximum(1.0, np.abs(wanted)))
    if legal is not None:
        near &= np.take_along_axis(legal, first + chosen, 1)
    rows: Array = near.all(1)
    return rows
