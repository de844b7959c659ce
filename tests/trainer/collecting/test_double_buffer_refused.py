"""Settings, agents and environments for which double_buffer=True is refused."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, cast

import pytest

import marltrain as mt
from marltrain.core.errors import ConfigError
from marltrain.envs import make_vector
from marltrain.trainer.collecting.double_buffer import DoubleBufferedCollector
from tests.policies.agents.test_algorithm_agent import Own
from tests.toys import Identity
from tests.trainer.collecting.test_double_buffer import ODD
from tests.trainer.running import Student, dqn, ppo, trainer


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"vector": "dummy", "num_workers": None}, r'not vector="dummy": use vector="subproc" with at least 2 workers'),
        ({"num_workers": 1}, "not 1 worker: use"),
        ({"num_train_envs": 1, "num_workers": None}, "not num_train_envs=1: use"),
        ({"double_buffer": 2}, "double_buffer must be True or False"),
    ],
)
def test_invalid_settings_of_double_buffer(settings, message):
    with pytest.raises(ConfigError, match=message):
        trainer(**{**ODD, "double_buffer": True, **settings})
    trainer(**{**ODD, **settings, "double_buffer": False})


def test_default_number_of_workers_on_one_core(monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0})
    with pytest.raises(ConfigError, match="not 1 worker"):
        trainer(**{**ODD, "num_workers": None}, double_buffer=True)
    trainer(**ODD, double_buffer=True)


@pytest.mark.parametrize(
    ("agent", "player"),
    [
        (lambda: Student(lambda row: 0), "player_1"),
        (mt.RandomAgent, "player_1"),
        (lambda: dqn(network=lambda: Own(3, width=3))[1], "player_1"),
    ],
)
def test_agents_that_cannot_act_ahead_are_refused(agent, player):
    with pytest.raises(
        ConfigError, match=rf"needs agents of marltrain's own .* over NetworkSpecs.*{player} is of another kind"
    ):
        trainer(**ODD, double_buffer=True).train([ppo()[0], agent()], [1, 0], plot=False)
    assert not Path("run").exists()


def test_environments_without_workers_are_refused():
    with make_vector(Identity, None, 2) as vector, pytest.raises(TypeError, match="ask `check_places` first"):
        DoubleBufferedCollector(vector, cast("Any", None), cast("Any", None), [])
