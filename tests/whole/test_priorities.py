"""Prioritized memories in turn-based games: rows that are open when a run stops get their priority after the resume."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import marltrain as mt

GAME = "marltrain/tictactoe_v3"


OWN: dict[str, Any] = {
    "dqn": {"learning_starts": 40, "batch_size": 16},
    "ppo": {"minibatches": 2, "epochs": 2, "sequence_length": 3, "update_freq": 24},
}


def train(algo: str, folder: Path, steps: int, **resume: Any) -> list[dict[str, np.ndarray]]:
    """Train two agents; return their weights."""
    memory = mt.Replay(90, prioritized=mt.Prioritized())
    agents = mt.make_agents(algo, GAME, seed=0, memory=memory, network=mt.MLP((8,)), **OWN[algo])
    trainer = mt.DecentralizedTrainer(
        GAME, num_train_envs=4, steps_per_train=steps, seed=0, progress=False, run_dir=folder, test_freq=10**6,
        update_freq=8, episodes_per_test=2, callbacks=[mt.Checkpoint(every_steps=60)],
    )  # fmt: skip
    trainer.train(agents, [1, 1], plot=False, **resume)
    return [agent.state().arrays for agent in agents]


@pytest.mark.parametrize("algo", OWN)
def test_a_resumed_run_in_turns_is_exact(tmp_path: Path, algo: str) -> None:
    whole = train(algo, tmp_path / "whole", 360)
    train(algo, tmp_path / "parts", 124)
    train(algo, tmp_path / "parts", 244, resume=tmp_path / "parts")
    resumed = train(algo, tmp_path / "parts", 360, resume=tmp_path / "parts")
    for one, other in zip(whole, resumed, strict=True):
        assert all((one[name] == other[name]).all() for name in one)


def test_agents_with_functions_of_their_own_in_the_memory_are_not_computed_together() -> None:
    def agent(window: Any) -> Any:
        return mt.make_agents("dqn", GAME, seed=0, memory=mt.Replay(90, window=window))[0]

    def newest(held: int) -> float:
        return 0.5

    def all_rows(held: int) -> float:
        return 1.0

    first, second, other, number = (agent(window) for window in (newest, newest, all_rows, 0.5))
    assert first.kind == second.kind
    assert len({first.kind, other.kind, number.kind}) == 3
