"""SEAC: the weights of shared rows by hand, the rows that a run shares, and A2C as its special case."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

import marltrain as mt
from marltrain.core.errors import ConfigError
from marltrain.policies.learner.algorithm_learner import AlgorithmLearner
from tests.policies.some_batches import VECTOR, of_agent, some_rollout
from tests.toys import Crowd
from tests.trainer.running import SMALL, noted_batches, trainer

ON, SPACE = np.ones(1, bool), spaces.Discrete(3)
PLAIN: dict[str, Any] = {"network": mt.MLP((6,)), "seed": 0, "normalize_advantage": False}
OWN = np.array([[1, 0, 0, 1, 0, 0, 0, 1]], bool)


def rollout(own=None):
    return replace(some_rollout(np.random.default_rng(0), VECTOR, SPACE, [8], masked=True), own=own)


def updated(agent, batch):
    metrics = agent.learner_.update(batch, learn=ON, batch_size=64)
    return agent.learner_.export(0).arrays, {name: float(value[0]) for name, value in metrics.items()}


def prepared(agent, batch):
    learner = agent.learner_
    result = learner._prepared(learner.weights.nets, batch)
    return {name: np.asarray(learner.backend.numpy(getattr(result, name)))[0] for name in
            ("advantage", "target", "own_weight", "other_weight", "log_prob", "obs", "legal", "action")}  # fmt: skip


@pytest.mark.parametrize("backend", ["torch", "tensorflow"])
def test_losses_by_hand(backend):
    """Three own rows of eight: own weights 8/3, and those of others 0.5 * 8/3 times their importance weights."""
    agent = mt.SEAC(VECTOR, SPACE, shared_coef=0.5, backend=backend, **PLAIN)
    batch = rollout(OWN)
    learner, of = agent.learner_, prepared(agent, batch)
    np.testing.assert_allclose(of["own_weight"], OWN[0] * 8 / 3, rtol=1e-6)
    np.testing.assert_allclose(of["other_weight"], ~OWN[0] * 4 / 3, rtol=1e-6)
    logits = np.asarray(learner.backend.numpy(learner.weights.nets["actor"](learner.backend.tensor(batch.obs))[0]))[0]
    values = np.asarray(learner.backend.numpy(learner.weights.nets["critic"](learner.backend.tensor(batch.obs))[0]))
    logits = np.where(of["legal"], logits, -np.inf)
    chances = np.exp(logits - logits.max(-1, keepdims=True))
    chances /= chances.sum(-1, keepdims=True)
    log_prob = np.log(chances[np.arange(8), of["action"]])
    ratio = np.exp(log_prob - of["log_prob"])
    actor = critic = 0.0
    for i in range(8):
        weight = 1 / 3 if OWN[0, i] else 0.5 / 3 * ratio[i]
        actor -= weight * log_prob[i] * of["advantage"][i]
        critic += 0.5 * weight * (values[0, i, 0] - of["target"][i]) ** 2
    _, metrics = updated(agent, batch)
    assert metrics["loss/actor"] == pytest.approx(actor, rel=1e-4)
    assert metrics["loss/critic"] == pytest.approx(critic, rel=1e-4)


@pytest.mark.parametrize("own", [None, np.ones((1, 8), bool)])
def test_without_rows_of_others_it_is_a2c(own):
    ours, _ = updated(mt.SEAC(VECTOR, SPACE, **PLAIN), rollout(own))
    theirs, _ = updated(mt.A2C(VECTOR, SPACE, **PLAIN), rollout())
    assert ours.keys() == theirs.keys()
    for name, array in theirs.items():
        np.testing.assert_allclose(ours[name], array, atol=1e-6, err_msg=name)


def test_stacked_agents_learn_as_single_ones():
    """Ragged rollouts of two agents in one learner, and each in its own."""
    agent, rng = mt.SEAC(VECTOR, SPACE, **PLAIN), np.random.default_rng(4)
    both = AlgorithmLearner(agent.algorithm, agent.backend, [3, 4], draw=True)
    alone = [AlgorithmLearner(agent.algorithm, agent.backend, [seed], draw=True) for seed in (3, 4)]
    for _ in range(3):
        batch = some_rollout(rng, VECTOR, SPACE, [9, 5])
        batch.own = (rng.random(batch.weight.shape) < 0.5) & (batch.weight > 0)
        both.update(batch, learn=np.ones(2, bool), batch_size=9)
        for k, one in enumerate(alone):
            one.update(of_agent(batch, k, (9, 5)[k]), learn=ON, batch_size=9)
    for k, one in enumerate(alone):
        mine, theirs = both.export(k).arrays, one.export(0).arrays
        for name, array in theirs.items():
            np.testing.assert_allclose(mine[name], array, atol=1e-5, err_msg=name)


def test_rows_of_others_without_weight_change_nothing():
    """A batch with other rows, shared_coef=0, moves the agent as its own rows do."""
    batch = rollout(OWN)
    batch.cut[...], batch.boot[...] = True, np.arange(8)  # every row for itself
    kept = np.flatnonzero(OWN[0])
    rows = ("obs", "legal", "action", "reward", "discount", "weight", "cut", "truncated", "boot")
    alone: Any = replace(batch, own=None, **{name: getattr(batch, name)[:, kept] for name in rows})
    alone.extras = {name: column[:, kept] for name, column in batch.extras.items()}
    agents = [mt.SEAC(VECTOR, SPACE, shared_coef=0.0, **PLAIN), mt.A2C(VECTOR, SPACE, **PLAIN)]
    ours, theirs = (updated(agent, given)[0] for agent, given in zip(agents, (batch, alone), strict=True))
    for name, array in theirs.items():
        np.testing.assert_allclose(ours[name], array, atol=1e-6, err_msg=name)


def test_a_run_shares_the_rows_of_agents_with_equal_spaces(monkeypatch):
    """red_0 and red_1 share theirs; blue, with other spaces, has its own alone. red_1 dies after two of four steps."""
    seen = noted_batches(monkeypatch)
    agents = mt.make_agents("seac", Crowd, network=SMALL, seed=0)
    trainer(Crowd, {}, steps_per_train=24, update_freq=12).train(agents, [1, 1, 1], plot=False)
    reds, *_, blue = sorted(seen, key=lambda batch: -len(batch.weight))
    places = reds.obs[..., 1]
    for k in (0, 1):
        valid = reds.weight[k] > 0
        assert (reds.own[k] == (places[k] == k))[valid].all()
        assert set(places[k][valid]) == {0, 1}
    assert reds.weight.sum(1).tolist() == [18, 18]  # of four and two steps in three environments
    assert blue.own[blue.weight > 0].all()


def test_rows_of_seats_that_do_not_learn_are_not_read(monkeypatch):
    seen = noted_batches(monkeypatch)
    agents = mt.make_agents("seac", Crowd, network=SMALL, seed=0)
    trainer(Crowd, {}, steps_per_train=24, update_freq=12).train(agents, [1, 0, 0], plot=False)
    for batch in seen:
        there = batch.weight[0] > 0
        assert (batch.obs[0, there, 1] == 0).all() and batch.own[0, there].all()


def test_shared_memory_changes_nothing_more_and_is_refused_for_a2c():
    weights = []
    for shared in (False, True):
        agents = mt.make_agents("seac", Crowd, network=SMALL, seed=0)
        trainer(Crowd, {}, steps_per_train=24, update_freq=12, shared_memory=shared).train(
            agents, [1, 1, 1], plot=False
        )
        weights.append([agent.state().arrays for agent in agents])
    for one, other in zip(*weights, strict=True):
        assert all((array == other[name]).all() for name, array in one.items())
    with pytest.raises(ConfigError, match=r"learns on-policy.* agents that correct for it \(SEAC\)"):
        trainer(Crowd, {}, update_freq=12, shared_memory=True).train(
            mt.make_agents("a2c", Crowd, network=SMALL, seed=0), [1, 1, 1], plot=False
        )
