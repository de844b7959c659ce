"""Random numbers of native games: splitmix64, distributions, and the seeds of episodes."""

import numpy as np
import pytest

from marltrain.core.seeds import child_seed
from marltrain.envs.native import chance
from marltrain.envs.native.vector import NativeVectorEnv
from marltrain.jit.compiling import compiled

STATE = np.dtype(
    [("random", "u8"), ("seed", "i8"), ("queue", "i8"), ("queued", "i8"), ("branch", "u4"), ("stir", "u4")]
)


@compiled
def uniform(s, low, high):
    return chance.uniform(s, low, high)


@compiled
def normal(s):
    return chance.normal(s)


@compiled
def integer(s, n):
    return chance.integer(s, n)


@compiled
def choice(s, weights):
    return chance.choice(s, weights)


@compiled
def seed(s, number):
    chance.seed(s, number)


def record(state: int = 0):
    s = np.zeros(1, STATE)
    s["random"] = state
    return s[0]


def test_the_generator_is_splitmix64():
    """The first outputs from state 0, as published with the algorithm."""
    s = record(0)
    wanted = [0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4, 0x06C45D188009454F]
    assert [uniform(s, 0.0, 1.0) for _ in range(3)] == [(number >> 11) / 2**53 for number in wanted]


def test_distributions():
    s, n = record(1), 40_000
    even = np.array([uniform(s, -1.0, 3.0) for _ in range(n)])
    assert -1 <= even.min() < -0.99 and 2.99 < even.max() < 3
    assert abs(even.mean() - 1) < 0.03 and abs(even.var() - 16 / 12) < 0.03
    bell = np.array([normal(s) for _ in range(n)])
    assert abs(bell.mean()) < 0.03 and abs(bell.var() - 1) < 0.03 and abs((bell**4).mean() - 3) < 0.2
    whole = np.bincount([integer(s, 3) for _ in range(n)], minlength=3) / n
    assert whole.shape == (3,) and abs(whole - 1 / 3).max() < 0.01
    weights = np.array([1.0, 0.0, 3.0])
    chosen = np.bincount([choice(s, weights) for _ in range(n)], minlength=3) / n
    assert chosen[1] == 0 and abs(chosen[0] - 0.25) < 0.01


@pytest.mark.parametrize("seed", [0, 1, 2**31 - 2, 2**32, 2**70 + 5])
@pytest.mark.parametrize("role", ["train", "test"])
def test_episode_seeds_are_those_of_every_vector_environment(seed, role):
    vector = NativeVectorEnv("marltrain/CartPole-v1", 3, {"max_episode_steps": 1}, role=role)
    vector.reset(seed)
    for episode in range(4):
        found = vector.batch.records["seed"].tolist()
        assert found == [child_seed(seed, "episode", role, e, episode) for e in range(3)]
        vector.step((np.zeros((1, 3), np.int64),))


def test_seeds_that_differ_by_one_start_unrelated_streams():
    s, first = record(), []
    for number in range(2000):
        seed(s, number)
        first.append([uniform(s, 0.0, 1.0) for _ in range(2)])
    pairs = np.array(first)
    assert abs(np.corrcoef(pairs[:-1, 0], pairs[1:, 0])[0, 1]) < 0.07
    assert abs(np.corrcoef(pairs[:-1, 1], pairs[1:, 0])[0, 1]) < 0.07
    assert abs(pairs.mean() - 0.5) < 0.02
