"""Strategies: their numbers, their names, and what does not go together."""

from __future__ import annotations

from dataclasses import fields

import pytest
import torch
from gymnasium import spaces

import marltrain as mt
from marltrain.core.errors import ConfigError
from marltrain.policies.backends.strategies import (
    STRATEGIES,
    DataParallel,
    LiveStrategy,
    MirroredStrategy,
    MultiWorkerMirroredStrategy,
    ParameterServerStrategy,
    chosen,
)
from tests.policies.some_batches import VECTOR

ACTIONS = spaces.Discrete(3)


def test_members_are_named():
    assert MirroredStrategy().members() == ()
    assert DataParallel(processes=1).members() == ("process 0",)
    assert MultiWorkerMirroredStrategy(workers=2).members() == ("worker 0", "worker 1")
    cluster = ParameterServerStrategy(workers=2, servers=1)
    assert cluster.members() == ("chief", "worker 0", "worker 1", "server 0")
    assert (cluster.learning(), cluster.computing()) == (1, 2)


@pytest.mark.parametrize("name", STRATEGIES)
def test_a_name_means_the_defaults(name):
    result = chosen(name, STRATEGIES[name].backend)
    assert result == STRATEGIES[name]()
    assert repr(result).startswith(f"{name}({fields(result)[0].name}=")


@pytest.mark.parametrize("value", [0, -1, 1.5, "2", True, None])
@pytest.mark.parametrize("name", STRATEGIES)
def test_a_number_that_makes_no_sense_is_refused(name, value):
    if (name, value) == ("MultiWorkerMirroredStrategy", None):  # joins a cluster
        assert MultiWorkerMirroredStrategy(workers=None).members() == ()
        return
    number = fields(STRATEGIES[name])[0].name
    with pytest.raises(ConfigError, match=f"{name}: {number} must be"):
        STRATEGIES[name](**{number: value})


@pytest.mark.parametrize(
    ("strategy", "backend", "told"),
    [
        (MirroredStrategy(), "torch", r"MirroredStrategy\(replicas=2\) is for backend 'tensorflow'.* Use DataParallel"),
        ("ParameterServerStrategy", "torch", "is for backend 'tensorflow'"),
        (DataParallel(), "tensorflow", r"DataParallel\(processes=2\) is for backend 'torch'.*Use MirroredStrategy or"),
        ("MirrorStrategy", "tensorflow", r"no strategy is called 'MirrorStrategy'. Did you mean 'MirroredStrategy'\?"),
        (2, "torch", "strategy must be one of DataParallel, .* got 2"),
        (DataParallel, "torch", "strategy must be one of DataParallel"),
    ],
)
def test_what_does_not_fit_is_told(strategy, backend, told):
    with pytest.raises(ConfigError, match=told):
        mt.PPO(VECTOR, ACTIONS, seed=0, backend=backend, strategy=strategy)


def test_a_live_object_of_a_parameter_server_is_told_what_to_write():
    live = type("ParameterServerStrategyV2", (), {"__module__": "tensorflow.python.distribute.some_strategy"})()
    meant = r"mt.ParameterServerStrategy\(workers=2, servers=1\)"
    with pytest.raises(ConfigError, match=f"marltrain starts the processes itself: write strategy={meant}"):
        chosen(live, "tensorflow")


@pytest.mark.parametrize(("name", "shares"), [("MirroredStrategy", True), ("CollectiveAllReduceStrategy", False)])
def test_a_live_strategy_is_taken(name, shares):
    live = type(name, (), {"__module__": "tensorflow.python.distribute.some_strategy"})()
    result = chosen(live, "tensorflow")
    assert result == LiveStrategy(live)
    assert result.shares_variables is shares


def test_models_of_ones_own_with_statistics_over_a_batch_and_compiling_go_with_no_strategy():
    model = torch.nn.Sequential(torch.nn.BatchNorm1d(5), torch.nn.Linear(5, 3))
    text = r"dqn: network 'q': layer '0' \(BatchNorm1d\) keeps statistics over .*DataParallel\(processes=2\) splits"
    with pytest.raises(ConfigError, match=text):
        mt.DQN(VECTOR, ACTIONS, seed=0, network=model, strategy=DataParallel())
    with pytest.raises(ConfigError, match="jit_compile=True goes with no strategy"):
        mt.DQN(VECTOR, ACTIONS, seed=0, jit_compile=True, strategy=DataParallel())


def test_agents_of_equal_strategies_stack():
    kinds = [
        mt.DQN(VECTOR, ACTIONS, seed=k, strategy=strategy).kind
        for k, strategy in enumerate([None, "DataParallel", DataParallel(processes=2), DataParallel(processes=3)])
    ]
    assert kinds[1] == kinds[2]
    assert len(set(kinds)) == 3


def test_a_strategy_is_chosen_at_run_time_and_not_saved(tmp_path):
    agent = mt.DQN(VECTOR, ACTIONS, seed=0, strategy=DataParallel())
    copy = agent.frozen_copy()
    assert copy.kind == agent.kind
    agent.save(tmp_path / "agent")
    (loaded,) = mt.load(tmp_path / "agent")
    assert isinstance(loaded, mt.DQN)
    assert loaded.kind == mt.DQN(VECTOR, ACTIONS, seed=0).kind
