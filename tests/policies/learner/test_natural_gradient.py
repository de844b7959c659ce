"""Natural gradient steps: on quadratic losses worked out by hand, within the trust region, each agent by itself."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

import marltrain as mt
from marltrain.core.errors import ConfigError
from marltrain.policies.batches.batch import Transitions
from marltrain.policies.interface.natural_gradient import NaturalGradient
from marltrain.policies.learner.algorithm_learner import AlgorithmLearner
from marltrain.policies.learner.natural_gradient import conjugate_gradient
from marltrain.policies.networks.specs import Head, NetworkDefinition
from tests.policies.backends.both import BOTH, on_both
from tests.policies.some_batches import VECTOR

SLOPE, METRIC = np.array([3.0, -4.0], np.float32), np.array([1.0, 4.0], np.float32)


@dataclass(frozen=True, kw_only=True)
class BowlSettings(mt.Settings):
    """Settings of `Bowl`."""

    max_kl: float = mt.setting(0.5, doc="limit of the divergence", above=0, per_row=True)
    damping: float = mt.setting(0.0, doc="damping", low=0, per_row=True)
    bend: float = mt.setting(0.0, doc="curvature of the loss", low=0, per_row=True)
    grows: float = mt.setting(1.0, doc="divergence beyond its quadratic form", low=1, per_row=True)
    every: int = mt.setting(1, doc="updates a step", low=1)


class Bowl(mt.Algorithm):
    """Constants w [2] with the loss SLOPE w + bend w^2 / 2 and the divergence METRIC d^2 / 2 of the step d."""

    name, Settings, on_policy = "bowl", BowlSettings, False

    def networks(self) -> dict[str, NetworkDefinition]:
        return {"w": NetworkDefinition(None, [Head(0, free=2)], None)}

    def needs(self) -> mt.Needs:
        return mt.Needs(on_policy=False, capacity=10)

    @property
    def phases(self) -> tuple[mt.Phase, ...]:
        natural = NaturalGradient(self.divergence, iterations=2)
        return (mt.Phase("w", ("w",), self.loss, self.before, self.settings.every, natural=natural),)

    def before(self, ops: Any, nets: Any, batch: Any, hyper: Any) -> None:
        batch.old = nets["w"]()[0]

    def loss(self, ops: Any, nets: Any, batch: Any, hyper: Any) -> Any:
        w = nets["w"]()[0]
        each = ops.sum(w * batch.slope, -1) + 0.5 * hyper["bend"] * ops.sum(ops.square(w), -1)
        value = mt.weighted_mean(ops, each, batch.weight)
        return value, {"loss/total": value}

    def divergence(self, ops: Any, nets: Any, batch: Any, hyper: Any) -> Any:
        square = ops.sum(ops.square(nets["w"]()[0] - batch.old) * batch.metric, -1) / 2.0
        return mt.weighted_mean(ops, square + (hyper["grows"] - 1.0) * ops.square(square), batch.weight)

    def prepare(self, ops: Any, nets: Any, batch: Any, tensors: Any, hyper: Any) -> Any:
        ones = np.ones((*batch.reward.shape, 1), np.float32)
        tensors.slope, tensors.metric = tensors.to_tensor(SLOPE * ones), tensors.to_tensor(METRIC * ones)
        return tensors


class BowlAgent(mt.LearningAgent):
    algorithm_class = Bowl


def rows(agents: int, count: int = 3) -> Transitions:
    """Rows without contents; the last one is padding."""
    ones = np.ones((agents, count), np.float32)
    weight = ones.copy()
    weight[:, -1] = 0.0
    obs = np.zeros((agents, count, 5), np.float32)
    return Transitions(
        obs=obs, legal=None, action=np.zeros((agents, count), np.int64), reward=ones, discount=ones, weight=weight,
        extras={}, next_obs=obs, next_legal=None, cells=np.zeros((agents, count), np.int64),
    )  # fmt: skip


def bowl(agents: int = 1, **settings: Any) -> AlgorithmLearner:
    agent = BowlAgent(VECTOR, spaces.Discrete(2), seed=0, **settings)
    return AlgorithmLearner(agent.algorithm, agent.backend, list(range(agents)), draw=True)


def weights(learner: AlgorithmLearner, row: int = 0) -> np.ndarray:
    return learner.export(row).arrays["net/w/head0.free"]


def updated(learner: AlgorithmLearner, learn: Any = True) -> dict[str, np.ndarray]:
    return learner.update(rows(learner.num_agents), learn=np.broadcast_to(learn, learner.num_agents), batch_size=3)


@pytest.mark.parametrize("jit_compile", [False, True])
@pytest.mark.parametrize("backend", ["torch", "tensorflow"])
def test_a_step_by_hand(backend, jit_compile):
    """(F + I)^-1 g = (1.5, -0.8) = s, with s^T (F + I) s = 7.7: the largest step has the length sqrt(2 * 0.5 / 7.7)."""
    learner = bowl(backend=backend, damping=1.0, jit_compile=jit_compile)
    metrics = updated(learner)
    np.testing.assert_allclose(weights(learner), -np.array([1.5, -0.8]) / np.sqrt(7.7), rtol=1e-5)
    assert metrics["line_search"][0] == 1.0
    assert metrics["kl"][0] == pytest.approx((1.5**2 + 4 * 0.8**2) / 7.7 / 2, rel=1e-5)  # less than 0.5
    assert metrics["grad_norm/w"][0] == pytest.approx(5.0)
    assert metrics["loss/total"][0] == 0.0 and "learning_rate/w" not in metrics


@pytest.mark.parametrize("backend", BOTH)
def test_a_step_starts_from_weights_that_were_changed_as_an_array(backend):
    """As programs of other phases do: the slope of the loss is SLOPE + w."""
    learner = bowl(backend=backend, damping=1.0, bend=1.0)
    network = learner.weights.online["w"]
    network.numbers()[:] = [[1.0, 2.0]]
    network.numbers_changed()
    assert updated(learner)["grad_norm/w"][0] == pytest.approx(np.hypot(3.0 + 1.0, -4.0 + 2.0), rel=1e-6)
    assert weights(learner)[0] < 1.0 and weights(learner)[1] > 2.0


def test_the_line_search_stops_inside_the_trust_region():
    """The true divergence is q + 99 q^2, q = 0.31234 z^2 at the size z: within 0.5 for z^2 <= 0.21197, z <= 0.4604."""
    learner = bowl(damping=1.0, grows=100.0)
    metrics = updated(learner)
    assert metrics["line_search"][0] == pytest.approx(0.8**4)  # 0.4096; 0.8**3 = 0.512 is too large
    assert 0 < metrics["kl"][0] <= 0.5
    np.testing.assert_allclose(weights(learner), -(0.8**4) * np.array([1.5, -0.8]) / np.sqrt(7.7), rtol=1e-5)


def test_a_step_that_raises_the_loss_is_refused():
    """The loss falls along the step up to size 2 * 2.775 / (0.3753 bend); 0.8^9 = 0.134 is the smallest tried."""
    learner = bowl(damping=1.0, bend=200.0)
    before = weights(learner).copy()
    metrics = updated(learner)
    assert metrics["line_search"][0] == metrics["kl"][0] == 0.0
    np.testing.assert_array_equal(weights(learner), before)
    learner.set_hyper(0, "bend", 100.0)
    assert updated(learner)["line_search"][0] == pytest.approx(0.8**9)  # below 0.1479


@pytest.mark.parametrize("backend", BOTH)
def test_each_agent_has_its_own_step(backend):
    """Agents with other limits, one that is refused, one that does not learn."""
    settings = {
        "max_kl": [0.5, 0.1, 0.5, 0.5, 2.0], "damping": [1.0, 0.5, 1.0, 1.0, 0.1], "bend": [0.0, 0.0, 200.0, 0.0, 1.0],
    }  # fmt: skip
    learner, alone = bowl(5, backend=backend), [bowl(backend=backend) for _ in range(5)]
    for name, numbers in settings.items():
        for k, number in enumerate(numbers):
            learner.set_hyper(k, name, number)
            alone[k].set_hyper(0, name, number)
    learn = np.array([True, True, True, False, True])
    start = [weights(learner, k).copy() for k in range(5)]
    for _ in range(2):
        metrics = updated(learner, learn)
        for k in np.flatnonzero(learn).tolist():
            own = updated(alone[k])
            for name, values in own.items():
                assert metrics[name][k] == pytest.approx(values[0], rel=1e-5), (name, k)
    for k in range(5):
        np.testing.assert_allclose(weights(learner, k), weights(alone[k]), rtol=1e-6)
    assert (weights(learner, 2) == start[2]).all() and (weights(learner, 3) == start[3]).all()
    assert np.isnan(metrics["kl"][3])


def test_every_counts_updates():
    learner = bowl(damping=1.0, every=2)
    moved = []
    for _ in range(4):
        before = weights(learner).copy()
        updated(learner)
        moved.append(bool((weights(learner) != before).any()))
    assert moved == [True, False, True, False]


def test_a_loss_that_is_not_finite_changes_no_weight():
    learner = bowl(2, damping=1.0)
    learner.weights.online["w"].flat[1] = np.nan
    metrics = updated(learner)
    assert weights(learner).any() and np.isnan(weights(learner, 1)).all()
    assert np.isnan(metrics["grad_norm/w"]).tolist() == [False, True]


@on_both
def test_conjugate_gradients_solve_each_system(backend):
    """In as many iterations as a matrix has rows; a zero gradient gives zero."""
    rng = np.random.default_rng(0)
    roots = rng.standard_normal((3, 5, 5)).astype(np.float32)
    matrices = roots @ roots.transpose(0, 2, 1) + np.eye(5, dtype=np.float32)
    target = rng.standard_normal((3, 5)).astype(np.float32)
    target[1] = 0.0
    held = backend.tensor(matrices)

    def product(x):
        return backend.ops.sum(held * x[:, None], -1)

    x = backend.numpy(conjugate_gradient(backend.ops, product, backend.tensor(target), 7))
    np.testing.assert_allclose(x, np.linalg.solve(matrices, target[..., None])[..., 0], atol=2e-4)
    assert not x[1].any()


class Undeclared(Bowl):
    @property
    def phases(self):
        return (mt.Phase("w", ("w",), self.loss, natural=NaturalGradient(self.divergence, max_kl="limit")),)


class UndeclaredAgent(mt.LearningAgent):
    algorithm_class = Undeclared


@pytest.mark.parametrize(
    ("make", "settings", "words"),
    [
        (BowlAgent, {"jit_compile": "require"}, "phase 'w', because it solves for a natural gradient"),
        (BowlAgent, {"strategy": "DataParallel"}, "sums gradients over parts of a minibatch.* without strategy="),
        (UndeclaredAgent, {}, r"phase 'w' reads the settings \['limit'\], which must be declared with per_row=True"),
    ],
)
def test_what_cannot_solve_is_refused(make, settings, words):
    with pytest.raises(ConfigError, match=words):
        make(VECTOR, spaces.Discrete(2), seed=0, **settings)


@pytest.mark.parametrize("wrong", [{"iterations": 0}, {"tries": 1.5}, {"shrink": 1.0}])
def test_wrong_numbers_of_a_natural_gradient(wrong):
    with pytest.raises(ConfigError, match=f"NaturalGradient: {next(iter(wrong))} must be"):
        NaturalGradient(lambda *given: None, **wrong)
