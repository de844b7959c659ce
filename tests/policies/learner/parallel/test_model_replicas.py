"""Replicas of a user's model make the steps of one device; here in threads, whose sums meet at a barrier."""

from __future__ import annotations

import copy
import threading
from typing import Any

import cloudpickle
import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import nn

import marltrain as mt
from marltrain.policies.backends.strategies import DataParallel
from marltrain.policies.learner.parallel.model_replicas import ModelReplicas, part_of_rows
from tests.policies.own import with_torch
from tests.policies.own.agents import copied
from tests.policies.some_batches import VECTOR, some_rollout, some_transitions

PARTS = 3
SPREAD = DataParallel(processes=PARTS)


class Summing:
    """Stands for the backend of a process: the sum over threads, in the order of their numbers."""

    def __init__(self, index, barrier, shelf):
        self.index, self.barrier, self.shelf = index, barrier, shelf

    def summed(self, parts):
        self.shelf[self.index] = list(parts)
        self.barrier.wait(30)
        result = [torch.stack(each).sum(0) for each in zip(*(self.shelf[i] for i in range(PARTS)), strict=True)]
        self.barrier.wait(30)
        return result

    def seeded(self, rng):
        return threading.Lock()  # any context: threads share the global generators


class Threads:
    """Stands for a `Team`: replicas that were sent as bytes, and answer in threads."""

    def __init__(self, team):
        self.strategy, self.outdated = team.strategy, True
        barrier, shelf = threading.Barrier(PARTS), [None] * PARTS
        self.replicas = [cloudpickle.loads(team.held)(Summing(i, barrier, shelf), i) for i in range(PARTS)]
        self.loads = 0

    def start(self):
        pass

    def close(self):
        pass

    def ask_all(self, *order):
        self.loads += order[0] == "load"
        return self.ask([order] * PARTS)

    def ask(self, orders):
        answers = [None] * len(orders)

        def answer(i):
            name, *arguments = orders[i]
            answers[i] = getattr(self.replicas[i], name)(*arguments)

        threads = [threading.Thread(target=answer, args=(i,)) for i in range(len(orders))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return answers


def mean_loss(model, batch):
    """The Huber loss of Q-learning as a mean over rows."""
    best = model.target(batch.next_obs).amax(1)
    error = model(batch.obs).gather(1, batch.action[:, None])[:, 0] - (batch.reward + batch.discount * best).detach()
    return (batch.weight * nn.functional.huber_loss(error, torch.zeros_like(error), reduction="none")).mean()


def sum_loss(model, batch):
    return mean_loss(model, batch) * len(batch.reward)


def normalized_loss(model, batch):
    return (model(batch.obs)[:, 0] * (batch.reward - batch.reward.mean())).mean()


def noisy_loss(model, batch):
    return (model(batch.obs)[:, 0] + torch.randn(len(batch.reward))).mean()


def agent_of(model, loss=mean_loss, **settings):
    optimizer = torch.optim.Adam(model.online.parameters(), 1e-2)
    return mt.CustomAgent(model, loss, optimizer, after_update=with_torch.follow, **settings)


def in_threads(agent):
    """Let threads stand for the processes of an agent."""
    agent._steps.team = Threads(agent._steps.team)
    return agent._steps.team


def assert_equal_agents(one, other):
    for mine, theirs in zip(copied(one.model), copied(other.model), strict=True):
        np.testing.assert_allclose(mine, theirs, atol=1e-5)


def test_parts_have_all_rows_and_a_missing_part_has_no_share():
    columns = {"reward": np.arange(5), "legal": None, "triplets": {"x": -np.arange(5)}}
    parts = [part_of_rows(columns, i, 3) for i in range(3)]
    assert [part["reward"].tolist() for part, _ in parts] == [[0], [1, 2], [3, 4]]
    assert [share for _, share in parts] == [0.2, 0.4, 0.4]
    assert parts[2][0]["triplets"]["x"].tolist() == [-3, -4]
    assert [(p["reward"].tolist(), s) for p, s in (part_of_rows({"reward": np.arange(1)}, i, 3) for i in range(3))] == [
        ([0], 0.0), ([0], 0.0), ([0], 1.0),
    ]  # fmt: skip


def test_an_agent_over_three_parts_equals_one_alone():
    """Also with fewer rows than parts, with a learning rate that the user changes, and with weights that are loaded."""
    alone, shared = (agent_of(with_torch.Twins(5, 3), strategy=s, max_grad_norm=0.5) for s in (None, SPREAD))
    team, rng = in_threads(shared), np.random.default_rng(0)
    for rows in (13, 2, 8, 1, 7):
        batch = some_transitions(rng, VECTOR, 3, 1, rows)
        if rows == 8:
            for agent in (alone, shared):
                agent.own.phases[0].optimizer.param_groups[0]["lr"] = 3e-2
        (one, passes), (two, others) = (agent.learn(batch, rows) for agent in (alone, shared))
        assert passes == others
        assert all(two[name] == pytest.approx(one[name], rel=1e-4, abs=1e-5) for name in one)
    assert team.loads == 2, "at the start, and when the rate was changed"
    assert_equal_agents(alone, shared)
    for replica in team.replicas:
        assert all(map(np.array_equal, copied(replica.own.model), copied(shared.model)))
    restored = agent_of(with_torch.Twins(5, 3, seed=1), strategy=SPREAD, max_grad_norm=0.5)
    in_threads(restored)
    restored.observation_space, restored.action_space = shared.observation_space, shared.action_space
    restored.restore(shared.state())
    batch = some_transitions(rng, VECTOR, 3, 1, 9)
    for agent in (shared, restored):
        agent.learn(batch, 9)
    assert_equal_agents(shared, restored)


def test_two_losses_over_minibatches_of_a_rollout_equal_one_device():
    alone, shared = (with_torch.actor_critic_agent(5, 3, strategy=s, minibatches=3) for s in (None, SPREAD))
    in_threads(shared)
    alone.seed = shared.seed = 0
    batch = some_rollout(np.random.default_rng(1), VECTOR, spaces.Discrete(3), [17])
    one, two = (agent.learn(batch, 8)[0] for agent in (alone, shared))
    assert all(two[name] == pytest.approx(one[name], rel=1e-4, abs=1e-5) for name in one)
    assert_equal_agents(alone, shared)


@pytest.mark.parametrize(("loss", "refused"), [(sum_loss, True), (normalized_loss, True), (noisy_loss, False)])
def test_a_loss_that_is_no_mean_over_rows_is_refused(loss, refused):
    agent = agent_of(with_torch.Twins(5, 3), loss, strategy=SPREAD)
    in_threads(agent)
    before = copied(agent.model)
    batch = some_transitions(np.random.default_rng(2), VECTOR, 3, 1, 12)
    if not refused:  # random numbers: not checked
        agent.learn(batch, 12)
        return
    with pytest.raises(mt.AgentError, match=r"for 12 rows.*DataParallel\(processes=3\) needs a loss that is a mean"):
        agent.learn(batch, 12)
    assert all(map(np.array_equal, before, copied(agent.model)))


TARGET = nn.Linear(5, 3)


def test_functions_that_use_other_models_are_refused():
    def from_closure(model, batch):
        return (model(batch.obs) - inner(batch.obs)).square().mean()

    inner = nn.Linear(5, 3)
    text = r"CustomAgent: loss 'total' uses '{}' \(Linear\) beside the model .*make {} a part of the model"
    for loss, name in (from_closure, "inner"), (lambda model, batch: TARGET(batch.obs).mean(), "TARGET"):
        with pytest.raises(mt.AgentError, match=text.format(name, name)):
            agent_of(with_torch.Twins(5, 3), loss, strategy=SPREAD)
    with pytest.raises(mt.AgentError, match="after_update uses 'inner'"):
        mt.CustomAgent(
            (model := nn.Linear(5, 3)), lambda model, batch: model(batch.obs).mean(),
            torch.optim.SGD(model.parameters(), 0.1), strategy=SPREAD,
            after_update=lambda model: inner.load_state_dict(model.state_dict()),
        )  # fmt: skip


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"memory": mt.Replay(prioritized=mt.Prioritized())}, "a prioritized memory needs the errors of all rows"),
        ({"strategy": mt.MirroredStrategy()}, "is for backend 'tensorflow'"),
        ({"strategy": "DataParalel"}, "Did you mean 'DataParallel'"),
    ],
)
def test_what_does_not_go_with_a_strategy_is_refused(settings: dict[str, Any], told):
    with pytest.raises(mt.ConfigError, match=told):
        agent_of(with_torch.Twins(5, 3), **{"strategy": SPREAD, **settings})


def test_statistics_over_a_batch_are_refused_by_the_name_of_their_layer():
    model = nn.Sequential(nn.Linear(5, 8), nn.BatchNorm1d(8), nn.Linear(8, 3))
    text = r"layer '1' \(BatchNorm1d\) keeps statistics over the rows .*LayerNorm.* or leave strategy= out"
    with pytest.raises(mt.ConfigError, match=text):
        mt.CustomAgent(model, mean_loss, torch.optim.Adam(model.parameters()), strategy=SPREAD)


def test_a_model_that_cannot_be_sent_is_refused():
    model = with_torch.Twins(5, 3)
    vars(model)["guard"] = threading.Lock()
    text = r"model Twins with its losses and optimizers cannot be sent to the processes of .*cannot pickle"
    with pytest.raises(mt.ConfigError, match=text):
        agent_of(model, strategy=SPREAD)


def test_a_frozen_copy_has_no_processes():
    agent = agent_of(with_torch.Twins(5, 3), strategy=SPREAD)
    assert isinstance(agent._steps, ModelReplicas)
    assert not isinstance(agent.frozen_copy()._steps, ModelReplicas)
    assert not isinstance(copy.copy(agent).frozen_copy()._steps, ModelReplicas)
