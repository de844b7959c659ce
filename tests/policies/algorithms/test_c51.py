"""C51: its projection and losses worked out by hand. (Against tianshou's, and with noise: test_q_learning.py.)"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

import marltrain as mt
from marltrain.core.errors import ConfigError, SpecError
from marltrain.policies.backends import numpy_ops
from tests.policies.backends.both import BOTH
from tests.policies.some_batches import VECTOR, some_transitions

THREE = spaces.Discrete(3)
FOUR_ATOMS, P4 = {"v_min": -1.0, "v_max": 2.0, "atoms": 4}, [0.1, 0.2, 0.3, 0.4]  # z = -1, 0, 1, 2
THREE_ATOMS, P3 = {"v_min": -1.0, "v_max": 2.0, "atoms": 3}, [0.2, 0.3, 0.5]  # z = -1, 0.5, 2


@pytest.mark.parametrize(
    ("settings", "p", "reward", "discount", "expected"),
    [
        (FOUR_ATOMS, P4, 0.0, 1.0, P4),  # at the atoms themselves
        (FOUR_ATOMS, P4, 1.0, 1.0, [0.0, 0.1, 0.2, 0.7]),  # at the next ones, and beyond the end
        (FOUR_ATOMS, P4, 0.25, 1.0, [0.075, 0.175, 0.275, 0.475]),  # -0.75, 0.25, 1.25 and, clipped, 2
        (FOUR_ATOMS, P4, 1.0, 0.5, [0.0, 0.05, 0.4, 0.55]),  # 0.5, 1, 1.5, 2
        (FOUR_ATOMS, P4, 0.5, 0.0, [0.0, 0.5, 0.5, 0.0]),  # terminated
        (FOUR_ATOMS, P4, 1.0, 0.0, [0.0, 0.0, 1.0, 0.0]),
        (FOUR_ATOMS, P4, 5.0, 0.9, [0.0, 0.0, 0.0, 1.0]),
        (FOUR_ATOMS, P4, -9.0, 0.9, [1.0, 0.0, 0.0, 0.0]),
        (THREE_ATOMS, P3, 0.3, 0.9, [0.2 * 11 / 15, 0.2 * 4 / 15 + 0.25, 0.05 + 0.5]),  # -0.6, 0.75, 2.1
    ],
)
def test_the_projection_by_hand(settings, p, reward, discount, expected):
    algorithm: Any = mt.C51(VECTOR, THREE, seed=0, **settings).algorithm
    given = [np.array(values, np.float32) for values in ([[reward] * 2], [[discount] * 2], [[p] * 2])]
    result = [algorithm.projected(numpy_ops, *given)]
    result += [b.numpy(algorithm.projected(b.ops, *map(b.tensor, given))) for b in BOTH.values()]
    for one in result:
        np.testing.assert_allclose(one, [[expected] * 2], atol=1e-6)


def constant_agent(q: list[float], target_q: list[float], **settings: Any) -> mt.C51:
    """An agent of the atoms 0 and 1 that gives atom 1 these probabilities, for every observation."""
    agent = mt.C51(VECTOR, THREE, seed=0, learning_rate=0.0, v_min=0.0, v_max=1.0, atoms=2, **settings)
    state = agent.learner_.export(0)
    for name, values in (("q", q), ("target_q", target_q)):
        state.arrays[f"net/{name}/head0.weight"][...] = 0.0
        logits = [part for p in values for part in (np.log(1 - p), np.log(p))]
        state.arrays[f"net/{name}/head0.bias"][:] = logits
    agent.learner_.load(0, state)
    return agent


@pytest.mark.parametrize(
    ("double", "legal", "worth"),
    [
        (False, [True, True, True], 0.8),  # the target's best
        (True, [True, True, True], 0.2),  # the online network's best is action 0
        (True, [False, True, True], 0.4),  # its best legal one is action 1
        (False, [True, True, False], 0.4),
    ],
)
def test_the_loss_by_hand(double, legal, worth):
    agent = constant_agent([0.6, 0.5, 0.3], [0.2, 0.4, 0.8], double=double)
    batch = some_transitions(np.random.default_rng(0), VECTOR, 3, 1, 2)
    batch.action[0], batch.reward[0], batch.discount[0] = [2, 0], [0.1, 0.7], [0.5, 0.0]
    batch.next_legal = np.array([[legal, legal]])
    metrics = agent.learner_.update(batch, learn=np.ones(1, bool), batch_size=2)
    one = (1 - worth) * 0.1 + worth * 0.6  # of atom 1: 0.1 + 0.5 * 0 and 0.1 + 0.5 * 1 are its shares
    first = -(1 - one) * np.log(0.7) - one * np.log(0.3)
    second = -0.3 * np.log(0.4) - 0.7 * np.log(0.6)
    assert metrics["loss/total"][0] == pytest.approx((first + second) / 2, rel=1e-5)
    assert metrics["q_mean"][0] == pytest.approx((0.3 + 0.6) / 2, rel=1e-5)


def test_it_acts_by_the_means_of_its_distributions():
    """Means 0.9 and 1: the most probable value of action 0 is higher."""
    agent = mt.C51(VECTOR, spaces.Discrete(2), seed=0, v_min=0.0, v_max=3.0, atoms=4, network=mt.MLP(()), epsilon=0.5)
    state = agent.learner_.export(0)
    state.arrays["net/q/head0.weight"][...] = 0.0
    state.arrays["net/q/head0.bias"][:] = np.log([0.7 - 2e-6, 1e-6, 1e-6, 0.3, 0.25, 0.5, 0.25 - 1e-6, 1e-6])
    agent.learner_.load(0, state)
    obs = np.zeros((4000, 5), np.float32)
    assert (agent.act(obs) == 1).all()
    assert (agent.act(obs[:9], np.array([[True, False]] * 9)) == 0).all()
    assert abs(agent.act(obs, explore=True).mean() - 0.75) < 0.035


def test_dueling_logits_by_hand():
    algorithm: Any = mt.C51(VECTOR, spaces.Discrete(2), seed=0, v_min=0.0, v_max=1.0, atoms=3, dueling=True).algorithm
    value, advantage = np.array([[[1.0, 2.0, 3.0]]], np.float32), np.array([[[1, 0, 4, 3, 2, 0]]], np.float32)
    expected = [[[[0.0, 1.0, 5.0], [2.0, 3.0, 1.0]]]]
    assert algorithm.logits(numpy_ops, [value, advantage]).tolist() == expected
    for b in BOTH.values():
        assert b.numpy(algorithm.logits(b.ops, [b.tensor(value), b.tensor(advantage)])).tolist() == expected


@pytest.mark.parametrize("given", [{"v_min": 3.0, "v_max": 3.0}, {"v_min": 11.0}])
def test_wrong_bounds_are_refused(given):
    with pytest.raises(ConfigError, match="v_min must be below v_max, got v_min="):
        mt.C51(VECTOR, THREE, **given)


def test_other_actions_are_refused():
    with pytest.raises(SpecError, match="C51 needs a Discrete action space, got Box"):
        mt.C51(VECTOR, spaces.Box(-1, 1, (2,)))
