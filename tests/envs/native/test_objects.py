"""Native games as PettingZoo and Gymnasium objects: the suites of both, our own, and whole episodes by seed."""

import warnings

import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env as gymnasium_check
from pettingzoo.test import api_test, parallel_api_test, parallel_seed_test, seed_test

from marltrain.core.errors import ConfigError, EnvError
from marltrain.envs import check_env
from marltrain.envs.native import aec_env, gymnasium_env, parallel_env
from marltrain.envs.native.catalog import GAMES, find
from tests.tiers import rounds

BY_API = {api: [name for name in GAMES if find(name).api == api] for api in ("parallel", "turns", "gymnasium")}


@pytest.mark.parametrize("name", BY_API["parallel"])
@pytest.mark.filterwarnings("ignore")
def test_parallel_api(name):
    parallel_api_test(parallel_env(name), num_cycles=300)
    if find(name).legal is None:  # it plays illegal actions
        parallel_seed_test(lambda: parallel_env(name), num_cycles=100)


@pytest.mark.parametrize("name", BY_API["parallel"] + BY_API["turns"])
@pytest.mark.filterwarnings("ignore")
def test_aec_api(name):
    api_test(aec_env(name), num_cycles=300)
    seed_test(lambda: aec_env(name), num_cycles=100)


@pytest.mark.parametrize("name", BY_API["gymnasium"])
def test_gymnasium_api(name):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        gymnasium_check(gymnasium_env(name), skip_render_check=True)


@pytest.mark.parametrize("name", GAMES)
def test_our_own_suite_finds_no_problem(name):
    """Among other things: whole episodes by seed, in fresh objects and in used ones, every array compared."""
    report = check_env(f"marltrain/{name}", strict=False, resets=rounds(4, 60))
    assert report.ok, report
    assert report.pure and report.deterministic


def test_a_seed_fixes_all_episodes_that_follow():
    def four_starts(seed):
        env = parallel_env("simple_spread_v3")
        first = env.reset(seed=seed)[0]["agent_0"]
        return [first, *(env.reset()[0]["agent_0"] for _ in range(3))]

    one, other = four_starts(3), four_starts(3)
    assert np.array_equal(one, other)
    assert len({start.tobytes() for start in one}) == 4
    assert not np.array_equal(one, four_starts(4))


def test_observations_outlive_the_next_step():
    env = gymnasium_env("CartPole-v1")
    first, _ = env.reset(seed=0)
    kept = first.copy()
    env.step(1)
    assert np.array_equal(first, kept)


def test_an_illegal_move_loses_as_in_pettingzoo():
    env = aec_env("tictactoe_v3")
    env.reset(seed=0)
    env.step(4)
    env.step(4)
    assert env.terminations == {"player_1": True, "player_2": True}
    assert env._cumulative_rewards == {"player_1": 0, "player_2": -1.0}


def test_what_cannot_be_made_is_said():
    with pytest.raises(ConfigError, match=r"unknown native game 'tictactoe_v4'. Did you mean 'tictactoe_v3'\?"):
        aec_env("tictactoe_v4")
    with pytest.raises(ConfigError, match="its interface is 'turns'"):
        parallel_env("tictactoe_v3")
    with pytest.raises(EnvError, match="has no global state"):
        env = parallel_env("CartPole-v1")
        env.reset(seed=0)
        env.state()


def test_a_state_can_be_set_and_lasts_where_a_reset_leaves_it_alone():
    env = parallel_env("simple_tag_v3", curriculum=True)
    env.set_state({"stage": 1})
    for _ in range(2):
        env.reset(seed=0)
        assert (env.get_state()["stage"], env.get_state()["pace"]) == (1, 0.75)
    where = np.arange(12.0).reshape(6, 2) / 10
    env.set_state({"pos": where, "vel": np.zeros((4, 2))})
    seen = env.step(dict.fromkeys(env.agents, 0))[0]["agent_0"]
    np.testing.assert_array_equal(seen[2:4], where[3].astype(np.float32))
    with pytest.raises(ConfigError, match="has no field 'speed'"):
        env.set_state({"speed": 1})
    with pytest.raises(ConfigError, match=r"field 'pos': shape \(2,\), expected \(6, 2\)"):
        env.set_state({"pos": [0.0, 1.0]})


def test_a_turn_based_game_goes_on_from_a_state_even_after_its_end():
    env = aec_env("tictactoe_v3")
    env.reset(seed=0)
    for move in (0, 3, 1, 4):
        env.step(move)
    before = env.get_state()
    env.step(2)
    assert env.terminations == {"player_1": True, "player_2": True} and env.rewards["player_1"] == 1
    env.set_state(before)
    assert env.agents == ["player_1", "player_2"] and env.agent_selection == "player_1"
    assert env.terminations == {"player_1": False, "player_2": False} and env.last()[1] == 0
    assert env.last()[0]["action_mask"].tolist() == [0, 0, 1, 0, 0, 1, 1, 1, 1]
    env.step(8)
    assert env.agent_selection == "player_2"


def test_chance_can_be_told():
    env = gymnasium_env("CartPole-v1")
    env.set_chances([0.01, 0.02, 0.03, 0.04])
    np.testing.assert_array_equal(env.reset()[0], np.array([0.01, 0.02, 0.03, 0.04], np.float32))
    state = env.get_state()
    first = env.step(1)[0]
    env.set_state(state)
    np.testing.assert_array_equal(env.step(1)[0], first)
