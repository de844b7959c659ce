"""The rewards of goals are those of the outermost wrapper that defines compute_reward."""

from contextlib import ExitStack

import gymnasium
import numpy as np
import pytest
from gymnasium.wrappers import RecordEpisodeStatistics, TimeLimit

from marltrain.core.errors import ConfigError
from marltrain.envs import resolve
from marltrain.envs.goals import goal_reward
from tests.gymnasium_toys import BitFlipping

ACHIEVED, DESIRED = np.array([[0, 1], [1, 1]], np.float32), np.array([[0, 1], [0, 1]], np.float32)


class Times(gymnasium.Wrapper):
    def __init__(self, env, factor):
        super().__init__(env)
        self.factor = factor

    def compute_reward(self, *arguments):
        return self.factor * self.get_wrapper_attr("env").get_wrapper_attr("compute_reward")(*arguments)


def rewards(make):
    with ExitStack() as stack:
        return goal_reward(resolve(make), stack)(ACHIEVED, DESIRED, {}).tolist()


@pytest.mark.parametrize(
    ("make", "expected"),
    [
        (BitFlipping, -1),
        (lambda: TimeLimit(BitFlipping(), 3), -1),  # Gymnasium's wrappers forward no attributes
        (lambda: Times(BitFlipping(), 10), -10),
        (lambda: TimeLimit(RecordEpisodeStatistics(Times(TimeLimit(BitFlipping(), 3), 10)), 3), -10),
        (lambda: Times(TimeLimit(Times(BitFlipping(), 10), 3), 7), -70),
    ],
)
def test_by_hand(make, expected):
    assert rewards(make) == [0, expected]


class Without(gymnasium.Wrapper):
    compute_reward = None


def test_a_wrapper_may_take_the_function_away():
    with pytest.raises(ConfigError, match="has no compute_reward"):
        rewards(lambda: Without(BitFlipping()))
