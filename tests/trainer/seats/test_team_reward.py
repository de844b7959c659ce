"""Team rewards: one for all, or one for each team; teams and functions that do not fit."""

from __future__ import annotations

import numpy as np
import pytest

import marltrain as mt
from marltrain.trainer.seats.team_reward import TeamRewards, try_team_reward
from tests.toys import Identity
from tests.trainer.running import ppo, trainer

NAMES = ("good_0", "bad_0", "good_1", "bad_1", "judge")
REWARDS = np.array([[1, 2], [3, 5], [7, 11], [13, 17], [19, 23]], np.float32)


def test_each_team_has_the_mean_of_its_rewards_and_others_their_own():
    result = TeamRewards({"good": ["good_1", "good_0"], "bad": ["bad_*"]}, NAMES)(REWARDS)
    assert result.tolist() == [[4, 6.5], [8, 11], [4, 6.5], [8, 11], [19, 23]]
    assert REWARDS[0].tolist() == [1, 2]


@pytest.mark.parametrize(
    ("team_reward", "expected"),
    [
        ("mean", [[4, 6.5], [8, 11]]),
        ("sum", [[8, 13], [16, 22]]),
        ({"both": ["*"]}, [[4, 6.5], [8, 11]]),
        (lambda rewards: rewards[1] - rewards[0], [[6, 9], [10, 12]]),
    ],
)
def test_the_copies_of_a_population_have_teams_of_their_own(team_reward, expected):
    """Player p of copy n has the place 2 p + n: (1, 2) and (7, 11) are those of copy 0."""
    result = TeamRewards(team_reward, ("one", "other"), copies=2)(REWARDS[:4])
    assert result.tolist() == [*expected, *expected] and result.dtype == np.float32


def test_the_mean_of_one_team_of_all_is_the_mean_reward():
    results = [
        trainer(steps_per_train=24, team_reward=given).train(agents := ppo(), [1, 1], plot=False) and agents
        for given in ("mean", {"all": ["player_*"]})
    ]
    for one, other in zip(*results, strict=True):
        mine, theirs = one.state().arrays, other.state().arrays
        assert all((mine[name] == theirs[name]).all() for name in mine)


@pytest.mark.parametrize(
    ("teams", "told"),
    [
        ({"a": []}, r"team 'a' must be a list of at least one player, got \[\]"),
        ({"a": "player_0"}, "team 'a' must be a list of at least one player, got 'player_0'"),
        ({"a": ["player_7"]}, r"team 'a' names 'player_7', which matches no player\. Did you mean"),
        ({"a": [3]}, "team 'a' names 3, which matches no player"),
        ({"a": ["player_0"], "b": ["player_*"]}, "player 'player_0' is in the teams 'a' and 'b'"),
    ],
)
def test_wrong_teams(teams, told):
    with pytest.raises(mt.ConfigError, match=told):
        trainer(team_reward=teams).train(ppo(), [1, 1], plot=False)


@pytest.mark.parametrize("joint", [print, lambda rewards: rewards, lambda rewards: "3"])
def test_team_reward_without_a_number_is_refused_before_training(joint):
    result = mt.DecentralizedTrainer(Identity, team_reward=joint, progress=False)
    with pytest.raises(mt.ConfigError, match="team_reward must return one number for rewards"):
        result.train(mt.make_agents("ppo", Identity, seed=0), [1, 1])


@pytest.mark.parametrize("joint", ["mean", None, np.mean, lambda r: r.mean() / r.std(), lambda r: 1 // int(r.sum())])
def test_team_reward_may_fail_for_zero_rewards(joint):
    try_team_reward(joint, ["a", "b"])


@pytest.mark.parametrize("joint", [lambda r: r["agent_0"], lambda r: r.reward, lambda r: r[2], lambda r: r + "a"])
def test_team_reward_that_reads_something_else_than_an_array_is_refused(joint):
    with pytest.raises(mt.ConfigError, match="called with an array of the rewards of a, b, in this order, and raised "):
        try_team_reward(joint, ["a", "b"])


@pytest.mark.parametrize("joint", [lambda r: None, lambda r: r, lambda r: float("nan")])
def test_team_reward_must_be_one_finite_number(joint):
    with pytest.raises(mt.EnvError, match="team_reward must return one finite number"):
        TeamRewards(joint, ["a", "b"])(np.ones((2, 3), np.float32))
