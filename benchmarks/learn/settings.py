"""The settings of rows of the learning table that have none among the tuned ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import marltrain as mt
from examples.apples import SETTINGS as APPLES_SETTINGS

Settings = Mapping[str, Mapping[str, Any]]
"""{"trainer": keyword arguments of DecentralizedTrainer, "agents": those of make_agents}."""


def spread(steps: int, env: str = "mpe2/simple_spread_v3", **agents: Any) -> Settings:
    """Return the settings of PPO on simple_spread, for another number of env steps."""
    tuned = mt.tuned("ppo", env)
    return {
        "trainer": {**tuned["trainer"], "steps_per_train": steps},
        "agents": {**tuned["agents"], "learning_rate": mt.linear(1e-3, 1e-4, steps), **agents},
    }


def apples(algo: str, **agents: Any) -> Settings:
    """Return the settings of examples/apples.py with one agent for both players, which learns from twice the rows."""
    return {"trainer": {"num_train_envs": 16}, "agents": {**APPLES_SETTINGS[algo], "share": True, **agents}}


def mixing(steps: int, **agents: Any) -> Settings:
    """Return the settings of value mixing on simple_spread."""
    return {
        "trainer": {"num_train_envs": 16, "update_freq": 64, "team_reward": "mean"},
        "agents": {
            "network": mt.MLP((64, 64), "relu"), "learning_rate": mt.linear(1e-3, 1e-4, steps), "gamma": 0.95,
            "batch_size": 512, "learning_starts": 5_000, "update_per_step": 0.02, "capacity": 200_000, "tau": 0.01,
            "epsilon": mt.linear(1.0, 0.05, 200_000), **agents,
        },
    }  # fmt: skip


def central(steps: int, **agents: Any) -> Settings:
    """Return the settings of MADDPG on simple_spread."""
    return {
        "trainer": {"num_train_envs": 32, "update_freq": 128},
        "agents": {
            "network": mt.MLP((64, 64), "relu"), "learning_rate": mt.linear(1e-2, 1e-3, steps), "gamma": 0.95,
            "batch_size": 1024, "learning_starts": 5_000, "random_steps": 5_000, "update_per_step": 0.01,
            "capacity": 200_000, "tau": 0.01, "straight_through": False, **agents,
        },
    }  # fmt: skip


def continuous(steps: int) -> Settings:
    """Return the settings of independent off-policy agents on simple_spread with continuous actions."""
    return {
        "trainer": {"num_train_envs": 16, "update_freq": 64},
        "agents": {
            "network": mt.MLP((64, 64), "relu"), "learning_rate": mt.linear(3e-3, 3e-4, steps), "gamma": 0.95,
            "batch_size": 512, "learning_starts": 5_000, "random_steps": 5_000, "update_per_step": 0.05,
            "capacity": 300_000, "tau": 0.01,
        },
    }  # fmt: skip


def foraging(steps: int = 5_000_000, callbacks: Sequence[mt.Callback] = (), **agents: Any) -> Settings:
    """Return the settings of actor-critic algorithms on level-based foraging."""
    return {
        "trainer": {"num_train_envs": 32, "update_freq": 2048, "callbacks": list(callbacks)},
        "agents": {
            "learning_rate": mt.linear(1e-3, 1e-4, steps), "entropy_coef": 0.01, "epochs": 8, "minibatches": 2,
            **agents,
        },
    }  # fmt: skip


def foraging_shared(steps: int, callbacks: Sequence[mt.Callback]) -> Settings:
    """Return the settings of MAPPO on foraging by one agent in all seats, which observes which player it acts for."""
    return foraging(
        steps, callbacks, share=True, identify=True, critic_input="agent_specific", gamma=0.95,
        normalize_observations=True, entropy_coef=mt.linear(0.01, 0.0, steps * 4 // 5),
    )  # fmt: skip


def foraging_values(algo: str, steps: int, **agents: Any) -> Settings:
    """Return the settings of value decomposition on level-based foraging, for another number of env steps."""
    tuned = mt.tuned(algo, "marltrain/foraging_v3")
    return {
        "trainer": {**tuned["trainer"], "steps_per_train": steps},
        "agents": {**tuned["agents"], "learning_rate": mt.linear(1e-3, 1e-4, steps), **agents},
    }


def foraging_independent(steps: int, **agents: Any) -> Settings:
    """Return the settings of independent Q-learning by one agent in all seats on level-based foraging."""
    return {
        "trainer": {"num_train_envs": 32, "update_freq": 64, "steps_per_train": steps},
        "agents": {
            "share": True, "network": mt.MLP((128, 128), "relu"), "learning_rate": mt.linear(1e-3, 1e-4, steps),
            "gamma": 0.9, "n_step": 3, "reward_scale": 3.0, "batch_size": 512, "learning_starts": 10_000,
            "update_per_step": 1 / 16, "capacity": 500_000, "tau": 0.01, "epsilon": mt.linear(1.0, 0.05, 400_000),
            **agents,
        },
    }  # fmt: skip


def foraging_one_hot(steps: int, trainer: Mapping[str, Any] | None = None, **agents: Any) -> Settings:
    """Return the settings of Q-learning by one agent in all seats on foraging with one-hot observations."""
    return {
        "trainer": {"num_train_envs": 64, "update_freq": 64, **(trainer or {})},
        "agents": {
            "share": True, "identify": True, "network": mt.MLP((128, 128), "relu"), "reward_scale": 20.0,
            "learning_rate": mt.linear(4e-4, 2e-5, steps), "gamma": 0.9, "batch_size": 512, "learning_starts": 10_000,
            "update_per_step": 1 / 32, "capacity": 300_000, "tau": 0.01, "epsilon": mt.linear(1.0, 0.05, 200_000),
            **agents,
        },
    }  # fmt: skip


def foraging_shared_experience(steps: int = 5_000_000, **agents: Any) -> Settings:
    """Return the settings of shared experience on level-based foraging.

    Rewards are rare, and at first more than ten times the deviation of returns: the usual clip would make them equal.
    """
    return {
        "trainer": {"num_train_envs": 32, "update_freq": 160},
        "agents": {
            "learning_rate": mt.linear(1e-3, 1e-4, steps), "optimizer": "adam", "gamma": 0.95, "gae_lambda": 0.95,
            "entropy_coef": 0.01, "normalize_returns": True, "reward_clip": 1_000.0, **agents,
        },
    }  # fmt: skip


def shared_policy(steps: int, envs: int = 32, rollout: int = 128, **agents: Any) -> Settings:
    """Return the settings of an on-policy agent in all seats, in Overcooked, RWARE and SMAX.

    rollout: batch steps between two updates.
    """
    return {
        "trainer": {"num_train_envs": envs, "update_freq": envs * rollout},
        "agents": {
            "share": True, "learning_rate": mt.linear(1e-3, 1e-4, steps), "gamma": 0.99, "gae_lambda": 0.95,
            "entropy_coef": 0.01, "epochs": 4, "minibatches": 4, **agents,
        },
    }  # fmt: skip
