"""Rollouts that were acted with earlier weights: V-trace by hand, in PPO and A2C, and switched off."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from gymnasium import spaces
from scipy import stats

import marltrain as mt
from marltrain.policies.algorithms.lagging import centered, ratio_metrics
from tests.policies.learner.test_gradient_step_priorities import WAYS, constants
from tests.policies.some_batches import VECTOR, some_rollout

TWO = spaces.Discrete(2)
COMMON: dict[str, Any] = {
    "seed": 0, "learning_rate": 0.0, "minibatches": 1, "gae_lambda": 1.0,
}  # fmt: skip
RATIOS = np.array([2.0, 0.625, 5.0])


def measured(kind: Any, *, lag: float | None = 1.0, **settings: Any) -> dict[str, float]:
    """The metrics of an update: the policy gives both actions 1/2, the critic 1; those that acted 1/4, 4/5 and 1/10."""
    agent: Any = kind(VECTOR, TWO, network=mt.MLP((4,)), **{**COMMON, "normalize_advantage": False, **settings})
    constants(agent, {"actor": [0.0, 0.0], "critic": 1.0})
    batch = some_rollout(np.random.default_rng(0), VECTOR, TWO, [3])
    given = {"reward": [1, 2, -3], "discount": [0.5, 0.5, 0], "cut": [0, 0, 1], "boot": [-1, -1, 0]}
    for name, values in given.items():
        setattr(batch, name, np.array([values]).astype(getattr(batch, name).dtype))
    batch.extras["log_prob"] = np.log(0.5 / RATIOS[None]).astype(np.float32)
    batch.lag = None if lag is None else np.full((1, 3), lag, np.float32)
    result = agent.learner_.update(batch, learn=np.ones(1, bool), batch_size=3)
    return {name: float(values[0]) for name, values in result.items()}


def vtrace(limit: float, by_hand: list[float]) -> tuple[np.ndarray, np.ndarray]:
    """Targets v and advantages r + gamma v' - V by Espeholt et al. 2018, equation 1, with V = 1 and equal limits.

    Limits of 1: v_2 = 1 - 4, v_1 = 1 + 5/8 * 1.5 + 1/2 * 5/8 (v_2 - 1), v_0 = 1 + 1 * 0.5 + 1/2 * 1 (v_1 - 1).
    Limits of 2: v_2 = 1 - 2 * 4, v_1 as before, v_0 = 1 + 2 * 0.5 + 1/2 * 2 (v_1 - 1).
    """
    delta, discount, c = np.array([0.5, 1.5, -4.0]), np.array([0.5, 0.5, 0.0]), np.minimum(RATIOS, limit)
    target = np.array([
        1.0 + sum(np.prod(discount[s:t]) * np.prod(c[s:t]) * c[t] * delta[t] for t in range(s, 3)) for s in range(3)
    ])  # fmt: skip
    np.testing.assert_allclose(target, by_hand)
    return target, np.array([1.0 + 0.5 * target[1], 2.0 + 0.5 * target[2], -3.0]) - 1.0


ONE, TWICE = (1.0, [1.34375, 0.6875, -3.0]), (2.0, [0.4375, -0.5625, -7.0])
"""Limits, and the targets that follow."""


@pytest.mark.parametrize(("backend", "jit_compile"), WAYS)
def test_ppo_by_hand(backend, jit_compile):
    """Clipping is around the present policy. Ratios begin at 1, and the objective is 2 A_0, 5/8 A_1 and 2 A_2."""
    found = measured(mt.PPO, epochs=1, lag_kl=1.0, backend=backend, jit_compile=jit_compile)
    target, advantage = vtrace(*TWICE)
    assert found["loss/actor"] == pytest.approx(-(np.array([2.0, 0.625, 2.0]) * advantage).mean(), rel=1e-4)
    assert found["approx_kl"] == pytest.approx(0.0, abs=1e-6)
    assert found["loss/critic"] == pytest.approx(0.5 * np.square(target - 1.0).mean(), rel=1e-4)
    assert found["ratio_mean"] == pytest.approx(RATIOS.mean(), rel=1e-5)
    assert found["ratio_variance"] == pytest.approx(RATIOS.var(), rel=1e-5)


@pytest.mark.parametrize(("backend", "jit_compile"), WAYS)
def test_ppo_far_from_the_policy_that_acted_by_hand(backend, jit_compile):
    """Clipping is around sqrt(pi mu) / Z: half the mean of the squared log-ratios is four times `lag_kl`.

    Z is the mean of sqrt(2), sqrt(5/8), sqrt(5), 1.48. So c / mu is sqrt(2) / Z = 0.96, 0.53, 1.51, and pi / c is
    sqrt(2) Z = 2.09, 1.17, 3.31. No ratio is below 0.8 and all advantages are negative: clip=0.2 changes nothing, and
    the objective is c / mu times pi / c, which is 2 A_0, 5/8 A_1 and 5 A_2.
    """
    lag_kl = np.square(np.log(RATIOS)).mean() / 8
    found = measured(mt.PPO, epochs=1, lag_kl=lag_kl, clip=0.2, backend=backend, jit_compile=jit_compile)
    target, advantage = vtrace(*TWICE)
    assert (advantage < 0).all()
    assert found["loss/actor"] == pytest.approx(-(RATIOS * advantage).mean(), rel=1e-4)
    assert found["loss/critic"] == pytest.approx(0.5 * np.square(target - 1.0).mean(), rel=1e-4)
    assert found["ratio_mean"] == pytest.approx(RATIOS.mean(), rel=1e-5)


def test_the_policy_around_which_ppo_clips():
    """The divergence of the first agent is 0.5 * (1 + 4) / 2 = 1.25 without the padding, that of the second is 0.

    With beta = 1 the policy is the present one. With beta = 1/2, the ratios of the mixture to the policy that acted are
    e^0.5 and e^-1, whose mean Z is left out; with beta = 0 they are 1.
    """
    log_ratio, weight = np.array([[1.0, -2.0, 9.0], [0.0, 0.0, 0.0]]), np.array([[1.0, 1, 0], [1, 1, 1]])
    z = (np.exp(0.5) + np.exp(-1.0)) / 2
    for most, beta, log_z in ((5.0, 1.0, 0), (1.25, 1.0, 0), (0.3125, 0.5, np.log(z)), (0.0, 0.0, 0), (np.inf, 1.0, 0)):
        result = centered(log_ratio, weight, np.array([[most], [most]]))
        assert result.dtype == np.float32
        np.testing.assert_allclose(result, beta * log_ratio - [[log_z], [0.0]], rtol=1e-6)


@pytest.mark.parametrize("divergence", [0.02, 0.5, 2.0, 5.0, 50.0])
def test_the_ratios_of_that_policy_to_the_one_that_acted_have_the_mean_1(divergence):
    """Normal policies: log pi - log mu = s x - s^2 / 2, with rows of weights 0, 1 and 2, and two agents."""
    s, x = np.sqrt(2 * divergence), stats.norm.ppf((np.arange(5_000) + 0.5) / 5_000)
    log_ratio = np.stack([np.append(s * x - s * s / 2, [700.0, -700.0]), np.append(-s * x - s * s / 2, [-9.0, 9.0])])
    weight = np.append(np.tile([1.0, 2.0], 2_500), [0.0, 0.0])[None].repeat(2, 0).astype(np.float32)
    result = centered(log_ratio.astype(np.float32), weight, np.array([[0.1], [0.05]])).astype(np.float64)[:, :5_000]
    means = (weight[:, :5_000] * np.exp(result)).sum(1) / weight.sum(1)
    np.testing.assert_allclose(means, 1.0, atol=2e-3)


def test_an_outlier_and_an_agent_without_rows_give_finite_numbers():
    """beta = sqrt(0.1 / (0.5 * 1e6 / 4)); the outlier's ratio exp(beta * 1000) outweighs the three of 1."""
    log_ratio, weight = np.array([[1_000.0, 0, 0, 0], [5, 5, 5, 5]]), np.array([[1.0, 1, 1, 1], [0, 0, 0, 0]])
    result = centered(log_ratio, weight, np.full((2, 1), 0.1))
    size = 1_000 * np.sqrt(0.1 / 125_000)
    z = (np.exp(size) + 3) / 4
    np.testing.assert_allclose(result[0], np.array([size, 0, 0, 0]) - np.log(z), rtol=1e-6)
    assert np.isfinite(result).all()


@pytest.mark.filterwarnings("ignore:.torch.jit:DeprecationWarning")  # torch's compiler warns of torch's own
@pytest.mark.filterwarnings("ignore:.*autograd.function.Function:DeprecationWarning")
@pytest.mark.parametrize(("backend", "jit_compile"), WAYS)
def test_a2c_by_hand(backend, jit_compile):
    """The policy gradient is min(1, ratio) A grad log pi, and log pi = -log 2."""
    found = measured(mt.A2C, backend=backend, jit_compile=jit_compile)
    target, advantage = vtrace(*ONE)
    assert found["loss/actor"] == pytest.approx(np.log(2) * (np.minimum(RATIOS, 1.0) * advantage).mean(), rel=1e-4)
    assert found["loss/critic"] == pytest.approx(0.5 * np.square(target - 1.0).mean(), rel=1e-4)


@pytest.mark.parametrize("backend", ["torch", "tensorflow"])
def test_a2c_normalizes_advantages_before_it_multiplies_by_the_ratios(backend):
    found = measured(mt.A2C, backend=backend, normalize_advantage=True)
    _, advantage = vtrace(*ONE)
    normalized = (advantage - advantage.mean()) / advantage.std()
    assert found["loss/actor"] == pytest.approx(np.log(2) * (np.minimum(RATIOS, 1.0) * normalized).mean(), rel=1e-4)


def test_ratio_metrics_are_finite_and_those_of_new_rows():
    result = ratio_metrics(np.array([[np.log(2.0), 0.0, 800.0], [800.0, 0.0, 0.0]]), np.array([[1.0, 1, 0], [1, 0, 0]]))
    np.testing.assert_allclose(result["ratio_mean"], [1.5, np.exp(20.0)])
    np.testing.assert_allclose(result["ratio_variance"], [0.25, 0.0])


@pytest.mark.parametrize(("kind", "settings"), [(mt.PPO, {"epochs": 1}), (mt.A2C, {})])
def test_without_correction_and_without_lag_the_losses_are_the_usual_ones(kind, settings):
    usual, off = measured(kind, lag=None, **settings), measured(kind, lag_correction=False, **settings)
    assert off == usual | {"ratio_mean": off["ratio_mean"], "ratio_variance": off["ratio_variance"]}
    assert "ratio_variance" not in usual and off["ratio_variance"] == pytest.approx(RATIOS.var(), rel=1e-5)
    assert usual["loss/actor"] != pytest.approx(measured(kind, **settings)["loss/actor"], rel=0.01)
