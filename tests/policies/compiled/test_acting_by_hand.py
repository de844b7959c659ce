"""How compiled code chooses an action, worked out by hand."""

import math
from typing import Any, ClassVar

import numpy as np
import pytest
from gymnasium import spaces

from marltrain.core.layout import Layout
from marltrain.jit.views import address_of
from marltrain.policies.batches.batch import ActInputs
from marltrain.policies.compiled.acting import CompiledActing, best, best_sum, is_legal, logsumexp
from marltrain.policies.distributions import Gaussian
from marltrain.policies.interface.algorithm import CompiledForm
from marltrain.policies.networks.specs import MLP, Head, NetworkDefinition, Plan

SEES = spaces.Box(-9, 9, (2,), np.float32)


class Stack:
    """K networks whose weights [K, N] are given, laid out in the order of the plan."""

    def __init__(self, weights, hidden=(), choices=3, activation="relu", free=0):
        self.plan = Plan(NetworkDefinition(MLP(hidden, activation), [Head(choices, free=free)], Layout(SEES)))
        self.weights = np.array(weights, np.float32)
        self.num_agents = len(weights)

    def numbers(self):
        return self.weights


def stack(*given, **settings) -> Any:
    return Stack(*given, **settings)


IDENTITY = [1, 0, 0, 0, 1, 0, 0, 0, 0]
"""Of an observation (a, b): a, b and 0. Weights [2, 3], then three biases."""
SWAPPED = [0, 1, 0, 1, 0, 0, 0, 0, 0.5]
"""b, a and 0.5."""


def of(values, dtype=np.float32):
    return np.array(values, dtype)


@pytest.mark.parametrize(
    ("values", "mask", "expected"),
    [
        ([1, 3, 2], None, 1),
        ([3, 1, 3], None, 0),  # the first of equals
        ([-5, -3, -4], None, 1),
        ([1, 3, 2], [1, 0, 1], 2),
        ([1, 3, 2], [1, 0, 0], 0),
        ([9, 3, 3], [0, 1, 1], 1),
        ([-1e30, -1e31], [0, 1], 1),
        ([7], None, 0),
        ([1, 3, 2], [0, 0, 0], 0),  # nothing is legal: of a row without a turn anything will do
    ],
)
def test_the_best_legal_action(values, mask, expected):
    legal = None if mask is None else of(mask, bool)
    at = 0 if legal is None else address_of(legal)
    assert best(of(values), at) == expected
    assert best_sum(of(values) - 1, np.ones(len(values), np.float32), at) == expected


def test_the_highest_sum_is_of_both():
    assert best_sum(of([1, 2, 3]), of([2.5, 0, 0]), 0) == 0
    assert best_sum(of([1, 2, 3]), of([2, 1, 0]), 0) == 0
    mask = of([0, 1, 1], bool)
    assert best_sum(of([1, 2, 3]), of([9, 1.5, 0]), address_of(mask)) == 1


def test_legal_and_logsumexp():
    mask = of([0, 1], bool)
    assert [is_legal(address_of(mask), i) for i in range(2)] == [False, True]
    assert is_legal(0, 5)
    assert logsumexp(of([1, 2, 3]), 0) == pytest.approx(math.log(math.e + math.e**2 + math.e**3), abs=1e-6)
    assert logsumexp(of([5, 2]), address_of(mask)) == pytest.approx(2, abs=1e-7)
    assert logsumexp(of([1000, 999]), 0) == pytest.approx(1000 + math.log1p(math.exp(-1)), abs=1e-4)
    assert logsumexp(of([-1000]), 0) == -1000


class TestGreedy:
    """Two agents: one values an observation (a, b) by a, b and 0, the other by b, a and 0.5."""

    def act(self, obs, legal=None, coin=0.5, explore=False, epsilon=(0.5, 0.5)):
        """Noise is highest for the last choice of the first agent, and for the second choice of the other one."""
        acting = CompiledActing(CompiledForm("q", "epsilon_greedy"), stack([IDENTITY, SWAPPED]))
        rows = len(obs[0])
        choice = np.tile(of([[[[0.1, 0.2, 0.9]]], [[[0.1, 0.9, 0.2]]]]), (1, 1, rows, 1))
        noise = {"coin": np.full((2, 1, rows), coin, np.float32), "choice": choice}
        on = np.broadcast_to(np.asarray(explore), (2, rows))
        acted = acting.act(ActInputs(of(obs), legal, on), noise, 0, {"epsilon": of(epsilon)[:, None]})
        assert acted.extras == {}
        return acted.action.tolist()

    def test_the_best_value(self):
        obs = [[[1, 2], [3, 1], [-1, -2]], [[1, 2], [3, 1], [-1, 0.4]]]
        assert self.act(obs) == [[1, 0, 2], [0, 1, 2]]

    def test_the_best_legal_value(self):
        obs = [[[1, 2]], [[1, 2]]]
        assert self.act(obs, of([[[1, 0, 1]], [[0, 0, 1]]], bool)) == [[0], [2]]

    def test_the_coin_is_below_epsilon(self):
        """A coin of 0 explores with any epsilon but 0; one of 0.5 does with 0.6, and not with 0.5."""
        obs = [[[1, 2]] * 2] * 2
        assert self.act(obs, explore=True, epsilon=(0.6, 0.5)) == [[2, 2], [0, 0]]
        assert self.act(obs, explore=True, epsilon=(0.0, 1.0), coin=0.0) == [[1, 1], [1, 1]]
        assert self.act(obs, explore=True, epsilon=(0.1, 0.0), coin=0.0) == [[2, 2], [0, 0]]

    def test_only_where_it_explores_and_only_what_is_legal(self):
        obs = [[[1, 2]] * 2] * 2
        on = [[True, False], [False, True]]
        assert self.act(obs, explore=on, epsilon=(1, 1)) == [[2, 1], [0, 1]]
        legal = of([[[1, 1, 0], [1, 1, 0]], [[1, 0, 1], [1, 0, 1]]], bool)
        assert self.act(obs, legal, explore=True, epsilon=(1, 1)) == [[1, 1], [2, 2]]


class TestSample:
    """Logits a, b and 0."""

    def act(self, obs, noise, explore, legal=None):
        acting = CompiledActing(CompiledForm("actor", "categorical"), stack([IDENTITY]))
        mask = None if legal is None else of([legal], bool)
        acted = acting.act(ActInputs(of([obs]), mask, of([explore], bool)), {"sample": of([[noise]])}, 0, {})
        return acted.action[0].tolist(), acted.extras["log_prob"][0]

    def test_the_mode_or_the_highest_sum(self):
        action, log_prob = self.act([[1, 2], [1, 2], [1, 2]], [[5, 0, 0]] * 3, [False, True, False])
        total = math.log(math.e + math.e**2 + 1)
        assert action == [1, 0, 1]
        np.testing.assert_allclose(log_prob, [2 - total, 1 - total, 2 - total], atol=1e-6)

    def test_what_is_not_legal_has_no_probability(self):
        action, log_prob = self.act([[1, 2], [1, 2]], [[0, 9, 0]] * 2, [True, False], legal=[[1, 0, 1], [0, 0, 1]])
        assert action == [0, 2]
        np.testing.assert_allclose(log_prob, [1 - math.log(math.e + 1), 0], atol=1e-6)


def test_hidden_layers_by_hand():
    """relu(a - b) and relu(b - a), then twice the first, the second plus 1, and 2 less both: weights [2, 2], [2, 3].

    For the five rows that gives (4, 1, 0), (0, 3, 0), (0, 1, 2), (0, 1.25, 1.75) and (0, 2, 1).
    """
    weights = [1, -1, -1, 1, 0, 0, 2, 0, -1, 0, 1, -1, 0, 1, 2]
    acting = CompiledActing(CompiledForm("q", "epsilon_greedy"), stack([weights], hidden=(2,)))
    obs = of([[[3, 1], [1, 3], [1, 1], [1, 1.25], [1, 2]]])
    noise = {"coin": np.ones((1, 1, 5), np.float32), "choice": np.zeros((1, 1, 5, 3), np.float32)}
    acted = acting.act(ActInputs(obs, None, np.ones((1, 5), bool)), noise, 0, {"epsilon": of([[0]])})
    assert acted.action.tolist() == [[0, 1, 2, 2, 1]]


class TestGaussian:
    """Means a and b with deviations 1 and 2; actions from -1 to 1 and from 0 to 4."""

    ACTIONS = Gaussian(spaces.Box(of([-1, 0]), of([1, 4])))
    WEIGHTS: ClassVar = [1, 0, 0, 1, 0, 0, 0, math.log(2)]

    def act(self, obs, noise, explore):
        form = CompiledForm("actor", "gaussian", actions=self.ACTIONS)
        acting = CompiledActing(form, stack([self.WEIGHTS], choices=2, free=2))
        acted = acting.act(ActInputs(of([obs]), None, of([explore], bool)), {"sample": of([[noise]])}, 0, {})
        assert acted.action.dtype == np.float32
        return acted.action[0], acted.extras["raw"][0], acted.extras["log_prob"][0]

    def test_the_mean_or_a_sample_in_units_within_the_bounds(self):
        action, raw, log_prob = self.act([[0.5, -0.25]] * 2, [[1, 0.5]] * 2, [False, True])
        np.testing.assert_allclose(raw, [[0.5, -0.25], [1.5, 0.75]], atol=1e-6)
        np.testing.assert_allclose(action, [[0.5, 1.5], [1.0, 3.5]], atol=1e-6)
        at_mean = -math.log(2) - math.log(2 * math.pi)
        np.testing.assert_allclose(log_prob, [at_mean, at_mean - 0.5 - 0.125], atol=1e-6)

    def test_an_action_that_is_not_a_number_stays_so(self):
        action, _, log_prob = self.act([[np.nan, 9.0]], [[0.0, 0.0]], [True])
        assert np.isnan(action[0]).all()
        assert np.isnan(log_prob[0])

    def test_a_form_without_the_actions_or_for_another_head_is_refused(self):
        with pytest.raises(TypeError, match=r"needs actions=.*got CompiledForm\(.*for Head\(width=2"):
            CompiledActing(CompiledForm("actor", "gaussian"), stack([self.WEIGHTS], choices=2, free=2))
        with pytest.raises(TypeError, match=r"Head\(width=3"):
            CompiledActing(CompiledForm("actor", "gaussian", actions=self.ACTIONS), stack([IDENTITY]))
