"""A team of two players with different spaces and linear networks, and three batch steps of a game of two steps."""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium import spaces

from marltrain.policies.batches.batch import TeamBatch, TeamRows
from marltrain.policies.learner.joint_learner import JointLearner
from marltrain.policies.networks.specs import MLP

SPACES = (
    (spaces.Box(-9, 9, (2,), np.float32), spaces.Discrete(2)),
    (spaces.Box(-9, 9, (3,), np.float32), spaces.Discrete(3)),
)
BOTH = np.ones(2, bool)
WEIGHTS = {
    "q": (
        ([[1, 0], [2, -1]], [0, 1]),
        ([[0, 1, -1], [1, 0, 2], [0, 0, 4]], [0, 0, 1]),
    ),
    "target_q": (
        ([[1, 2], [3, 4]], [0, 0]),
        ([[1, 0, 0], [0, 5, -2], [0, 0, 1]], [0, 1, 0]),
    ),
}
"""Network -> weight [inputs, actions] and bias of both players' linear networks."""


def array(values: Any) -> np.ndarray:
    return np.array(values, np.float32)


def linear_team(kind: Any, **settings: Any) -> tuple[list[Any], JointLearner]:
    """Return two agents over `SPACES` with `WEIGHTS`, and their learner: plain gradient descent with rate 1."""
    given: dict[str, Any] = {"network": MLP(()), "optimizer": "sgd", "learning_rate": 1.0, "max_grad_norm": None}
    sizes = {"team_size": 2, **({"state_size": 4} if hasattr(kind.algorithm_class.Settings, "mixer_input") else {})}
    agents = [kind(*SPACES[i], seed=i, **{**given, **sizes, **settings}) for i in range(2)]
    for i, agent in enumerate(agents):
        set_linear(agent, {name: weights[i] for name, weights in WEIGHTS.items()})
    return agents, JointLearner([agent.learner_ for agent in agents], [1, 1], [0, 1])


def set_linear(agent: Any, weights: Any) -> None:
    """Set the weights of those of the linear networks that an agent has."""
    state = agent.learner_.export(0)
    for name, (weight, bias) in weights.items():
        if f"net/{name}/head0.weight" not in state.arrays:
            continue
        state.arrays[f"net/{name}/head0.weight"] = array(weight)
        state.arrays[f"net/{name}/head0.bias"] = array(bias)
    agent.learner_.load(0, state)


def linear(agent: Any, name: str = "q") -> tuple[np.ndarray, np.ndarray]:
    """Return the weight and the bias of an agent's linear network."""
    arrays = agent.learner_.export(0).arrays
    return arrays[f"net/{name}/head0.weight"], arrays[f"net/{name}/head0.bias"]


def rows(obs: Any, action: Any, following: Any, present: Any, next_present: Any, **more: Any) -> TeamRows:
    """Return the rows of one player at three batch steps."""
    present, next_present = np.array([present], bool), np.array([next_present], bool)
    nothing: Any = np.zeros((1, 3), np.float32)
    return TeamRows(
        obs=array([obs]), legal=None, action=np.array([action]), reward=nothing, discount=nothing,
        weight=present.astype(np.float32), extras={}, next_obs=array([following]),
        next_legal=np.array([more["next_legal"]], bool) if "next_legal" in more else None,
        cells=nothing, present=present, next_present=next_present,
    )  # fmt: skip


def two_steps() -> TeamBatch:
    """Return a game of two steps, of which the second ends it, and a step that is cut, in which player 1 is absent.

    Player 1 has left the third game; garbage stands where a player is absent or has no value.
    """
    first = rows([[1, 2], [0, 1], [2, 1]], [0, 1, 0], [[0, 1], [7, 7], [1, 1]], [1, 1, 1], [1, 0, 1])
    second = rows([[1, 0, 1], [0, 1, 0], [8, 8, 8]], [2, 0, 1], [[0, 1, 0], [6, 6, 6], [5, 5, 5]], [1, 1, 0], [1, 0, 0])
    state = np.arange(12, dtype=np.float32).reshape(1, 3, 4) / 12
    return TeamBatch(
        [first, second], reward=array([[2, -1, 4]]), discount=array([[0.5, 0, 0.5]]), weight=array([[1, 1, 1]]),
        state=state, next_state=state[:, ::-1] - 0.3,
    )  # fmt: skip
