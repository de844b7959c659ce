"""Gradient noise and effective sample sizes against numbers worked out otherwise."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces

import marltrain as mt
from marltrain.core.errors import ConfigError
from marltrain.core.layout import map_tree
from marltrain.policies.backends import make_backend
from marltrain.policies.learner.algorithm_learner import AlgorithmLearner
from marltrain.policies.learner.measurements import kish_share, noise_scale
from tests.policies.some_batches import VECTOR, some_rollout, some_transitions
from tests.tiers import LONG, rounds

BOTH = np.ones(2, bool)
PLACES = [("torch", False), ("torch", True), ("tensorflow", False)]
"""Framework, and whether passes are compiled (in numba)."""


def learner(kind: Any, place: tuple[str, bool] = PLACES[0], *ask: str, **settings: Any) -> Any:
    """Two stacked agents, whose learner measures what is asked for."""
    framework, compiled = place
    backend = make_backend(framework, "cpu", jit_compile=compiled)
    given = {"network": mt.MLP((6,)), "max_grad_norm": 0.01, "seed": 0, **settings}
    agent = kind(VECTOR, spaces.Discrete(3), backend=framework, device="cpu", **given)
    result = AlgorithmLearner(agent.algorithm, backend, [0, 1], draw=True)
    for quantity in ask:
        result.measured.ask(quantity)
    return result


def rows_of(batch: Any, rows: np.ndarray) -> Any:
    """Some rows of a batch, for both agents."""
    return replace(batch, **{f.name: map_tree(lambda a: a[:, rows], getattr(batch, f.name)) for f in fields(batch)})


def made(own: Any, batch: Any, rows: int = 12) -> dict[str, np.ndarray]:
    return own.update(batch, learn=BOTH, batch_size=rows)


def test_noise_and_signal_estimate_trace_and_squared_norm():
    """24 rows are the population: |G|^2 is of all of them, tr S the mean of |g_i|^2 less |G|^2; batches of 4 + 3."""
    rng = np.random.default_rng(0)
    own = learner(mt.DQN, PLACES[0], "gradient_noise", learning_rate=0.0)
    population = some_transitions(rng, VECTOR, 3, 2, 24)
    exact = made(own, population)["grad_norm/q"] ** 2
    single = [made(own, rows_of(population, np.array([i])))["grad_norm/q"] ** 2 for i in range(24)]
    trace = np.mean(single, 0) - exact
    drawn = [
        made(own, rows_of(population, rng.integers(24, size=7))) for _ in range(rounds(300, 3000))
    ]  # parts of 4 and 3
    signal, noise = (np.mean([one[f"gradient_{name}/q"] for one in drawn], 0) for name in ("signal", "noise"))
    np.testing.assert_allclose(signal, exact, rtol=0.15)
    np.testing.assert_allclose(noise, trace, rtol=0.1)
    np.testing.assert_allclose(drawn[0]["gradient_rows"], 7, rtol=1e-5)


@pytest.mark.parametrize("place", PLACES)
def test_parts_by_hand(place):
    """Equal parts have no noise, and the squared norm as their signal; a single row, or rows of one part, give zeros.

    With weights (3, 1) and (1, 1) in the two parts, these count as 16 / 10 and 2 rows, and all as 36 / 12 = 3.
    """
    own = learner(mt.DQN, place, "gradient_noise", learning_rate=0.0)
    four = some_transitions(np.random.default_rng(1), VECTOR, 3, 2, 4)
    same = made(own, rows_of(four, np.array([0, 0, 1, 1])))
    np.testing.assert_allclose(same["gradient_signal/q"], same["grad_norm/q"] ** 2, rtol=1e-4)
    np.testing.assert_allclose(same["gradient_noise/q"] / same["gradient_signal/q"], 0.0, atol=1e-4)
    for lonely in (rows_of(four, np.array([2])), replace(four, weight=np.eye(4, dtype=np.float32)[:2])):
        alone = made(own, lonely)
        assert not alone["gradient_noise/q"].any()
        assert not alone["gradient_signal/q"].any()
    weighted = replace(four, weight=np.array([[3, 1, 1, 1]] * 2, np.float32))
    seen = made(own, rows_of(weighted, np.array([0, 2, 1, 3])))
    first, second = (made(own, rows_of(weighted, rows))["grad_norm/q"] ** 2 for rows in (np.arange(2), np.arange(2, 4)))
    signal = seen["gradient_signal/q"]
    np.testing.assert_allclose(seen["grad_norm/q"] ** 2, (16 * first + 4 * second + 16 * signal) / 36, rtol=1e-4)
    np.testing.assert_allclose(seen["gradient_noise/q"], (first + second - 2 * signal) / (10 / 16 + 1 / 2), rtol=1e-4)
    np.testing.assert_allclose(seen["gradient_rows"], 3.0, rtol=1e-5)


@pytest.mark.parametrize("kind", [mt.DQN, mt.PPO, *([mt.SAC] if LONG else [])])
def test_frameworks_and_compiled_code_agree(kind):
    """Five updates of moving agents of which one pauses; the compiled form of SAC is torch's own and is left out."""
    places = [place for place in PLACES if kind is not mt.SAC or not place[1]]
    measured = []
    for place in places:
        rng, own, seen = np.random.default_rng(2), learner(kind, place, "gradient_noise", learning_rate=0.01), []
        for learn in ([1, 1], [1, 0], [0, 1], [1, 1], [1, 1]):
            batch = (
                some_rollout(rng, VECTOR, spaces.Discrete(3), [13, 10]) if kind is mt.PPO
                else some_transitions(rng, VECTOR, 3, 2, 7)
            )  # fmt: skip
            seen.append(own.update(batch, learn=np.array(learn, bool), batch_size=4))
        measured.append(seen)
    names = [name for name in measured[0][0] if name.startswith("gradient_")]
    assert len(names) == {mt.DQN: 3, mt.PPO: 5, mt.SAC: 7}[kind]
    for other in measured[1:]:
        for ours, theirs in zip(measured[0], other, strict=True):
            for name in names:
                np.testing.assert_allclose(theirs[name], ours[name], rtol=2e-3, atol=2e-4, err_msg=name)


@pytest.mark.parametrize("place", PLACES if LONG else PLACES[:2])
def test_measuring_changes_weights_by_rounding_alone(place):
    """The sum of two gradients is rounded otherwise; metrics of all rows stay. Afterwards nothing is measured."""
    rng = np.random.default_rng(3)
    plain, measuring = learner(mt.DQN, place), learner(mt.DQN, place, "gradient_noise")
    for _ in range(3):
        batch = some_transitions(rng, VECTOR, 3, 2, 8)
        without, with_it = made(plain, batch), made(measuring, batch)
        for name, values in without.items():
            np.testing.assert_allclose(with_it[name], values, rtol=1e-4, atol=1e-6, err_msg=name)
    for row in range(2):
        ours, theirs = plain.export(row).arrays, measuring.export(row).arrays
        assert all(np.allclose(ours[name], theirs[name], atol=1e-5) for name in ours)
    measuring.measured.clear()
    assert set(made(measuring, batch)) == set(made(plain, batch))


def test_kish_share_by_hand():
    """Weights (1, 1, 1, 1): all; (3, 1, 1, 1, padding): 36 / (4 * 12); none."""
    weight = np.array([[1, 1, 1, 1, 0], [3, 1, 1, 1, 0], [0, 0, 0, 0, 0]], np.float32)
    np.testing.assert_allclose(kish_share(weight), [1.0, 0.75, np.nan])
    log_ratio = np.log(np.array([[3, 1, 1, 1, 9]] * 3, np.float32))
    np.testing.assert_allclose(kish_share(weight, log_ratio), [0.75, 144 / (4 * 84), np.nan], rtol=1e-6)
    assert np.isfinite(kish_share(weight[:2], np.full((2, 5), 1e4))).all()


@pytest.mark.parametrize("place", PLACES)
def test_effective_sample_size_of_ppo_is_that_of_its_ratios(place):
    """At a rate of 0 the ratios are those of the stored probabilities; a large rate leaves few effective rows."""
    rollout = some_rollout(np.random.default_rng(5), VECTOR, spaces.Discrete(3), [40, 23])
    still, moving = (
        made(learner(mt.PPO, place, "effective_sample_size", learning_rate=rate, max_grad_norm=None), rollout)
        for rate in (0.0, 1.0)
    )
    policy = learner(mt.PPO, place, learning_rate=0.0)
    ops, nets = policy.backend.ops, policy.weights.nets
    out = policy.backend.numpy(nets["actor"](policy.backend.tensor(rollout.obs))[0])
    log_prob = np.take_along_axis(out - np.log(np.exp(out).sum(-1, keepdims=True)), rollout.action[..., None], -1)
    ratio = np.exp(log_prob[..., 0] - rollout.extras["log_prob"]) * rollout.weight
    expected = ratio.sum(1) ** 2 / (ratio**2).sum(1) / [40, 23]
    assert ops is not None
    np.testing.assert_allclose(still["effective_sample_size"], expected, rtol=1e-5)
    assert (moving["effective_sample_size"] < still["effective_sample_size"]).all()


def test_effective_sample_size_off_policy_is_that_of_the_draws():
    own = learner(mt.DQN, PLACES[0], "effective_sample_size", memory=mt.Replay(prioritized=mt.Prioritized()))
    batch = some_transitions(np.random.default_rng(8), VECTOR, 3, 2, 3)
    seen = made(own, replace(batch, rows=np.zeros((2, 3), np.int64), effective=np.array([0.25, 0.5])))
    assert seen["effective_sample_size"].tolist() == [0.25, 0.5]


@pytest.mark.parametrize(
    ("kind", "settings"),
    [(mt.DQN, {}), (mt.SAC, {}), (mt.DQN, {"memory": mt.Replay(window=5, prioritized=mt.Prioritized(alpha=0.0))})],
)
def test_an_effective_sample_size_that_cannot_change_is_refused(kind, settings):
    with pytest.raises(ConfigError, match="the effective sample size of its draws is always that of all rows"):
        learner(kind, PLACES[0], "effective_sample_size", **settings)
    with_schedule = mt.Replay(prioritized=mt.Prioritized(alpha=mt.linear(0.0, 1.0, 10)))
    learner(mt.DQN, PLACES[0], "effective_sample_size", memory=with_schedule)


def test_noise_scale_by_hand_and_its_bound():
    assert noise_scale(6.0, 2.0, 100.0) == 3.0
    assert noise_scale(600.0, 2.0, 100.0) == 100.0
    assert noise_scale(6.0, -1.0, 100.0) == 100.0  # noise hides the gradient
    assert noise_scale(-6.0, 2.0, 100.0) == noise_scale(0.0, 0.0, 100.0) == 0.0


def test_a_strategy_is_refused():
    agent = mt.DQN(VECTOR, spaces.Discrete(3), strategy=mt.DataParallel(processes=2), device="cpu")
    with pytest.raises(ConfigError, match=r"dqn: the gradient noise .* DataParallel.* splits it already"):
        agent.learner_.measured.ask("gradient_noise")


def test_a_model_of_your_own_is_refused():
    agent = mt.DQN(VECTOR, spaces.Discrete(3), network=torch.nn.Linear(5, 3), device="cpu")
    with pytest.raises(ConfigError, match=r"dqn: the gradient noise is measured by two parts .* a model of your own"):
        agent.learner_.measured.ask("gradient_noise")


@pytest.mark.parametrize("place", PLACES)
def test_errors_of_rows_keep_their_order(place):
    """A prioritized memory gets the errors of the parts in the order of the rows."""
    errors: list[Any] = []
    batch = replace(some_transitions(np.random.default_rng(7), VECTOR, 3, 2, 7), rows=np.zeros((2, 7), np.int64))
    for ask in ((), ("gradient_noise",)):
        made(learner(mt.DQN, place, *ask, memory=mt.Replay(prioritized=mt.Prioritized())), batch)
        errors.append(batch.errors)
    assert np.ptp(errors[0]) > 0.1
    np.testing.assert_allclose(errors[1], errors[0], rtol=1e-5)
