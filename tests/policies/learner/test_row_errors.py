"""Errors of transitions outside of updates: by hand, as in an update, stacked and in both frameworks."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

import marltrain as mt
from marltrain.core.errors import ConfigError
from marltrain.policies.algorithms.dqn import DQNAlgorithm
from marltrain.policies.backends import make_backend
from marltrain.policies.learner.algorithm_learner import AlgorithmLearner
from marltrain.policies.learner.row_errors import RowErrors
from tests.policies.learner.test_gradient_step_priorities import constants
from tests.policies.some_batches import some_transitions
from tests.tiers import LONG

VECTOR, LEVER = spaces.Box(-1, 1, (4,), np.float32), spaces.Box(-1, 1, (2,), np.float32)
THREE = spaces.Discrete(3)
MEMORY = mt.Replay(prioritized=mt.Prioritized(initial="error"))
KINDS: dict[str, tuple[Any, Any]] = {
    "dqn": (mt.DQN, THREE), "c51": (mt.C51, THREE), "rainbow": (mt.Rainbow, THREE), "ddpg": (mt.DDPG, LEVER),
    "td3": (mt.TD3, LEVER), "sac": (mt.SAC, LEVER), "sac, discrete": (mt.SAC, THREE),
}  # fmt: skip


def learner_of(kind: str, seeds: list[int], backend: str = "torch", **settings: Any) -> AlgorithmLearner:
    make, actions = KINDS[kind]
    agent = make(VECTOR, actions, seed=0, backend=backend, memory=MEMORY, network=mt.MLP((8,)), **settings)
    return AlgorithmLearner(agent.algorithm, agent.backend, seeds, draw=True)


def rate_of(learner: AlgorithmLearner) -> RowErrors:
    return RowErrors(learner.algorithm, learner.backend, learner.weights, learner.hyper)


def batch_of(kind: str, agents: int) -> Any:
    rng, actions = np.random.default_rng(0), KINDS[kind][1]
    return some_transitions(rng, VECTOR, actions, agents, 7, n_step=3, masked=actions is THREE)


def test_by_hand():
    """Q = 1, 2 and 4, and Q = 50 of the target network, which counts for nothing; gamma^m is 0.5 or 0."""
    agent = mt.DQN(VECTOR, THREE, seed=0, memory=MEMORY, network=mt.MLP((4,), "relu"))
    constants(agent, {"q": [1.0, 2.0, 4.0], "target_q": [50.0] * 3})
    batch: Any = some_transitions(np.random.default_rng(0), VECTOR, THREE, 1, 4, masked=True)
    batch.action[:], batch.reward[:], batch.discount[:] = [[0, 1, 2, 0]], [[1, 1, 1, 9]], [[0.5, 0.5, 0.5, 0.0]]
    batch.next_legal[:] = [[[1, 1, 1], [1, 1, 0], [1, 0, 0], [1, 1, 1]]]
    before = agent.state()
    found = rate_of(agent.learner_)(batch)
    np.testing.assert_allclose(found, [[1 + 2 - 1, 0.0, abs(1 + 0.5 - 4), 9 - 1]], rtol=1e-6)
    after = agent.state()
    assert before.info == after.info
    assert all(np.array_equal(array, after.arrays[name]) for name, array in before.arrays.items())


@pytest.mark.parametrize("kind", ["dqn", "c51", "ddpg"])
def test_errors_are_those_of_an_update_with_equal_target_networks(kind):
    """Without random numbers, and as long as the target networks are equal to the online networks."""
    learner, batch = learner_of(kind, [3, 4]), batch_of(kind, 2)
    found = rate_of(learner)(batch)
    batch.rows = np.zeros(batch.weight.shape, np.int64)
    learner.update(batch, learn=np.ones(2, bool), batch_size=7)
    np.testing.assert_allclose(found, batch.errors, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("kind", ["dqn", "sac", *LONG * ["c51", "rainbow", "ddpg", "td3", "sac, discrete"]])
@pytest.mark.parametrize("backend", ["torch", *LONG * ["tensorflow"]])
def test_stacked_equals_looped(kind, backend):
    both, batch = learner_of(kind, [3, 4], backend), batch_of(kind, 2)
    found = rate_of(both)(batch)
    for k, seed in enumerate((3, 4)):
        alone, own = learner_of(kind, [seed], backend), batch_of(kind, 2)
        for name, value in vars(own).items():
            if isinstance(value, np.ndarray):
                setattr(own, name, value[k : k + 1])
        np.testing.assert_allclose(found[k : k + 1], rate_of(alone)(own), rtol=1e-5, atol=1e-6)
    assert found.shape == (2, 7) and len(np.unique(found)) == 14


@pytest.mark.parametrize("kind", ["rainbow", *LONG * ["dqn", "c51", "ddpg", "td3", "sac", "sac, discrete"]])
def test_torch_equals_tensorflow(kind):
    """From equal seeds: networks with noise, too, whose noise is 0, so that calls repeat their results."""
    torch, tensorflow = (rate_of(learner_of(kind, [3, 4], backend)) for backend in ("torch", "tensorflow"))
    found = torch(batch_of(kind, 2))
    np.testing.assert_allclose(found, tensorflow(batch_of(kind, 2)), rtol=1e-5, atol=1e-5)
    assert np.array_equal(found, torch(batch_of(kind, 2)))


def test_observations_are_normalized_as_in_updates():
    learner, batch = learner_of("dqn", [3], normalize_observations=True), batch_of("dqn", 1)
    plain = rate_of(learner)(batch)
    kept = learner.weights.statistics["observation"]
    kept.update(batch.obs * 3 + 1, np.ones((1, 7), np.float32))
    assert np.abs(rate_of(learner)(batch) - plain).max() > 1e-3


class WithPrepare(DQNAlgorithm):
    name = "prepared"

    def prepare(self, ops, nets, batch, tensors, hyper):
        return tensors


class OverRows(DQNAlgorithm):
    name = "over rows"

    def over_rows(self, ops, batch):
        return None


@pytest.mark.parametrize(
    ("kind", "message"), [(WithPrepare, "defines `prepare`, which may change"), (OverRows, "defines `over_rows`, whic")]
)
def test_algorithms_whose_errors_need_more_than_a_row_are_refused(kind, message):
    agent = mt.DQN(VECTOR, THREE, seed=0, memory=MEMORY)
    algorithm = kind(agent.algorithm.settings, agent.algorithm.layout, THREE)
    with pytest.raises(ConfigError, match=message):
        AlgorithmLearner(algorithm, make_backend("torch", "cpu"), [0], draw=True)


def test_other_agents_and_memories_are_refused():
    from torch import nn, optim

    goals = spaces.Dict(dict.fromkeys(("observation", "achieved_goal", "desired_goal"), VECTOR))
    triplets = mt.Replay(prioritized=mt.Prioritized(initial="error"), triplets=mt.Triplets())
    with pytest.raises(ConfigError, match="its losses read triplets, which reach beyond the n steps of a row"):
        mt.TRL(goals, THREE, seed=0, memory=triplets)
    model = nn.Linear(4, 3)
    with pytest.raises(ConfigError, match="its networks are modules of your own"):
        mt.DQN(VECTOR, THREE, seed=0, memory=MEMORY, network=model)
    with pytest.raises(
        ConfigError, match=r"CustomAgent: Prioritized\(initial=.error.\) computes the errors of new rows"
    ):
        mt.CustomAgent(model, lambda model, batch: None, optim.Adam(model.parameters()), memory=MEMORY)
    with pytest.raises(ConfigError, match=r"Prioritized\(initial\) has no effect on the replay of rollouts"):
        mt.PPO(VECTOR, THREE, seed=0, memory=MEMORY)
