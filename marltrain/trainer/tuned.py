"""Settings that work, by algorithm and environment."""

from __future__ import annotations

import copy
from typing import Any

from marltrain.errors import ConfigError, did_you_mean
from marltrain.policies.networks import MLP
from marltrain.policies.schedules import linear

_TABLE: dict[tuple[str, str], dict[str, dict[str, Any]]] = {
    ("dqn", "pettingzoo/classic/tictactoe_v3"): {
        "trainer": {
            "num_train_envs": 16,
            "num_test_envs": 16,
            "update_freq": 64,
            "batch_size": 128,
            "test_freq": 2_000,
            "episodes_per_test": 200,
            "steps_per_train": 200_000,
        },
        "agents": {
            "learning_rate": linear(1e-3, 1e-4, 200_000),
            "gamma": 0.99,
            "epsilon": linear(1.0, 0.1, 80_000),
            "capacity": 50_000,
            "learning_starts": 2_000,
            "update_per_step": 0.125,
            "target_sync": 250,
            "double": True,
            "network": MLP(hidden=(128, 128), activation="relu"),
        },
    },
    ("ppo", "gymnasium/CartPole-v1"): {
        "trainer": {
            "num_train_envs": 8,
            "num_test_envs": 8,
            "update_freq": 1_024,
            "batch_size": 256,
            "test_freq": 100,
            "episodes_per_test": 20,
            "steps_per_train": 100_000,
        },
        "agents": {
            "learning_rate": linear(1e-3, 0.0, 100_000),
            "gamma": 0.98,
            "gae_lambda": 0.8,
            "clip": 0.2,
            "entropy_coef": 0.0,
            "value_coef": 0.5,
            "epochs": 10,
            "network": MLP(hidden=(64, 64), activation="tanh"),
        },
    },
    ("ppo", "mpe2/simple_spread_v3"): {
        "trainer": {
            "num_train_envs": 16,
            "num_test_envs": 16,
            "update_freq": 2_048,
            "test_freq": 1_000,
            "episodes_per_test": 100,
            "episodes_per_train": 20_000,
        },
        "agents": {
            "learning_rate": 1e-3,
            "gamma": 0.95,
            "gae_lambda": 0.95,
            "clip": 0.2,
            "entropy_coef": 0.01,
            "max_grad_norm": 0.5,
            "epochs": 4,
            "minibatches": 4,
            "network": MLP(hidden=(64, 64), activation="tanh"),
        },
    },
}
"""(algorithm, environment) -> keyword arguments of DecentralizedTrainer ("trainer") and of make_agents ("agents")."""


def tuned(algo: str, env: str) -> dict[str, dict[str, Any]]:
    """Return settings that work: {"trainer": {...}, "agents": {...}}, a copy of your own to change.

    "trainer" are keyword arguments of `DecentralizedTrainer`, "agents" of `make_agents`.
    Raises ConfigError for a pair that the table does not hold.
    """
    if (algo, env) not in _TABLE:
        known = [f"{a} on {e}" for a, e in _TABLE]
        asked = f"{algo} on {env}"
        raise ConfigError(f"no tuned settings for {asked}.{did_you_mean(asked, known)} There are: {'; '.join(known)}")
    return copy.deepcopy(_TABLE[algo, env])
