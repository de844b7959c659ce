"""What environments return from reset and step: the old interface, missing infos, rewards that are not one number."""

import re

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces
from pettingzoo import AECEnv, ParallelEnv
from pettingzoo.utils import parallel_to_aec
from pettingzoo.utils.wrappers import OrderEnforcingWrapper

import marltrain as mt
from marltrain.envs.python.returned import check_reset, check_step

ZERO, NAMES = np.zeros(2, np.float32), ["anna", "ben"]
FAULTY_STEP = 3


class Alone(gymnasium.Env):
    """Five steps; `faulty` replaces the result of step 3, `begins` that of the reset."""

    observation_space, action_space = spaces.Box(-9, 9, (2,), np.float32), spaces.Discrete(2)

    def __init__(self, faulty=None, begins=(ZERO, {}), render_mode=None):
        self.faulty, self.begins, self.t = faulty, begins, 0

    def reset(self, *, seed=None, options=None):
        self.t = 0
        return self.begins

    def step(self, action):
        self.t += 1
        if self.t == FAULTY_STEP and self.faulty is not None:
            return self.faulty
        return ZERO, 1.0, self.t == 5, False, {}


class Together(ParallelEnv):
    """Two players, five steps; `change(t, returned)` changes the five values of a step, `begins` those of the reset."""

    metadata, possible_agents, render_mode = {"name": "together", "is_parallelizable": True}, NAMES, None

    def __init__(self, change=lambda t, returned: returned, begins=None, render_mode=None):
        self.change, self.begins, self.agents, self.t = change, begins, list(NAMES), 0

    def observation_space(self, agent):
        return spaces.Box(-9, 9, (2,), np.float32)

    def action_space(self, agent):
        return spaces.Discrete(2)

    def reset(self, seed=None, options=None):
        self.t, self.agents = 0, list(NAMES)
        return (dict.fromkeys(NAMES, ZERO), {name: {} for name in NAMES}) if self.begins is None else self.begins

    def step(self, actions):
        self.t += 1
        over = self.t == 5
        self.agents = [] if over else list(NAMES)
        each = dict.fromkeys
        flags = each(NAMES, over), each(NAMES, False)
        infos: dict[str, dict[str, int]] = {name: {} for name in NAMES}
        returned = each(NAMES, ZERO), each(NAMES, 1.0), *flags, infos
        return self.change(self.t, returned)


class OwnLast(OrderEnforcingWrapper):
    """Read by its own `last`."""

    def last(self, observe=True):
        return super().last(observe)


class NoInfos(AECEnv):
    """A turn-based game whose infos are None."""

    metadata, possible_agents, render_mode = {"name": "no_infos"}, NAMES, None

    def observation_space(self, agent):
        return spaces.Box(-9, 9, (2,), np.float32)

    def action_space(self, agent):
        return spaces.Discrete(2)

    def observe(self, agent):
        return ZERO

    def reset(self, seed=None, options=None):
        self.agents, self.agent_selection, self.infos = list(NAMES), "anna", None
        self.rewards = self._cumulative_rewards = dict.fromkeys(NAMES, 0.0)
        self.terminations, self.truncations = dict.fromkeys(NAMES, False), dict.fromkeys(NAMES, False)

    def step(self, action):
        """No step is reached."""


def paid(value):
    """Give ben this reward in step 3."""
    return lambda t, returned: (
        (returned[0], {"anna": 1.0, "ben": value}, *returned[2:]) if t == FAULTY_STEP else returned
    )


def replaced(place, value):
    """Replace one of the five values of step 3."""
    return lambda t, returned: (*returned[:place], value, *returned[place + 1 :]) if t == FAULTY_STEP else returned


def played(env, players, **env_args):
    trainer = mt.DecentralizedTrainer(env, env_args, num_test_envs=1, seed=0, progress=False, run_dir=False)
    with pytest.raises(mt.EnvError) as caught:
        trainer.test([mt.RandomAgent() for _ in range(players)], episodes=1)
    return str(caught.value)


REWARDS = [
    (np.array([2.5]), "is array([2.5]), expected one real number. Return reward.item()"),
    (np.array([[2.5]], np.float32), "expected one real number. Return reward.item()"),
    (torch.tensor([2.5]), "is tensor([2.5000]), expected one real number. Return reward.item()"),
    (torch.tensor([1.0, 2.0]), "is tensor([1., 2.]), expected one real number. Add several objectives up"),
    (np.array([1.0, 2.0]), "is array([1., 2.]), expected one real number. Add several objectives up"),
    ([1.0, 2.0], "is [1.0, 2.0], expected one real number"),
    ({"speed": 1.0}, "is {'speed': 1.0}, expected one real number. Add several objectives up"),
]


@pytest.mark.parametrize(("reward", "said"), REWARDS)
def test_a_reward_that_is_not_one_number_names_player_step_and_remedy(reward, said):
    data = played(Alone, 1, faulty=(ZERO, reward, False, False, {}))
    assert "step 3: player 'player_0': reward" in data and said in data
    data = played(Together, 2, change=paid(reward))
    assert "step 3: player 'ben': reward" in data and said in data


@pytest.mark.parametrize(("last", "step"), [(False, 6), (True, 7)])
@pytest.mark.parametrize("reward", [np.array([1.0, 2.0]), np.array([2.5])])
def test_a_reward_of_several_numbers_in_a_game_by_turns(reward, last, step):
    """Two moves are a step of the parallel game: its step 3 ends with move 6, and `last` tells ben's after move 7."""

    def make():
        env = parallel_to_aec(Together(paid(reward)))
        return OwnLast(env) if last else env

    data = played(make, 2)
    assert f"step {step}: player 'ben': reward" in data and "expected one real number" in data


@pytest.mark.parametrize(
    ("begins", "said"),
    [
        (ZERO, "expected (observation, info): the info, a dict, is missing"),
        ((ZERO, None), "reset returned the info None, expected a dict"),
        ((ZERO, ZERO), "reset returned 2 values, expected (observation, info)"),
        ((ZERO, {}, 1), "reset returned 3 values, expected (observation, info)"),
        ({"a": 1, "b": 2}, "reset returned {'a': 1, 'b': 2}, expected (observation, info)"),
        (None, "reset returned None, expected (observation, info)"),
    ],
)
def test_an_old_reset_and_a_missing_info(begins, said):
    data = played(Alone, 1, begins=begins)
    assert "environment 'Alone' cannot be reset" in data and said in data


@pytest.mark.parametrize(
    ("begins", "said"),
    [
        (dict.fromkeys(NAMES, ZERO), "expected (observations, infos): the infos, a dict, is missing"),
        ((dict.fromkeys(NAMES, ZERO), None), "reset returned the infos None, expected a dict"),
        ((ZERO, {}), "observations are array([0., 0.], dtype=float32), expected a dict by player"),
    ],
)
def test_an_old_reset_of_several_players(begins, said):
    assert said in played(Together, 2, begins=begins)


@pytest.mark.parametrize(
    ("faulty", "said"),
    [
        (
            (ZERO, 1.0, True, {}),
            "step returned 4 values, expected 5: (observation, reward, terminated, truncated, info)",
        ),
        ((ZERO, 1.0, True), "step returned 3 values, expected (observation, reward, terminated, truncated, info)"),
        ("text", "step returned 'text', expected (observation, "),
        ((ZERO, 1.0, True, False, None), "step returned the info None, expected a dict: return {}"),
        ((ZERO, 1.0, np.array([True, False]), False, {}), "player 'player_0': terminated is array([ True, False])"),
    ],
)
def test_a_step_that_returns_other_values(faulty, said):
    data = played(Alone, 1, faulty=faulty)
    assert "step 3: " in data and said in data


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda t, returned: returned[:3] + returned[4:], "terminations (the task has ended) and truncations"),
        (replaced(4, None), "infos are None, expected a dict by player"),
        (replaced(1, 3.0), "rewards are 3.0, expected a dict by player"),
        (replaced(2, True), "terminations are True, expected a dict by player"),
        (
            replaced(2, {"anna": False, "ben": np.array([True, True])}),
            "player 'ben': terminated is array([ True, True])",
        ),
    ],
)
def test_a_step_of_several_players_that_returns_other_values(change, said):
    assert said in played(Together, 2, change=change)


def test_infos_of_a_game_by_turns_that_are_none():
    assert "environment 'NoInfos' cannot be reset: infos are None, expected a dict" in played(NoInfos, 2)


def test_valid_results_pass_unchanged():
    assert check_reset([ZERO, {}]) == (ZERO, {})
    assert check_step((ZERO, np.float32(2.5), np.True_, False, {}))[1:] == (2.5, True, False, {})


def test_a_reward_without_axes_is_a_number():
    trainer = mt.DecentralizedTrainer(
        Alone, {"faulty": (ZERO, np.array(2.5), False, False, {})}, num_test_envs=1, progress=False, run_dir=False
    )
    assert trainer.test([mt.RandomAgent()], episodes=1).returns.tolist() == [[4 * 1.0 + 2.5]]


@pytest.mark.parametrize("wrap", [mt.FrameStack, mt.Flatten])
def test_wrappers_of_marltrain_give_the_same_errors(wrap):
    class Images(Together):
        def observation_space(self, agent):
            return spaces.Box(0, 255, (8, 8, 1), np.uint8)

        def reset(self, seed=None, options=None):
            super().reset()
            return dict.fromkeys(NAMES, np.zeros((8, 8, 1), np.uint8))

    result = wrap(Images, 2) if wrap is mt.FrameStack else wrap(Images)
    assert "the infos, a dict, is missing" in played(result, 2)


def test_check_env_gives_the_same_error():
    with pytest.raises(mt.EnvError, match="step returned 4 values"):
        mt.check_env(Alone, {"faulty": (ZERO, 1.0, True, {})})


@pytest.mark.parametrize(
    ("env", "error"),
    [
        (lambda: gymnasium.make_vec("CartPole-v1", num_envs=3), mt.EnvError),
        (lambda: gymnasium.wrappers.vector.RecordEpisodeStatistics(gymnasium.make_vec("CartPole-v1", 3)), mt.EnvError),
        (gymnasium.make_vec("CartPole-v1", num_envs=3), mt.ConfigError),
    ],
)
def test_a_vector_environment_is_refused_with_the_trainers_argument(env, error):
    said = "is a vector environment, of 3 environments: .* built with num_train_envs=16"
    with pytest.raises(error, match=said):
        mt.make_agents("dqn", env)
    with pytest.raises(error, match=re.escape("num_train_envs=16")):
        mt.DecentralizedTrainer(env, num_test_envs=1, run_dir=False, progress=False).test([mt.RandomAgent()], 1)
