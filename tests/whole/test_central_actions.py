"""Agents with critics of the actions of all players in training: different spaces, deaths, other seats, files."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import marltrain as mt
from marltrain.core.errors import AgentError
from tests.toys import Crowd, Identity, Motley
from tests.trainer.running import SMALL, changed, trainer, weights

FEW: dict[str, Any] = {"seed": 0, "network": SMALL, "learning_starts": 0, "batch_size": 8, "update_per_step": 0.2}


@pytest.mark.parametrize("algo", ["maddpg", "masac"])
def test_players_of_different_spaces_learn_although_one_dies_and_one_is_absent(algo):
    agents: list[Any] = mt.make_agents(algo, Crowd, **FEW)
    assert [agent.hyper.joint_action_size for agent in agents] == [8] * 3
    before = weights(agents)
    trainer(Crowd, steps_per_train=120).train(agents, learning_mask=[1, 1, 1])
    assert changed(before, weights(agents)) == [True] * 3


def test_choices_of_three_wheels_and_a_box_beside_images():
    network = mt.CNN((4,), filters=((2, 3, 1),))
    agents = mt.make_agents("maddpg", Motley, **{**FEW, "critic_input": "own", "network": network})
    before = weights(agents)
    trainer(Motley, steps_per_train=60).train(agents, learning_mask=[1, 1])
    assert changed(before, weights(agents)) == [True] * 2


def test_two_learn_beside_another_algorithm_a_random_player_and_a_frozen_one(tmp_path):
    """The critics see all five; an agent is saved, and acts, alone."""
    args, names = {"players": 5, "length": 4}, {"player_[03]": "matd3", "player_[124]": "dqn"}
    agents = mt.make_agents(names, Identity, env_args=args, **FEW)
    agents[2] = mt.RandomAgent()
    agents[4] = mt.FrozenAgent(mt.make_agents("ppo", Identity, env_args=args, seed=3, network=SMALL)[4])
    learning = [agents[i] for i in (0, 1, 3)]
    before = weights(learning)
    run = trainer(Identity, args, steps_per_train=150)
    run.train(agents, learning_mask=[1, 1, 0, 1, 0])
    assert changed(before, weights(learning)) == [True] * 3
    mt.save(tmp_path / "one", agents[3])
    (alone,) = mt.load(tmp_path / "one")
    assert [alone.act(i) for i in range(3)] == [agents[3].act(i) for i in range(3)]


def test_teams_see_each_other():
    """Two teams with two learners: the critics of each see the other's actions."""
    agents = mt.make_agents("masac", Crowd, teams="prefix", **FEW)
    before = weights(agents)
    trainer(Crowd, steps_per_train=120).train(agents, learning_mask=[1, 1, 1])
    assert changed(before, weights(agents)) == [True] * 3


def test_agents_of_another_number_of_actions_are_refused():
    agents = mt.make_agents("maddpg", Crowd, **FEW, joint_action_size=9)
    with pytest.raises(AgentError, match=r"joint actions of 9 values \(joint_action_size\), and those of .* have 8"):
        trainer(Crowd).train(agents, learning_mask=[1, 1, 1])


def test_a_native_game_of_different_spaces_trains():
    env = "marltrain/simple_speaker_listener_v4"
    agents: list[Any] = mt.make_agents("matd3", env, **FEW)
    before = weights(agents)
    trainer(env, steps_per_train=200).train(agents, learning_mask=[1, 1])
    assert changed(before, weights(agents)) == [True] * 2
    assert np.isfinite(agents[0].learner_.weights.export(0)["net/actor/head0.weight"]).all()
