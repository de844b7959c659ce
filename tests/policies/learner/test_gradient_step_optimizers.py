"""Weight decay and momentum from an agent's settings to its optimizer: set at any time, each agent with its own."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

import marltrain as mt
from marltrain.core.errors import ConfigError
from marltrain.policies.backends import make_backend
from marltrain.policies.learner.algorithm_learner import AlgorithmLearner
from marltrain.policies.networks.specs import MLP
from tests.policies.some_batches import VECTOR, some_transitions
from tests.tiers import LONG

BACKENDS = {
    "torch": make_backend("torch", "cpu"),
    "compiled code": make_backend("torch", "cpu", jit_compile=True),
    "tensorflow": make_backend("tensorflow", "cpu"),
    "xla": make_backend("tensorflow", "cpu", jit_compile=True),
}
THREE = spaces.Discrete(3)
RATE, DECAY = 0.01, 0.5


def learner_of(backend: Any, **settings: Any) -> AlgorithmLearner:
    """Two agents of DQN, in one stack."""
    agent = mt.DQN(VECTOR, THREE, seed=0, device="cpu", network=MLP((4,)), learning_rate=RATE, **settings)
    return AlgorithmLearner(agent.algorithm, backend, [0, 1], draw=True)


def weights_of(learner: AlgorithmLearner) -> np.ndarray:
    """The weights of both agents."""
    return np.array(learner.backend.numpy(learner.weights.online["q"].flat))


@pytest.mark.parametrize("name", BACKENDS)
def test_decay_that_is_set_in_training_shrinks_the_weights_of_its_agent_alone(name):
    """AdamW: the step without decay, and rate * decay of the weights. Back at 0, steps are as if there were none."""
    decaying, plain = (learner_of(BACKENDS[name], optimizer="adamw") for _ in range(2))
    rng = np.random.default_rng(0)
    for decay in (0.0, DECAY, 0.0):
        before = weights_of(plain)
        decaying.weights.assign(plain.weights.trained(targets=True))
        decaying.set_hyper(1, "weight_decay", decay)
        batch = some_transitions(rng, VECTOR, 3, 2, 6)
        for learner in (decaying, plain):
            learner.update(batch, learn=np.ones(2, bool), batch_size=6)
        moved, expected = weights_of(decaying), weights_of(plain)
        np.testing.assert_array_equal(moved[0], expected[0])
        np.testing.assert_allclose(moved[1], expected[1] - RATE * decay * before[1], rtol=1e-6, atol=1e-7)
        assert abs(expected - before).min(0).max() > 1e-3


@pytest.mark.filterwarnings("ignore:.torch.jit:DeprecationWarning")  # torch's compiler warns of torch's own
@pytest.mark.filterwarnings("ignore:.*autograd.function.Function:DeprecationWarning")
@pytest.mark.parametrize("settings", [{"optimizer": "adamax"}, {"optimizer": "sgd", "momentum": 0.9}], ids=str)
def test_frameworks_take_equal_steps(settings):
    """Compiled code has no Adamax, which torch.compile compiles in its place, in seconds: in the long tier."""
    slow = settings["optimizer"] == "adamax" and not LONG
    backends = [backend for name, backend in BACKENDS.items() if not (slow and name == "compiled code")]
    learners = [learner_of(backend, weight_decay=0.1, **settings) for backend in backends]
    rng = np.random.default_rng(0)
    for _ in range(5):
        batch = some_transitions(rng, VECTOR, 3, 2, 6)
        for learner in learners:
            learner.update(batch, learn=np.ones(2, bool), batch_size=6)
    first, *others = map(weights_of, learners)
    for other in others:
        np.testing.assert_allclose(other, first, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("name", "optimizer"),
    [("torch", "adam"), ("torch", "adamw"), ("tensorflow", "adamw"), *LONG * [("tensorflow", "adam")]],
)
def test_a_temperature_does_not_decay(name, optimizer):
    """One step: the temperature's gradient depends on the policy before the step only."""
    moved = []
    for decay in (0.0, DECAY):
        agent = mt.SAC(
            VECTOR, THREE, seed=0, device="cpu", network=MLP((4,)), optimizer=optimizer, weight_decay=decay,
            initial_temperature=0.5, learning_rate=0.1, max_grad_norm=None,
        )  # fmt: skip
        learner = AlgorithmLearner(agent.algorithm, BACKENDS[name], [0, 1], draw=True)
        learner.update(
            some_transitions(np.random.default_rng(0), VECTOR, THREE, 2, 6), learn=np.ones(2, bool), batch_size=6
        )
        moved.append({key: np.array(learner.backend.numpy(net.flat)) for key, net in learner.weights.online.items()})
    plain, decayed = moved
    np.testing.assert_array_equal(decayed["temperature"], plain["temperature"])
    assert abs(plain["temperature"] - np.log(0.5)).min() > 0.05
    assert all(abs(decayed[key] - plain[key]).max() > 1e-3 for key in ("actor", "critic"))


def test_momentum_is_of_sgd_only():
    with pytest.raises(
        ConfigError, match=r"DQN: momentum=0.9 has no effect with optimizer='adam'; it needs optimizer='sgd'"
    ):
        mt.DQN(VECTOR, THREE, momentum=0.9)
    with pytest.raises(ConfigError, match=r"PPO: momentum=.* has no effect with optimizer='adamw'"):
        mt.PPO(VECTOR, THREE, optimizer="adamw", momentum=mt.linear(0.5, 0.9, 100))
    agent = mt.DQN(VECTOR, THREE)
    agent.hyper.momentum = 0.0
    with pytest.raises(ConfigError, match=r"dqn: momentum=0.5 has no effect"):
        agent.hyper.momentum = 0.5
    with pytest.raises(ConfigError, match=r"PPO: weight_decay must be at least 0, got -0.1"):
        mt.PPO(VECTOR, THREE, weight_decay=-0.1)
    with pytest.raises(
        ConfigError, match="PPO: optimizer must be one of adam, adamw, adamax, rmsprop, sgd, got 'lion'"
    ):
        mt.PPO(VECTOR, THREE, optimizer="lion")
