"""PSRO in games of known equilibria, its payoffs and gains by hand, and what it refuses."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import marltrain as mt
from marltrain.core.errors import ConfigError

ROCKS, ONCE = "marltrain/rock_paper_scissors_v1", {"num_rounds": 1, "observe_last_actions": False}
ODD = [[[2.0, -2.0], [-1.0, 1.0]], [[-1.0, 1.0], [1.0, -1.0]]]
DQN: dict[str, Any] = {
    "network": mt.MLP(()), "learning_rate": 0.05, "gamma": 0.0, "learning_starts": 64, "epsilon": 1.0,
    "trainer": {"steps_per_train": 480, "num_train_envs": 16, "update_freq": 16, "batch_size": 64},
    "episodes": 4, "sampled": False,
}  # fmt: skip


def hands(population: list[mt.Agent]) -> list[int]:
    """Return the actions of the trained policies, without the first, random one."""
    return [int(agent.act(np.ones(1, np.float32))) for agent in population[1:]]


def test_rock_paper_scissors_by_best_responses():
    """Each hand is the best response to the one before, and the equilibrium of all three is a third of each."""
    result = mt.psro("dqn", ROCKS, ONCE, iterations=4, seed=1, **DQN)
    rows, columns = map(hands, result.populations)
    assert {*rows} == {*columns} == {0, 1, 2}
    table = np.array([[0, -1, 1], [1, 0, -1], [-1, 1, 0]])
    np.testing.assert_array_equal(result.payoffs[0, 1:, 1:], table[np.ix_(rows, columns)])
    np.testing.assert_array_equal(result.payoffs[1], -result.payoffs[0])
    for population, share in zip((rows, columns), result.strategies, strict=True):
        played = np.bincount(population, share[1:], minlength=3)
        assert played + share[0] / 3 == pytest.approx(
            [1 / 3] * 3, abs=0.15
        )  # the random policy's payoffs are estimated
    assert len(result.gains) == 4
    assert result.history().shape == (4, 2)


def test_a_game_of_two_by_two_actions_and_its_value():
    result = mt.psro("dqn", "marltrain/matrix_game_v1", {"payoffs": ODD, **ONCE}, iterations=3, seed=0,
                     **{**DQN, "episodes": 200})  # fmt: skip
    x, y = result.strategies
    assert x @ result.payoffs[0] @ y == pytest.approx(0.2, abs=0.1)
    for agent, share in zip(result.agents(), (x, y), strict=True):
        assert isinstance(agent, mt.MixedAgent)
        assert agent.shares == pytest.approx(share)


def test_exploitability_is_computed_after_each_iteration():
    settings = {**DQN, "learning_rate": 0.01, "network": mt.MLP((16,)), "gamma": 1.0}
    result = mt.psro(
        "dqn", "marltrain/kuhn_poker_v1", iterations=2, meta_strategy="uniform", exploitability=True, seed=0, **settings
    )
    assert [share.tolist() for share in result.strategies] == [[1 / 3] * 3] * 2
    assert len(result.exploitability) == 2
    assert mt.exploitability(result.agents(), "marltrain/kuhn_poker_v1") == result.exploitability[-1]
    assert list(result.history().columns) == ["gain_0", "gain_1", "exploitability"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"meta_strategy": "nahs"}, "no meta-strategy is called 'nahs'.*nash"),
        ({"iterations": 0}, "iterations and episodes of at least 1, got 2 players, iterations=0"),
        ({"env": "marltrain/simple_spread_v3"}, "expected a game of 2 players.*got 3 players"),
    ],
)
def test_what_it_refuses(arguments, message):
    with pytest.raises(ConfigError, match=message):
        mt.psro("dqn", **{"env": ROCKS, "iterations": 1, **arguments})
