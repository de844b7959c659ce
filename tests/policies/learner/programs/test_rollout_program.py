"""The gradients of PPO's loss by programs over the rows of a rollout, worked out by hand.

Each row's observation is a vector of its own, and the networks have no hidden layer: a row's gradient with respect to
its outputs is that of a row of weights, and a step of plain descent with rate 1 subtracts it.
"""

from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces

import marltrain as mt
from marltrain.policies.backends import make_backend
from marltrain.policies.learner.algorithm_learner import AlgorithmLearner
from marltrain.policies.learner.minibatches import Dealt
from marltrain.policies.learner.trained_team import ALONE

ROWS = 7
CHANCES = np.array([1, 2, 5]) / 8
ENTROPY = np.log(8) - (2 * np.log(2) + 5 * np.log(5)) / 8
TAKEN, RATIO, ADVANTAGE, SHARE, PULL = np.array([
    (0, 1.0, 3.0, 0.25, 0.75),
    (1, 1.5, 2.0, 0.125, 0),  # clipped high
    (2, 1.5, -2.0, 0.125, -0.375),  # beyond the bound and free: pessimistic
    (0, 0.5, -1.0, 0.25, 0),  # clipped low
    (1, 0.5, 4.0, 0.25, 0.5),  # below the bound and free
    (2, 1.125, 0.0, 0, 0),
    (2, 9.0, -1e6, 0, 0),  # padding
]).T  # fmt: skip
"""What was taken of chances 1/8, 1/4 and 5/8, bounds being 3/4 and 5/4; ratios times advantages times shares."""
STEP = PULL[:, None] * (CHANCES - np.eye(3)[np.int64(TAKEN)])
KL = 0.25 * (0.5 - np.log(1.5)) + 0.5 * (np.log(2) - 0.5)
VALUED, OLD, AIM, ERROR, PASSED = np.array([
    (2, 0, 1, 1, 1),  # the clipped value is nearer: the other counts
    (2, 0, 3, -2.5, 0),  # the clipped one is farther off, and passes nothing
    (-2, 0, -3, 2.5, 0),
    (-2, 0, -1, -1, -1),
    (0.25, 0, 1, -0.75, -0.75),  # not clipped
    (4, 4.25, 1, 3, 3),
    (5, -1e6, 1e6, -1e6, 0),  # padding
]).T  # fmt: skip


def steps_of(logits: Any, *, legal: Any = None, more: Any = None, **settings: Any) -> tuple[Any, Any, dict[str, Any]]:
    """Return what a step subtracts from the actor's and the critic's weights of the rows, and the metrics.

    Of two agents the second one learns from these rows, in an order of its own.  more: columns in place of these.
    """
    given = {"entropy_coef": 0.0, "value_clip": None, "normalize_advantage": False, **settings}
    agent: Any = mt.PPO(
        spaces.Box(-1, 1, (ROWS,), np.float32), spaces.Discrete(3), seed=0, device="cpu", network=mt.MLP(()),
        optimizer="sgd", learning_rate=1.0, max_grad_norm=None, clip=0.25, value_coef=0.5, **given,
    )  # fmt: skip
    learner = AlgorithmLearner(agent.algorithm, make_backend("torch", "cpu", jit_compile=True), [0, 1], draw=True)
    steps: Any = learner.steps.over_rollouts
    place, taken = np.array([6, 2, 0, 5, 1, 4, 3]), np.int64(TAKEN)  # where the rows lie
    columns = {
        "obs": np.eye(ROWS, dtype=np.float32), "legal": legal, "action": taken, "advantage": ADVANTAGE,
        "log_prob": np.log(CHANCES[taken] / RATIO), "target": AIM, "value": OLD, "state": None, **(more or {}),
    }  # fmt: skip

    def column(values: Any) -> Any:
        if values is None:
            return None
        values = np.asarray(values, np.float32 if np.asarray(values).dtype == np.float64 else None)
        both = np.zeros((2, *values.shape), values.dtype)
        both[1, place] = values
        return torch.from_numpy(both)

    weights = {"actor": np.concatenate([logits, np.zeros((1, 3))]), "critic": np.append(VALUED, 0.0)}
    for name, values in weights.items():
        learner.weights.online[name].flat[1] = torch.from_numpy(values.astype(np.float32).reshape(-1))
    index, weight = np.zeros((2, 1, 32), np.int64), np.zeros((2, 1, 32), np.float32)
    index[1, 0, :ROWS], weight[1, 0, :ROWS] = place, SHARE
    dealt, due = Dealt(index, weight, np.array([[0, ROWS]])), np.array([[[False, True]]])
    rows = {name: column(values) for name, values in columns.items()}
    found = steps.programs(steps.steps, {ALONE: rows}, 32, lambda rows: {})
    assert found is not None
    (measured,) = steps.of_agents(found, {ALONE: rows}, dealt, {}, {ALONE: learner.hyper.stacked()}, due)
    after = {name: learner.weights.online[name].flat[1].numpy() for name in weights}
    moved = [weights[name].reshape(-1)[: after[name].size] - after[name] for name in ("actor", "critic")]
    metrics = dict(zip(steps.steps[0].metrics, measured[0][:, 1], strict=True))
    return moved[0].reshape(-1, 3)[:ROWS], moved[1][:ROWS], metrics


LOGITS = np.tile(np.log(CHANCES), (ROWS, 1)) + np.arange(ROWS)[:, None]


def test_the_actors_gradient():
    """Losses -0.75, -0.3125, 0.375, 0.1875 and -0.5; a ratio is clipped in all but the first row."""
    found, _, metrics = steps_of(LOGITS)
    np.testing.assert_allclose(found, STEP, atol=2e-6)
    expected = {"loss/actor": -1, "entropy": ENTROPY, "approx_kl": KL, "clip_share": 0.75}
    assert {name: metrics[name] for name in expected} == pytest.approx(expected, rel=1e-5)


def test_the_entropys_gradient():
    """By logit j it is -p (log p + H)."""
    found, _, metrics = steps_of(LOGITS, entropy_coef=0.5)
    bonus = 0.5 * SHARE[:, None] * CHANCES * (np.log(CHANCES) + ENTROPY)
    assert abs(bonus[:5]).min() > 0.005
    np.testing.assert_allclose(found, STEP + bonus, atol=2e-6)
    assert metrics["loss/total"] == pytest.approx(-1 + 0.5 * metrics["loss/critic"] - 0.5 * ENTROPY, rel=1e-5)


def test_advantages_get_mean_0_and_deviation_1():
    """Of 3, 2, -1, 1 and 1.5 by their shares: mean 1.5, variance 1.4375. The second and the fourth row are clipped."""
    found, _, _ = steps_of(LOGITS, normalize_advantage=True, more={"advantage": [3.0, 2.0, -1.0, 1.0, 1.5, 9.0, -1e6]})
    pull = SHARE * np.array([1.5, 0, 1.5 * -2.5, 0, 0, 0, 0]) / np.sqrt(1.4375)
    np.testing.assert_allclose(found, pull[:, None] * (CHANCES - np.eye(3)[np.int64(TAKEN)]), atol=2e-6)


def test_illegal_actions():
    """The logits of the first row's last action and the third row's first are anything, and get no gradient."""
    logits, chances, legal = LOGITS.copy(), np.tile(CHANCES, (ROWS, 1)), np.ones((ROWS, 3), bool)
    for row, illegal in ((0, 2), (2, 0)):
        logits[row, illegal], chances[row, illegal], legal[row, illegal] = 1e4, 0, False
        chances[row] /= chances[row].sum()
    log_prob = np.log(chances[np.arange(ROWS), np.int64(TAKEN)] / RATIO)
    found, _, metrics = steps_of(logits, legal=legal, entropy_coef=0.5, more={"log_prob": log_prob})
    logs = np.log(np.where(chances > 0, chances, 1))
    entropy = -(chances * logs).sum(1, keepdims=True)
    expected = PULL[:, None] * (chances - np.eye(3)[np.int64(TAKEN)])
    expected += 0.5 * SHARE[:, None] * chances * (logs + entropy)
    np.testing.assert_allclose(found[legal], expected[legal], atol=2e-6)
    assert (found[~legal] == 0).all()
    assert metrics["entropy"] == pytest.approx((SHARE * entropy[:, 0]).sum(), rel=1e-5)


@pytest.mark.parametrize("clipped", [False, True])
def test_the_critics_gradient(clipped):
    """Values may move by 0.5, and the loss counts half."""
    error, passed = (ERROR, PASSED) if clipped else (VALUED - AIM, VALUED - AIM)
    _, found, metrics = steps_of(LOGITS, value_clip=0.5 if clipped else None)
    np.testing.assert_allclose(found, 0.5 * SHARE * passed, atol=1e-6)
    assert metrics["loss/critic"] == pytest.approx((0.5 * SHARE * error**2).sum(), rel=1e-6)
