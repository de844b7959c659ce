"""A team of a player with a Box and one with Discrete actions, linear networks, and three batch steps."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import numpy as np
from gymnasium import spaces

from marltrain.policies.batches.batch import TeamBatch, TeamRows
from marltrain.policies.learner.joint_learner import JointLearner
from marltrain.policies.networks.specs import MLP

BOX = spaces.Box(np.zeros(1, np.float32), np.full(1, 4, np.float32))
SPACES = ((spaces.Box(-9, 9, (2,), np.float32), BOX), (spaces.Box(-9, 9, (3,), np.float32), spaces.Discrete(2)))
BOTH = np.ones(2, bool)
RATE = 0.5


def linear_team(kind: Any, **settings: Any) -> tuple[list[Any], JointLearner]:
    """Return two agents with linear networks, and their learner: plain gradient descent."""
    given = {"network": MLP(()), "optimizer": "sgd", "learning_rate": RATE, "max_grad_norm": None, "team_size": 2,
             "state_size": 2, "joint_action_size": 3, **settings}  # fmt: skip
    agents = [kind(*SPACES[i], seed=i, **given) for i in range(2)]
    for i, agent in enumerate(agents):  # first weights of actors are small: larger ones tell more
        state, rng = agent.learner_.export(0), np.random.default_rng(i)
        for name in (n for n in state.arrays if n.startswith("net/") and "temperature" not in n):
            state.arrays[name][...] = rng.normal(size=state.arrays[name].shape)
        agent.learner_.load(0, state)
    return agents, JointLearner([agent.learner_ for agent in agents], [1, 1], [0, 1])


def three_steps() -> Any:
    """Return a step; one at which player 1 is absent and joins; and one that ends the game of player 0."""
    first = rows([[1, 2], [0, 1], [2, 1]], [[1], [4], [0]], [1, -2, 3], [[0, 1], [1, 1], [7, 7]], [1, 1, 1], [1, 1, 0])
    second = rows([[1, 0, 1], [8, 8, 8], [0, 1, 0]], [1, 1, 0], [2, 9, 0.5], [[0, 1, 0], [1, 0, -1], [1, 1, 0]],
                  [1, 0, 1], [1, 1, 1])  # fmt: skip
    state = np.array([[[1, 0], [0.5, -1], [2, 1]]], np.float32)
    ones = np.ones((1, 3), np.float32)
    return TeamBatch([first, second], 0 * ones, 0.9 * ones, ones, state=state, next_state=state[:, ::-1] - 0.5)


def rows(obs: Any, action: Any, reward: Any, following: Any, present: Any, next_present: Any) -> TeamRows:
    """Return the rows of one player."""
    there, after = np.array([present], bool), np.array([next_present], bool)
    return TeamRows(
        obs=np.array([obs], np.float32), legal=None, action=np.array([action], np.float32 if after[0, 0] and
        isinstance(action[0], list) else np.int64), reward=np.array([reward], np.float32),
        discount=np.where(after, np.float32(0.9), np.float32(0)), weight=there.astype(np.float32), extras={},
        next_obs=np.array([following], np.float32), next_legal=None, cells=np.zeros((1, 3), np.int64), present=there,
        next_present=after,
    )  # fmt: skip


WEIGHT = (np.full(3, 1 / 3), np.array([0.5, 0, 0.5]))
"""Weights of the steps for both players: where they are present."""
TAKEN = np.array([[-0.5, 0, 1], [1, 0, 0], [-1, 1, 0]])
"""The actions of both as vectors: 0 to 4 is -1 to 1, and a one-hot; zeros for the absent player."""


def linear(agent: Any) -> dict[str, Any]:
    """Return the weight and the bias of each network of an agent."""
    arrays = agent.learner_.export(0).arrays
    names = {name.split("/")[1] for name in arrays if name.startswith("net/") and name.endswith("weight")}
    return {n: (arrays[f"net/{n}/head0.weight"], arrays[f"net/{n}/head0.bias"]) for n in names}


def of(net: tuple[np.ndarray, np.ndarray], *inputs: Any) -> np.ndarray:
    """Return the outputs of a linear network."""
    result: np.ndarray = np.concatenate(inputs, -1) @ net[0] + net[1]
    return result


def softmax(logits: np.ndarray) -> np.ndarray:
    powers = np.exp(logits - logits.max(-1, keepdims=True))
    result: np.ndarray = powers / powers.sum(-1, keepdims=True)
    return result


def update_rng(agent: Any) -> np.random.Generator:
    """Return a copy of the generator from which an agent's updates draw."""
    result: np.random.Generator = deepcopy(agent.learner_.rngs("update")[0])
    return result
