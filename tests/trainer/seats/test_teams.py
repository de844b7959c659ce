"""Teams by name, pattern and prefix, and teams in training: different spaces, deaths, other seats, wrong input."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import marltrain as mt
from marltrain.core.errors import AgentError, ConfigError
from marltrain.policies.learner.joint_learner import JointLearner
from marltrain.trainer.seats.teams import joint_teams
from tests.toys import Crowd, Identity, Relay
from tests.trainer.running import SMALL, changed, trainer, weights

NAMES = ["adversary_0", "adversary_1", "agent_0", "ref"]
EVERYONE = [True] * 4


def made(algo: Any, env: Any = Crowd, **more: Any) -> list[Any]:
    replaying = {} if algo == "vdac" else {"learning_starts": 0, "batch_size": 8}
    return mt.make_agents(algo, env, **{"seed": 0, "network": SMALL, **replaying, **more})


@pytest.mark.parametrize(
    ("teams", "expected"),
    [(None, ["all"] * 4), ("prefix", ["adversary", "adversary", "agent", "ref"]),
     ({"red": ["adversary_*"], "rest": ["agent_0", "re?"]}, ["red", "red", "rest", "rest"])],
)  # fmt: skip
def test_players_are_in_teams_by_name_pattern_or_prefix(teams, expected):
    assert joint_teams(teams, NAMES, EVERYONE) == expected


@pytest.mark.parametrize(
    ("teams", "error"),
    [({"red": ["adversary_*"], "all": ["a*", "ref"]}, r"'adversary_0' is in the teams 'red' and 'all'"),
     ({"red": []}, r"teams: team 'red' must be a list of at least one player, got \[\]"),
     ({"red": "ref"}, r"must be a list of at least one player, got 'ref'"),
     ({"red": ["agnt_0", "*"]}, r"names 'agnt_0', which matches no player\. Did you mean 'agent_0'"),
     ({"red": ["a*"]}, r"player 'ref', whose agent learns together with others, is in no team: .* 'red'"),
     ({}, r"teams must name at least one team, got \{\}: leave it out"),
     ({1: ["*"]}, "teams: a team is named by text, got 1"),
     ("prefixes", r'teams must be None \(one team\), "prefix" or teams by name .* got \'prefixes\'')],
)  # fmt: skip
def test_wrong_teams_are_refused(teams, error):
    with pytest.raises(ConfigError, match=error):
        joint_teams(teams, NAMES, EVERYONE)


def test_teams_without_agents_that_learn_together_are_refused():
    with pytest.raises(ConfigError, match="teams= is for algorithms whose agents learn together"):
        made("dqn", teams="prefix")
    with pytest.raises(ConfigError, match=r"team 'more' has the player 'ref', whose agent learns alone: leave it out"):
        joint_teams({"red": ["a*"], "more": ["ref"]}, NAMES, [True, True, True, False])
    assert joint_teams({"red": ["a*"]}, NAMES, [True, True, True, False]) == ["red", "red", "red", "all"]


def test_a_team_is_given_once():
    with pytest.raises(ConfigError, match=r"teams='prefix' and team='red': give only one of them"):
        made("vdn", teams="prefix", team="red")


def test_agents_know_their_team_and_its_size():
    agents = made({"red_*": "vdn", "blue": "dqn"})
    assert [(agent.hyper.team, agent.hyper.team_size) for agent in agents[::2]] == [("all", 2)] * 2
    agents = made("qmix", teams={"one": ["red_0", "blue"], "other": ["red_1"]})
    assert [(a.hyper.team, a.hyper.team_size) for a in agents] == [("one", 2), ("one", 2), ("other", 1)]
    assert [agent.hyper.state_size for agent in agents] == [2] * 3
    (shared,) = {id(agent): agent for agent in made("vdn", Identity, share=True)}.values()
    assert shared.hyper.team_size == 2


@pytest.mark.parametrize("algo", ["vdn", "qmix", "wqmix", "vdac"])
def test_a_team_of_different_players_learns_although_one_dies_and_one_is_absent(algo):
    """Two learners of different spaces, one schedule of updates."""
    agents = made(algo)
    before = weights(agents)
    run = trainer(Crowd, team_reward="sum", steps_per_train=120)
    run.train(agents, learning_mask=[1, 1, 1])
    assert changed(before, weights(agents)) == [True] * 3
    assert run.run is not None and run.run.counters.updates > 5
    assert len(run.run.context.schedulers) == 1 and len(run.run.context.seating.learners) == 2


def test_sequences_of_a_team_hold_the_carries_of_its_acts(monkeypatch):
    """The carry of each row is that after the row before it; a team of recurrent networks learns."""
    batches: list[Any] = []
    update = JointLearner.update

    def noting(learner: Any, batch: Any, **more: Any) -> Any:
        batches.append(batch)
        return update(learner, batch, **more)

    monkeypatch.setattr(JointLearner, "update", noting)
    network = mt.GRU((3,), units=4, sequence_length=4)
    agents = made("qmix", env_args={"length": 7}, network=network, learning_rate=0.0, burn_in=1)
    before = weights(agents)
    run = trainer(Crowd, {"length": 7}, team_reward="sum", steps_per_train=90)
    run.train(agents, learning_mask=[1, 1, 1])
    followed = 0
    for member, agent in ((0, agents[0]), (1, agents[1])):
        net = agent.learner_.weights.nets["q"].in_numpy()
        for batch in batches:
            rows = batch.members[member]
            carry = rows.extras["carry/q/4"]
            after = net(rows.obs[:1], carry[:1], row=0)[-1]
            follows = ~rows.begins[0, 1:]
            np.testing.assert_allclose(carry[0, 1:][follows], after[0, :-1][follows], atol=1e-6)
            followed += int(follows.sum())
    assert followed > 50
    for agent in agents:
        agent.hyper.learning_rate = 0.01
    run.train(agents, learning_mask=[1, 1, 1])
    assert changed(before, weights(agents)) == [True] * 3


@pytest.mark.parametrize("frozen", [1, 2])
@pytest.mark.parametrize("algo", ["qmix", "vdac"])
def test_a_member_that_does_not_learn_plays_on_and_does_not_change(algo, frozen):
    """Player 1 has spaces of its own: without it, nobody reads the rows of its group."""
    own = made(algo)
    agents = [mt.FrozenAgent(agent) if i == frozen else agent for i, agent in enumerate(own)]
    before = weights(own)
    trainer(Crowd, team_reward="sum", steps_per_train=90).train(agents, learning_mask=[1, 0, 0])
    after = weights(own)
    assert changed([_own(arrays) for arrays in before], after) == [True, False, False]


def _own(arrays: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Return the arrays of an agent without those of its team."""
    return {name: array for name, array in arrays.items() if not name.startswith("team/")}


def test_a_team_learns_beside_others():
    """Two teams, one learner of its own, and a stranger, in one game."""
    names = {"player_0": "vdn", "player_3": "vdn", "player_1": "qmix", "player_[24]": "dqn"}
    agents = [*made(names, Identity, env_args={"players": 5})[:4], mt.RandomAgent()]
    before = weights(agents[:4])
    run = trainer(Identity, {"players": 5}, team_reward="mean", steps_per_train=120)
    run.train(agents, learning_mask=[1, 1, 1, 1, 0])
    assert changed(before, weights(agents[:4])) == [True] * 4
    assert run.run is not None and len(run.run.context.schedulers) == 3


@pytest.mark.parametrize(
    ("algo", "settings", "other", "error"),
    [("vdn", {}, {"update_per_step": 0.5}, r"have one value of update_per_step: \[0\.25\] and \[0\.5\] were"),
     ("vdn", {"gamma": 0.9}, {}, "have one discount, and gamma is 0.9, 0.99, 0.99: give make_agents one gamma="),
     ("qmix", {"mixing_units": 8}, {}, "make different ones: mixing_units=8 and 32. Give all of them one value"),
     ("vdn", {}, {"network": mt.GRU((6,), units=4)}, "have one value of sequence_length: .0. and .16."),
     ("wqmix", {}, {"weighting": "optimistic"}, "have one value of weighting"),
     ("qmix", {"skip_connection": True}, {}, "have one value of skip_connection")],
)  # fmt: skip
def test_members_with_different_settings_of_the_team_are_refused(algo, settings, other, error):
    agents = [made(algo, **settings)[0], *made(algo, **other)[1:]]
    with pytest.raises(AgentError, match=error):
        trainer(Crowd, team_reward="sum", steps_per_train=90).train(agents, learning_mask=[1, 1, 1])


def test_wrong_line_ups_are_refused_before_training():
    agents = made("vdn", Identity, env_args={"players": 3})
    line_up = [agents[0], agents[1], mt.RandomAgent()]
    with pytest.raises(AgentError, match=r"made for 3 players, and they play 2 \(player_0, player_1\)"):
        trainer(Identity, {"players": 3}).train(line_up, learning_mask=[1, 1, 0])
    with pytest.raises(
        ConfigError, match=r"vdn: .* learn together from decisions at the same time, .* one after another"
    ):
        trainer(Relay).train(made("vdn", Relay), learning_mask=[1, 1, 1])
    with pytest.raises(ConfigError, match=r"shared_memory=True, but .* \(vdn\) already learn together"):
        trainer(Crowd, shared_memory=True, team_reward="sum").train(made("vdn"), learning_mask=[1, 1, 1])
    with pytest.raises(ConfigError, match=r'collect="overlap" does not work with agents that learn together.*vdn'):
        trainer(Crowd, collect="overlap", team_reward="sum").train(made("vdn"), learning_mask=[1, 1, 1])


def test_a_team_with_one_reward_may_not_be_in_several_teams_of_rewards():
    rewards = {"one": ["red_0", "red_1"], "other": ["blue"]}
    with pytest.raises(
        ConfigError, match=r"several teams of them \(red_0 in 'one', blue in 'other', .*: give make_agents"
    ):
        trainer(Crowd, team_reward=rewards).train(made("vdn"), learning_mask=[1, 1, 1])
    trainer(Crowd, team_reward=rewards, steps_per_train=20).train(made("vdn", teams=rewards), [1, 1, 1])


def test_agents_act_and_are_saved_without_their_team(tmp_path):
    agents = made("qmix")
    trainer(Crowd, team_reward="sum", steps_per_train=60).train(agents, learning_mask=[1, 1, 1])
    mt.save(tmp_path / "blue", agents[1])
    (blue,) = mt.load(tmp_path / "blue")
    obs = np.array([1, 2, 3], np.float32)
    assert blue.act(obs) == agents[1].act(obs)
