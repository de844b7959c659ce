"""Devices of a run's agents: a team computes in one place, and the run reports what "auto" chose."""

from __future__ import annotations

import json
from typing import Any

import pytest

import marltrain as mt
from marltrain.core.errors import AgentError
from marltrain.policies.backends import torch as torch_backend
from marltrain.trainer.seats.devices import device_lines, join_devices
from tests.toys import Identity

OTHER = "cpu:0"
"""Another device than "cpu" for torch, and the same processor: it stands for a GPU."""
SMALL, LARGE = mt.MLP((8,)), mt.MLP((800, 800))


@pytest.fixture(autouse=True)
def _gpu(monkeypatch):
    """Let the torch backend find a GPU."""
    monkeypatch.setattr(torch_backend, "gpu", lambda: OTHER)


def team(*settings):
    """Return two agents of a team with different networks."""
    names = "player_0", "player_1"
    asked = {name: ("maddpg", own) for name, own in zip(names, settings, strict=True)}
    return mt.make_agents(asked, Identity, seed=0, critic_network=SMALL)


def devices(agents):
    return [str(agent.backend.device) for agent in agents]


def reason_of(agent: Any) -> str:
    return str(agent.placement.reason)


def test_a_team_follows_the_agent_on_a_gpu():
    agents = team({"network": SMALL}, {"network": LARGE})
    assert devices(agents) == ["cpu", OTHER]
    join_devices(agents)
    assert devices(agents) == [OTHER, OTHER]
    assert reason_of(agents[0]) == "another agent of its team computes there"


def test_a_team_follows_the_device_that_was_given():
    agents = team({"network": SMALL, "device": "cpu"}, {"network": LARGE})
    join_devices(agents)
    assert devices(agents) == ["cpu", "cpu"]


def test_two_devices_that_were_given_are_an_error():
    agents = team({"network": SMALL, "device": "cpu"}, {"network": SMALL, "device": OTHER})
    with pytest.raises(AgentError, match="compute on one backend and device, and theirs differ"):
        mt.DecentralizedTrainer(Identity, progress=False, run_dir=False).train(agents, [1, 1], plot=False)


def test_agents_that_learn_alone_keep_their_own_devices():
    settings = {"player_0": ("dqn", {"network": SMALL}), "player_1": ("dqn", {"network": LARGE})}
    agents = mt.make_agents(settings, Identity, seed=0)
    join_devices(agents)
    assert devices(agents) == ["cpu", OTHER]


def test_lines_name_the_device_the_players_and_the_reason(monkeypatch):
    agents = mt.make_agents("dqn", Identity, env_args={"players": 5}, seed=0, network=SMALL)
    agents[4] = mt.FrozenAgent(mt.make_agents("dqn", Identity, seed=0, network=SMALL, device="cpu")[0])
    reason = reason_of(agents[0])
    names = [f"player_{i}" for i in range(5)]
    assert device_lines(agents, names) == [
        f'device="auto" is cpu for player_0, player_1, player_2 and 1 more ({reason})'
    ]
    monkeypatch.setattr(torch_backend, "gpu", lambda: None)
    assert device_lines(agents, names) == []


def test_a_run_reports_the_choice_first_and_in_its_configuration(tmp_path, capsys):
    agents = mt.make_agents("dqn", Identity, seed=0, network=SMALL)
    trainer = mt.DecentralizedTrainer(
        Identity, num_train_envs=2, steps_per_train=8, test_freq=None, run_dir=tmp_path / "run"
    )
    trainer.train(agents, [1, 1], plot=False)
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == f'device="auto" is cpu for player_0, player_1 ({reason_of(agents[0])})'
    seat = json.loads((tmp_path / "run" / "config.json").read_text())["seats"][0]["agent"]
    assert (seat["device"], seat["device_reason"]) == ("cpu", f"auto: {reason_of(agents[0])}")
