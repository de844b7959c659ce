"""SAC: the step of the temperature and the discrete soft value worked out by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest
from gymnasium import spaces

import marltrain as mt
from tests.policies.algorithms.twins import BOX, ON, rows_of
from tests.policies.some_batches import VECTOR, some_transitions


def constant(agent, **biases):
    """Set all weights to 0 and the biases of the heads to constants."""
    state = agent.learner_.export(0)
    for name, array in state.arrays.items():
        if name.startswith(("net/actor", "net/critic", "net/target")):
            array[...] = 0.0
    for name, values in biases.items():
        state.arrays[f"net/{name}/head0.bias"][:] = values
    agent.learner_.load(0, state)
    return agent


def test_the_discrete_soft_value_by_hand():
    """Probabilities 1/2, 1/4 and 1/4, where the third action of a row is illegal 2/3 and 1/3; temperature 0.5."""
    agent = mt.SAC(VECTOR, spaces.Discrete(3), seed=0, temperature=0.5, learning_rate=0.0, network=mt.MLP(()))
    constant(
        agent, actor=np.log([0.5, 0.25, 0.25]), critic=[[1, 2, 3], [3, 2, 1]], target_critic=[[4, 8, -8], [9, 5, 80]]
    )
    batch = some_transitions(np.random.default_rng(0), VECTOR, 3, 1, 2)
    batch.action[0], batch.reward[0], batch.discount[0] = [0, 2], [1.0, 0.0], [1.0, 0.5]
    batch.legal = np.array([[[True, True, True], [True, False, True]]])
    batch.next_legal = np.array([[[True, True, True], [True, True, False]]])
    metrics = agent.learner_.update(batch, learn=ON, batch_size=2)
    entropy, of_two = 1.5 * math.log(2), math.log(3) - 2 / 3 * math.log(2)
    # the smaller values 4, 5 and -8
    first = 1 + 4 / 2 + 5 / 4 - 8 / 4 + 0.5 * entropy
    second = 0.5 * (2 / 3 * 4 + 1 / 3 * 5 + 0.5 * of_two)
    errors = np.array([[1 - first, 3 - second], [3 - first, 1 - second]])
    assert metrics["loss/critic"][0] == pytest.approx(0.5 * np.square(errors).mean(1).sum(), rel=1e-5)
    # the smaller values of the online critics are 1, 2 and 1
    values = 1 / 2 + 2 / 4 + 1 / 4 + 0.5 * entropy, 1 + 0.5 * of_two
    assert metrics["loss/actor"][0] == pytest.approx(-np.mean(values), rel=1e-5)
    assert metrics["entropy"][0] == pytest.approx((entropy + of_two) / 2, rel=1e-5)


def test_the_step_of_the_temperature_by_hand():
    """Plain SGD: log alpha falls by rate * (entropy - target); rows with one legal action count 0."""
    agent = mt.SAC(
        VECTOR, spaces.Discrete(3), seed=0, network=mt.MLP(()), optimizer="sgd", learning_rate=0.0,
        temperature_learning_rate=0.1, initial_temperature=0.3, target_entropy_ratio=0.25,
    )  # fmt: skip
    constant(agent, actor=np.zeros(3), critic=np.zeros((2, 3)), target_critic=np.zeros((2, 3)))
    batch = some_transitions(np.random.default_rng(0), VECTOR, 3, 1, 3)
    batch.action[:], batch.legal = 0, np.array([[[True] * 3, [True, True, False], [True, False, False]]])
    metrics = agent.learner_.update(batch, learn=ON, batch_size=3)
    excess = 0.75 * (math.log(3) + math.log(2) + 0) / 3
    stepped = agent.learner_.export(0).arrays["net/temperature/head0.free"]
    assert stepped == pytest.approx([math.log(0.3) - 0.1 * excess], rel=1e-5)
    assert metrics["temperature"][0] == pytest.approx(0.3)
    assert metrics["loss/temperature"][0] == pytest.approx(math.log(0.3) * excess, rel=1e-5)


@pytest.mark.parametrize(("target", "rises"), [(5.0, True), (-30.0, False)])
def test_the_temperature_moves_the_entropy_towards_its_target(target, rises):
    agent = mt.SAC(VECTOR, BOX, seed=0, network=mt.MLP((6,)), target_entropy=target, learning_rate=0.01)
    rng = np.random.default_rng(0)
    first, *_, last = (agent.learner_.update(rows_of(rng, BOX), learn=ON, batch_size=13) for _ in range(20))
    assert (last["temperature"][0] > first["temperature"][0]) == rises


def test_a_fixed_temperature_is_not_trained():
    agent = mt.SAC(VECTOR, BOX, seed=0, network=mt.MLP((6,)), temperature=mt.linear(0.5, 0.1, 10))
    metrics = agent.learner_.update(rows_of(np.random.default_rng(0), BOX), learn=ON, batch_size=13)
    assert "loss/temperature" not in metrics
    assert "temperature" not in agent.learner_.weights.online
    assert agent.hyper.temperature == 0.5
