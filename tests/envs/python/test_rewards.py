"""Rewards that are one real number, and those that are not, in environments of the three interfaces."""

from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from pettingzoo.utils import BaseWrapper

from marltrain.core.errors import EnvError
from marltrain.envs import DummyVectorEnv, resolve
from marltrain.envs.python.rewards import check_reward, is_number
from tests.envs.driving import act, run_seed
from tests.toys import Crowd, Relay

WRONG = [
    np.array([1.0, 2.0]), np.array([1.0]), [1.0], (), {"a": 1.0}, None, 1j, np.complex64(1 + 2j),
    np.timedelta64(5, "s"), np.datetime64(5, "s"), np.array("7"), np.array(5, object), np.array(1 + 2j),
]  # fmt: skip


@pytest.mark.parametrize(
    "reward", [1, -0.5, True, np.float16(2), np.int8(3), np.bool_(True), np.array(2.5), np.array(3)]
)
def test_one_real_number_of_any_type_is_a_reward(reward):
    check_reward("ann", reward)
    assert is_number(reward)


@pytest.mark.parametrize("reward", WRONG, ids=repr)
def test_other_values_are_refused(reward):
    assert not is_number(reward)
    with pytest.raises(
        EnvError,
        match=r"player 'ann': reward is .*, expected one real number\. (Add several objectives up|Return reward)",
    ):
        check_reward("ann", reward)


class Alone(gymnasium.Env):
    observation_space, action_space = spaces.Box(0, 1, (1,)), spaces.Discrete(2)

    def __init__(self, reward):
        self.reward = reward

    def reset(self, *, seed=None, options=None):
        self.t = 0
        return np.zeros(1, np.float32), {}

    def step(self, action):
        self.t += 1
        return np.zeros(1, np.float32), self.reward if self.t == 2 else 1.0, False, False, {}


class Together(Crowd):
    def __init__(self, reward):
        super().__init__()
        self.reward = reward

    def step(self, actions):
        seen, rewards, *rest = super().step(actions)
        return seen, {**rewards, "blue": self.reward} if self.t == 2 else rewards, *rest


class InTurn(Relay):
    def __init__(self, reward):
        super().__init__()
        self.reward = reward

    def step(self, action):
        super().step(action)
        if self.t == 2:
            self._cumulative_rewards["cat"] = self.reward


class Told(BaseWrapper):
    """A `last()` of its own."""

    def __init__(self, reward):
        super().__init__(Relay())
        self.reward = reward

    def last(self, observe=True):
        seen, reward, *rest = super().last(observe)
        return seen, self.reward if self.unwrapped.t == 2 else reward, *rest


@pytest.mark.parametrize(
    ("env", "player"),
    [(Alone, "player_0"), (Together, "blue"), (InTurn, "cat"), (Told, "cat")],
    ids=lambda given: str(given),
)
@pytest.mark.parametrize("reward", [np.array([1.0, 2.0]), np.complex64(1 + 2j), np.timedelta64(5, "s")], ids=repr)
def test_a_reward_that_is_no_number_is_a_fault(env, player, reward):
    vector: Any = DummyVectorEnv(resolve(env, {"reward": reward}), 1)
    vector.reset(run_seed([0]))
    vector.step(act(vector.spec))
    with pytest.raises(EnvError, match=f"step 2: player '{player}': reward is .*expected one real number"):
        vector.step(act(vector.spec))
