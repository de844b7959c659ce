"""Masks of MultiDiscrete actions in whole runs: algorithms that take such actions never choose an illegal one.

`tests.players_toys.Wheels` raises an error for an illegal choice.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import marltrain as mt
from tests.players_toys import Wheels
from tests.tiers import LONG

ALGORITHMS = ("a2c", "maa2c", "maddpg", "mappo", "matd3", "ppo", "seac", "trpo", "vdac")
"""Those that take MultiDiscrete actions and need no demonstrations."""
QUIET: dict[str, Any] = {"seed": 0, "progress": False, "run_dir": False, "num_test_envs": 2, "test_freq": None}


def trained(
    name: str, steps: int, backend: str = "torch", **settings: Any
) -> tuple[list[Any], mt.DecentralizedTrainer]:
    """Train two agents on the wheels; return them and the trainer."""
    agents = mt.make_agents(name, Wheels, seed=0, backend=backend, network=mt.MLP((16,)), **settings)
    trainer = mt.DecentralizedTrainer(
        Wheels, num_train_envs=4, update_freq=48, batch_size=16, steps_per_train=steps, team_reward="sum", **QUIET
    )
    trainer.train(agents, [1, 1])
    return agents, trainer


@pytest.mark.parametrize("name", ALGORITHMS if LONG else ("ppo", "trpo", "maddpg", "vdac"))
def test_no_choice_is_illegal_in_training_and_tests(name):
    agents, trainer = trained(name, 96)
    returns = trainer.test([*agents[:1], mt.RandomAgent()], episodes=4).returns
    assert ((returns >= 3) & (returns <= 13)).all()


def test_the_best_legal_choices_are_learned():
    """By hand, of player 0: the first wheel must be at 0, 1, 0, 1, 0, 1; the second is best at 2, 2, 1, 2, 2, 1: 13."""
    agents, trainer = trained("ppo", 2_400, learning_rate=0.02, entropy_coef=0.0)
    assert trainer.test(agents, episodes=1).returns.tolist() == [[13.0, 13.0]]


def test_both_frameworks_learn_alike():
    one, other = (trained("ppo", 96, backend)[0] for backend in ("torch", "tensorflow"))
    for mine, theirs in zip(one, other, strict=True):
        for key, array in mine.learner_.export(mine.row).arrays.items():
            np.testing.assert_allclose(theirs.learner_.export(theirs.row).arrays[key], array, atol=2e-5, err_msg=key)


def test_exported_policies_obey_masks(tmp_path):
    (agent, _), _ = trained("ppo", 48)
    path = tmp_path / "policy.onnx"
    assert max(mt.export(agent, path, observations=50, legal=True).differences.values()) <= 1e-5
    policy = mt.load_exported(path)
    rng = np.random.default_rng(0)
    for _ in range(20):
        first, second = rng.integers(2), rng.integers(3)
        mask = np.concatenate([np.arange(2) == first, np.arange(3) != second])
        action, *_ = policy.act(rng.random(6, np.float32), legal=mask)
        assert action[0] == first and action[1] != second


def test_recorded_decisions_keep_their_masks_and_are_imitated():
    data = mt.demonstrations(Wheels, [mt.RandomAgent(), mt.RandomAgent()], episodes=2, player="player_0")
    assert data.legal is not None and data.legal.shape == (12, 5) and data.action.shape == (12, 2)
    given = data.observation_space, data.action_space, data.obs, data.action
    with pytest.raises(mt.AgentError, match="decision 0 is not one of its legal actions"):
        mt.Demonstrations.from_arrays(*given, legal=~data.legal)
    trained("bc", 48, demonstrations=data)


@pytest.mark.parametrize(
    ("legal", "message"),
    [
        ([1, 0, 1], "expected one truth value a choice of each number"),
        ([1, 1, 0, 0, 0], "no choice of number 1 is legal"),
    ],
)
def test_wrong_masks_given_to_act(legal, message):
    (agent, _) = mt.make_agents("ppo", Wheels, seed=0, network=mt.MLP((4,)))
    with pytest.raises(mt.SpecError, match=message):
        agent.act(np.zeros(6, np.float32), legal=legal)
    masks: tuple[Any, ...] = ([1, 0, 0, 0, 1], ([1, 0], [0, 0, 1]), np.array([1, 0, 0, 0, 1], bool))
    for mask in masks * 5:
        assert agent.act(np.zeros(6, np.float32), legal=mask, explore=True).tolist() == [0, 2]
