"""Phases without a program: a notice, or an error with `jit_compile="require"`."""

from typing import Any

import keras
import numpy as np
import pytest
import torch
from gymnasium import spaces

import marltrain as mt
from marltrain.core.errors import ConfigError
from marltrain.jit.notices import listening
from marltrain.policies.learner.algorithm_learner import AlgorithmLearner
from tests.policies.learner.programs.test_program_step import learners_with
from tests.policies.learner.test_natural_gradient import bowl, updated
from tests.policies.some_batches import IMAGE, VECTOR, some_transitions

THREE = spaces.Discrete(3)
REQUIRED: dict[str, Any] = {"jit_compile": "require", "seed": 0}


KERAS = keras.Sequential([keras.layers.Dense(3)])
NETWORKS: dict[str, Any] = {"vector": (VECTOR, mt.MLP((6,))), "image": (IMAGE, mt.CNN((8,), filters=((4, 3, 2),)))}


@pytest.mark.parametrize("observed", NETWORKS)
def test_an_agent_whose_phases_have_programs(observed):
    space, network = NETWORKS[observed]
    agent = mt.DQN(space, THREE, **REQUIRED, network=network, dueling=True)
    batch = some_transitions(np.random.default_rng(0), space, 3, 1, 5)
    before = agent.learner_.export(0).arrays
    agent.learner_.update(batch, learn=np.ones(1, bool), batch_size=5)
    assert any((array != before[name]).any() for name, array in agent.learner_.export(0).arrays.items())


@pytest.mark.parametrize(
    ("kind", "space", "settings", "words"),
    [
        (mt.TRPO, VECTOR, {}, "trpo: .* phase 'actor', because it solves for a natural gradient"),
        (mt.DQN, VECTOR, {"network": torch.nn.Linear(5, 3)}, "jit_compile='require' compiles passes over networks"),
        (mt.DQN, VECTOR, {"strategy": "DataParallel"}, "jit_compile='require' goes with no strategy"),
        (mt.TRPO, VECTOR, {"backend": "tensorflow"}, "trpo: .* then tensorflow computes the phase"),
        (mt.DQN, VECTOR, {"backend": "tensorflow", "network": KERAS}, "dqn: .* network 'q' is a model of your own"),
    ],
)
def test_what_is_known_before_training_is_refused(kind, space, settings, words):
    with pytest.raises(ConfigError, match=words):
        kind(space, THREE, **REQUIRED, **settings)


def test_another_device_is_refused():
    """The backend stands for one on a GPU."""
    agent = mt.DQN(VECTOR, THREE, **REQUIRED)
    agent.backend.runs_programs = False
    with pytest.raises(ConfigError, match=r"dqn: .* phase 'q', because programs run on a CPU, not on"):
        AlgorithmLearner(agent.algorithm, agent.backend, [0], draw=True)


def test_a_phase_that_its_first_update_cannot_record_is_refused():
    (learner,) = learners_with(lambda ops, loss, batch: torch.exp(loss), 1, jit_compile="require")
    batch = some_transitions(np.random.default_rng(0), learner.algorithm.layout, spaces.Box(-2, 3, (2,)), 2, 5)
    before = learner.export(0).arrays
    with pytest.raises(ConfigError, match=r"phase 'critic', because it cannot be recorded: .*leave jit_compile out"):
        learner.update(batch, learn=np.ones(2, bool), batch_size=5)
    for name, array in learner.export(0).arrays.items():
        np.testing.assert_array_equal(array, before[name], name)


def test_a_natural_gradient_is_told_once():
    learner, lines = bowl(jit_compile=True), list[str]()
    with listening(lines.append):
        updated(learner)
        updated(learner)
    told: Any = [line for line in lines if "is computed by" in line]
    assert len(told) == 1 and "phase 'w' is computed by torch, because it solves for a natural gradient" in told[0]
