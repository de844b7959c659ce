"""CustomAgent with a prioritized memory, in PyTorch and in Keras."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

import marltrain as mt
from marltrain.policies.memory.streams import Storage, Streams
from tests.policies.memory.worlds import Record, World, drive, one_group
from tests.policies.own import with_torch
from tests.policies.own.agents import trainer
from tests.toys import Identity


def prioritized_agent(own, **settings):
    """An agent whose loss is the mean of w * e^2 for errors e = Q(s, a) - r, and that returns |e|."""
    agent = own.q_agent(2, 3, memory=mt.Replay(100, prioritized=mt.Prioritized(**settings)))

    def loss(model, batch):
        q = model(batch.obs)
        if own is with_torch:
            error = q.gather(1, batch.action[:, None])[:, 0] - batch.reward
            return (batch.weight * error**2).mean(), error.detach().abs()
        error = tf.gather(q, batch.action, batch_dims=1) - batch.reward
        return tf.reduce_mean(batch.weight * error**2), tf.abs(error)

    agent.own.phases[0].loss = loss
    return agent


def test_a_prioritized_memory_gets_the_errors_that_a_loss_returns(own):
    agent = prioritized_agent(own, alpha=1.0)
    spec = one_group("a", masked=False)
    agent.sit(spec.players[0], 0)
    streams = Streams(spec, 2, {0: Storage(20)})
    drive(World(spec, 2, 0, dense=True, end_chance=0), streams, Record(spec, 2), lambda t: None, 12)
    learner = agent.learner()
    reader = learner.reader(streams, [[0]])
    batch = reader.sample(learner.rngs("sample"), np.ones(1), 8)
    with agent.own.acting():
        q = agent.own.outputs(agent.own.tensors(batch.obs[0]))
    errors = np.abs(q[np.arange(8), batch.action[0]] - batch.reward[0])
    learner.update(batch, learn=np.ones(1, bool), batch_size=8)
    np.testing.assert_allclose(batch.errors[0], errors, rtol=1e-4)
    reader.learned(batch)
    priorities = reader.state().arrays["priority"]
    assert sorted(priorities[(priorities != 1) & (priorities > 0)]) == pytest.approx(
        sorted({e + 1e-6 for e in batch.errors[0]}), rel=1e-5
    )
    assert agent.memory.alpha == 1.0
    agent.memory.alpha = 0.5
    assert reader.sample(learner.rngs("sample"), np.ones(1), 8).weight.min() < 1
    assert agent.state().info["learner"]["memory"]["prioritized"]["hyper"]["alpha"] == 0.5


def test_a_prioritized_memory_without_errors():
    agent = with_torch.q_agent(3, 3, memory=mt.Replay(100, prioritized=mt.Prioritized()))
    with pytest.raises(mt.AgentError, match=r"needs the sizes of the \d+ rows' errors, and no loss returned any"):
        trainer(Identity, 400).train([agent, mt.RandomAgent()], [1, 0], plot=False)
