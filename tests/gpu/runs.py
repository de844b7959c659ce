"""Short runs of every algorithm, and comparisons of their agents, for tests and `benchmarks/gpu.py`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

import marltrain as mt
from marltrain.policies.agents.registry import agent_class
from tests.gymnasium_toys import BitFlipping

CART, PENDULUM, SPREAD = "gymnasium/CartPole-v1", "gymnasium/Pendulum-v1", "marltrain/simple_spread_v3"
TOGETHER = ("coma", "maa2c", "maddpg", "mappo", "masac", "matd3", "qmix", "seac", "vdac", "vdn", "wqmix")
CONTINUOUS = ("ddpg", "sac", "td3")
FROM_OTHERS = ("bc", "gail")
NEAR = 1e-3
"""Relative distance of weights of at least 1e-3 after a few updates. Longer runs amplify rounding without bound."""


def on_policy(name: str) -> bool:
    """Return whether an algorithm learns from rollouts."""
    return bool(agent_class(name).algorithm_class.on_policy)


def env_of(name: str) -> Any:
    """Return the game of an algorithm."""
    if name == "trl":
        return BitFlipping
    return SPREAD if name in TOGETHER else PENDULUM if name in CONTINUOUS else CART


def make(name: str, device: str, **settings: Any) -> list[mt.Agent]:
    """Make agents of an algorithm with small networks."""
    own: dict[str, Any] = {"network": mt.MLP((16, 16)), **settings}
    if name in FROM_OTHERS:
        expert = mt.make_agents("random", CART, seed=1)
        own["demonstrations"] = mt.demonstrations(CART, expert, episodes=4, seed=0)["player_0"]
    if not on_policy(name) and name not in FROM_OTHERS:
        own |= {"learning_starts": 64, "capacity": 500}
    return mt.make_agents(name, env_of(name), seed=3, device=device, **own)


def train(name: str, agents: list[mt.Agent], steps: int, folder: Path | None = None, *, resume: bool = False) -> Any:
    """Train agents that `make` made for some env steps; with a folder, with checkpoints."""
    trainer = mt.DecentralizedTrainer(
        env_of(name), num_train_envs=4, update_freq=64 if on_policy(name) else 16, batch_size=16, test_freq=None,
        seed=5, steps_per_train=steps, run_dir=False if folder is None else folder, progress=False,
        team_reward="mean" if env_of(name) == SPREAD else None,
        callbacks=[] if folder is None else [mt.Checkpoint(every_steps=64)],
    )  # fmt: skip
    return trainer.train(agents, [1] * len(agents), plot=False, resume=folder if resume else None)


def arrays(agents: list[mt.Agent]) -> dict[str, np.ndarray]:
    """Return all arrays of agents by name."""
    return {f"{i}/{name}": array for i, agent in enumerate(agents) for name, array in agent.state().arrays.items()}


def weights(agents: list[mt.Agent]) -> dict[str, np.ndarray]:
    """Return the weights of agents by name."""
    return {name: array for name, array in arrays(agents).items() if "net/" in name}


def distance(mine: dict[str, np.ndarray], theirs: dict[str, np.ndarray]) -> float:
    """Return the largest relative distance of weights, see `NEAR`; infinity if any is not finite."""
    far = [np.abs(array - theirs[name]) / (NEAR + np.abs(array)) for name, array in mine.items()]
    return float(max(np.nan_to_num(each, nan=np.inf).max(initial=0.0) for each in far))


def different(one: list[mt.Agent], other: list[mt.Agent]) -> list[str]:
    """Return the names of arrays that differ in any bit, or that one of them lacks."""
    mine, theirs = arrays(one), arrays(other)
    lacking = mine.keys() ^ theirs.keys()
    return sorted(
        lacking | {name for name in mine.keys() & theirs.keys() if not np.array_equal(mine[name], theirs[name])}
    )


def devices(agents: list[mt.Agent]) -> set[str]:
    """Return the devices on which agents compute."""
    return {str(agent.backend.device) for agent in agents if isinstance(agent, mt.LearningAgent)}
