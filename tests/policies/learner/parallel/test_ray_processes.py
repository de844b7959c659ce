"""The processes of DataParallel as Ray actors: the same bits as child processes, and errors that name the actor."""

import os
import signal
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

import marltrain as mt
from marltrain.core.errors import ConfigError, WorkerError
from marltrain.policies.backends.strategies import DataParallel
from marltrain.policies.learner.algorithm_learner import AlgorithmLearner
from tests.policies.some_batches import VECTOR, some_rollout
from tests.tiers import LONG


def learner(**settings: Any) -> AlgorithmLearner:
    """Return a learner of three agents, whose minibatches two processes share."""
    first = mt.PPO(VECTOR, spaces.Discrete(4), seed=0, strategy=DataParallel(processes=2, **settings))
    return AlgorithmLearner(first.algorithm, first.backend, [0, 1, 2], draw=True)


def update(one: AlgorithmLearner) -> None:
    batch = some_rollout(np.random.default_rng(1), VECTOR, spaces.Discrete(4), [21, 16, 9])
    one.update(batch, learn=np.array([True, True, False]), batch_size=8)


if LONG:

    @pytest.mark.usefixtures("ray_cluster")
    def test_ray_actors_make_the_same_bits_as_child_processes_and_lost_ones_are_errors():
        here: Any = learner()
        there: Any = learner(address="local", timeout=20.0)
        try:
            for _ in range(2):
                update(here)
                update(there)
            for row in range(3):
                mine, theirs = here.export(row), there.export(row)
                assert mine.info == theirs.info
                for name, array in mine.arrays.items():
                    np.testing.assert_array_equal(array, theirs.arrays[name], err_msg=name)
            for number, sign in (1, signal.SIGKILL), (0, signal.SIGSTOP):
                os.kill(there.steps.processes.pids[f"process {number}"], sign)
                text = "ended: " if sign == signal.SIGKILL else "did not answer within .*; nor did process 1 of "
                with pytest.raises(WorkerError, match=rf"process {number} of DataParallel\(.*, on node .* {text}"):
                    update(there)
                update(there)  # starts new actors
        finally:
            here.close()
            there.close()

    @pytest.mark.usefixtures("ray_cluster")
    def test_resources_that_no_node_has_are_refused():
        with pytest.raises(ConfigError, match=r"each process of DataParallel\(.*\) needs \{'GPU': 1\}, which no node"):
            update(learner(address="local", resources={"num_gpus": 1}))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"resources": {"num_cpus": 1}}, 'resources are those of Ray actors: give the address .* address="auto"'),
        ({"address": "auto", "resources": {"CPU": 1}}, r"DataParallel: resources\['CPU'\] is written 'num_cpus' here"),
        ({"address": "auto", "timeout": 0}, "DataParallel: timeout must be greater than 0, got 0"),
    ],
)
def test_wrong_settings_are_refused(settings, message):
    with pytest.raises(ConfigError, match=message):
        DataParallel(**settings)


def test_a_strategy_shows_the_cluster_only_if_there_is_one():
    assert repr(DataParallel(processes=3)) == "DataParallel(processes=3)"
    text = "DataParallel(processes=2, address='auto', resources={'num_gpus': 1})"
    assert repr(DataParallel(address="auto", resources={"num_gpus": 1})) == text
