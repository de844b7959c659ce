"""tianshou's algorithms with hindsight: their targets are those of the relabeled transitions."""

from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from tianshou.utils.torch_utils import policy_within_training_step

import marltrain as mt
from marltrain.core.errors import ConfigError
from marltrain.policies.agents.tianshou.relabeled import RelabeledView
from marltrain.policies.memory.needs import Needs
from tests.gymnasium_toys import BitFlipping
from tests.policies.agents.tianshou.making import dqn
from tests.policies.memory.test_hindsight import ACHIEVED, DESIRED, EPISODES, near, played
from tests.trainer.running import trainer


def reader_of(prioritized=None):
    hindsight = mt.Hindsight(reward_fn=near, share=0.6)
    needs = Needs.of(mt.Replay(40, 1, prioritized, hindsight))
    return played(**EPISODES).reader([[0]], needs, partial(RelabeledView, to_raw=lambda action: action))


def test_targets_are_those_of_other_goals():
    """r + 0.9 max Q(s', g), with the reward for the new goal; without the value where the episode terminated."""
    algorithm = dqn(3, 2)
    buffer = reader_of().sample([np.random.default_rng(0)], np.ones(1), 0)
    with policy_within_training_step(algorithm.policy):
        batch, indices = buffer.sample(60)
        batch = algorithm._preprocess_batch(batch, buffer, indices)
    assert len(set(batch.obs[:, DESIRED])) > 3 and 100 in batch.obs[:, DESIRED]
    assert (batch.obs[:, DESIRED] == batch.obs_next[:, DESIRED]).all()
    reward = np.where(batch.obs_next[:, ACHIEVED] == batch.obs[:, DESIRED], 0.0, -1.0)
    terminated = batch.obs[:, ACHIEVED] == 3
    assert (batch.rew == reward).all() and (batch.terminated == terminated).all() and terminated.any()
    with torch.no_grad():
        value = algorithm.policy.model(batch.obs_next)[0].max(1)[0].numpy()
    np.testing.assert_allclose(batch.returns[:, 0].numpy(), reward + 0.9 * value * ~terminated, rtol=1e-5)


def test_errors_of_rows_become_priorities():
    algorithm, reader = dqn(3, 2), reader_of(mt.Prioritized(alpha=1.0, beta=1.0))
    assert reader.size().tolist() == [8]
    before = reader.choice._slots().copy()
    buffer = reader.sample([np.random.default_rng(0)], np.ones(1), 0)
    with policy_within_training_step(algorithm.policy):
        algorithm.update(sample_size=64, buffer=buffer)
    reader.learned(buffer)
    after = reader.choice._slots()
    assert buffer.informed and buffer.transitions.errors.shape == (1, 64)
    assert (before > 0).sum() == 8 and (after[before > 0] != 1).all() and (after[before == 0] == 0).all()


@pytest.mark.parametrize("prioritized", [None, mt.Prioritized()])
def test_an_agent_learns_with_it(prioritized):
    memory = mt.Replay(400, prioritized=prioritized, hindsight=mt.Hindsight("future"))
    agent: Any = mt.OffPolicyAgent(dqn(12, 4), memory=memory, update_per_step=0.25)
    before = [parameter.clone() for parameter in agent.algorithm.parameters()]
    trainer(BitFlipping, {}, steps_per_train=150, test_freq=None).train([agent], [1], plot=False)
    assert any((old != new).any() for old, new in zip(before, agent.algorithm.parameters(), strict=True))


def test_returns_of_several_steps_are_refused():
    with pytest.raises(
        ConfigError, match="the algorithm has n_step_return_horizon=3, and transitions with other goals"
    ):
        mt.OffPolicyAgent(dqn(3, 2, n_step_return_horizon=3), memory=mt.Replay(hindsight=mt.Hindsight()))


def test_triplets_are_refused():
    with pytest.raises(ConfigError, match="tianshou's algorithms read no triplets: leave triplets= out"):
        mt.OffPolicyAgent(dqn(3, 2), memory=mt.Replay(triplets=mt.Triplets()))
