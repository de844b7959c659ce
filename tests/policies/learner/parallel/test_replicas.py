"""A learner whose passes processes make equals one that makes its own; here those of torch, which start quickly."""

from __future__ import annotations

import os
import signal
import threading
import time

import numpy as np
import pytest
from gymnasium import spaces

import marltrain as mt
from marltrain.core.errors import ConfigError, WorkerError
from marltrain.policies.algorithms.dqn import DQNAlgorithm
from marltrain.policies.backends.strategies import DataParallel
from marltrain.policies.learner.algorithm_learner import AlgorithmLearner
from marltrain.policies.learner.parallel.replicas import part_of
from tests.policies.some_batches import PICTURE_AND_VECTOR, VECTOR, some_rollout, some_transitions

TOLERANCE = 1e-5
"""What is left of summing the gradient of each part apart, after Adam's steps."""


@pytest.fixture
def made():
    """Make learners of three agents, and end their processes afterwards."""
    learners = []

    def make(agent_class, space, strategy, **settings):
        first = agent_class(space, spaces.Discrete(4), seed=0, strategy=strategy, **settings)
        learners.append(AlgorithmLearner(first.algorithm, first.backend, [0, 1, 2], draw=True))
        return learners[-1]

    yield make
    for learner in learners:
        learner.close()


def assert_equal_learners(one, other, tolerance=TOLERANCE):
    for row in range(one.num_agents):
        mine, theirs = one.export(row), other.export(row)
        assert mine.info == theirs.info
        for name, array in mine.arrays.items():
            np.testing.assert_allclose(array, theirs.arrays[name], rtol=0, atol=tolerance, err_msg=f"{row}: {name}")


def update_both(alone, shared, batch, learn=(True, True, True)):
    first, second = (one.update(batch, learn=np.array(learn), batch_size=8) for one in (alone, shared))
    assert first.keys() == second.keys()
    for name, value in first.items():
        np.testing.assert_allclose(second[name], value, rtol=1e-4, atol=1e-4, err_msg=name)


def everywhere_the_same(learner):
    """Whether weights and moments are the same bits in all processes, and here."""
    answers = [learner.weights.trained(), *learner.steps.processes.ask_all("trained")]
    return all((answers[0][name] == one[name]).all() for one in answers for name in answers[0])


# Parts of the rows ----------------------------------------------------------------------------------------------------


def columns(rows):
    numbers = np.arange(rows)[None]
    return {"x": numbers * 10, "weight": np.full((1, rows), 0.5, np.float32), "legal": None, "extras": {"y": -numbers}}


def test_parts_are_equally_wide_and_what_is_missing_weighs_nothing():
    parts = [part_of(columns(5), i, 3) for i in range(3)]
    assert [part["x"].tolist() for part in parts] == [[[0, 10]], [[20, 30]], [[40, 40]]]
    assert [part["weight"].tolist() for part in parts] == [[[0.5, 0.5]], [[0.5, 0.5]], [[0.5, 0.0]]]
    assert parts[2]["extras"]["y"].tolist() == [[-4, -4]]
    assert parts[2]["legal"] is None


def test_fewer_rows_than_parts():
    parts = [part_of(columns(1), i, 3) for i in range(3)]
    assert [part["x"].tolist() for part in parts] == [[[0]], [[0]], [[0]]]
    assert [part["weight"].tolist() for part in parts] == [[[0.5]], [[0.0]], [[0.0]]]


# Learning together ----------------------------------------------------------------------------------------------------


def test_ppo_over_three_processes_equals_ppo_alone(made):
    """PopArt changes weights before the passes of an update, a penalty a hyperparameter after them."""
    small = mt.CNN(hidden=(8,), filters=((4, 3, 2),))
    options = {"network": small, "batch_size": 8, "epochs": 2, "normalize_values": "popart", "kl_penalty": 0.5}
    alone, shared = (made(mt.PPO, PICTURE_AND_VECTOR, s, **options) for s in (None, DataParallel(processes=3)))
    rng = np.random.default_rng(0)
    for i in range(4):
        batch = some_rollout(rng, PICTURE_AND_VECTOR, spaces.Discrete(4), [13, 2, 17], masked=True)
        update_both(alone, shared, batch, (True, i % 2 == 0, True))
    assert_equal_learners(alone, shared)
    assert everywhere_the_same(shared)


def test_dqn_over_two_processes_through_masks_loads_and_numbers_that_change(made):
    options = {"target_sync": 3, "network": mt.MLP(hidden=(8,))}
    alone, shared = (made(mt.DQN, VECTOR, s, **options) for s in (None, "DataParallel"))
    rng = np.random.default_rng(1)
    assert shared.steps.processes.pids == {}, "nothing starts before the first update"
    for rows in (13, 1, 8):
        update_both(alone, shared, some_transitions(rng, VECTOR, 4, 3, rows))
    pids = shared.steps.processes.pids
    assert list(pids) == ["process 0", "process 1"]
    before = shared.export(1)
    update_both(alone, shared, some_transitions(rng, VECTOR, 4, 3, 9), (True, False, True))
    after = shared.export(1)
    assert all((before.arrays[name] == array).all() for name, array in after.arrays.items()), "it does not learn"
    state = alone.export(0)
    for one in (alone, shared):
        one.load(2, state)
        one.set_hyper(0, "learning_rate", 1e-2)
    for rows in (5, 7, 6):
        update_both(alone, shared, some_transitions(rng, VECTOR, 4, 3, rows))
    assert shared.steps.processes.pids == pids, "loading needs no new processes"
    assert_equal_learners(alone, shared)
    assert everywhere_the_same(shared)


def test_a_killed_process_is_named_and_learning_can_go_on_anew(made):
    options = {"network": mt.MLP(hidden=(8,))}
    alone, shared = (made(mt.DQN, VECTOR, s, **options) for s in (None, DataParallel()))
    rng = np.random.default_rng(2)
    update_both(alone, shared, some_transitions(rng, VECTOR, 4, 3, 6))
    kept = shared.export(0)
    victim = shared.steps.processes.pids["process 1"]
    threading.Timer(0.2, os.kill, (victim, signal.SIGKILL)).start()
    start = time.monotonic()
    with pytest.raises(WorkerError, match=r"process 1 of DataParallel\(processes=2\) was killed by signal 9"):
        while time.monotonic() - start < 30:
            shared.update(some_transitions(rng, VECTOR, 4, 3, 6), learn=np.ones(3, bool), batch_size=6)
    assert shared.steps.processes.pids == {}
    shared.load(0, kept)
    for row in range(3):
        alone.load(row, shared.export(row))
    update_both(alone, shared, some_transitions(rng, VECTOR, 4, 3, 6))
    assert_equal_learners(alone, shared)


class Grumbling(DQNAlgorithm):
    """Raises where it learns, and only there."""

    def _loss(self, ops, nets, batch, hyper):
        raise ArithmeticError("I would rather not")


class GrumblingAgent(mt.DQN):
    algorithm_class = Grumbling


def test_an_exception_in_a_process_comes_back_with_its_traceback(made):
    shared = made(GrumblingAgent, VECTOR, DataParallel(processes=1))
    batch = some_transitions(np.random.default_rng(3), VECTOR, 4, 3, 6)
    with pytest.raises(WorkerError, match=r"process 0 of .* failed: ArithmeticError: I would rather not") as caught:
        shared.update(batch, learn=np.ones(3, bool), batch_size=6)
    assert "in _loss" in str(caught.value)


def test_an_algorithm_that_cannot_be_sent_is_refused_at_once(made):
    class Local(DQNAlgorithm):
        lock = threading.Lock()

    class LocalAgent(mt.DQN):
        algorithm_class = Local

    with pytest.raises(ConfigError, match="dqn: its class and settings cannot be sent"):
        made(LocalAgent, VECTOR, DataParallel())
