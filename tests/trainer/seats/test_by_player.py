"""Agents by player's name or pattern, wherever a line-up is taken."""

from typing import Any

import numpy as np
import pytest

import marltrain as mt
from marltrain.core.errors import AgentError, ConfigError, MaskError
from marltrain.envs import probe
from marltrain.trainer.seats.by_player import by_player
from tests.toys import Identity, Relay
from tests.trainer.running import ppo, trainer

SPEC = probe("marltrain/simple_tag_v3")  # adversary_0, adversary_1, adversary_2, agent_0


def test_values_are_in_the_players_order_and_a_name_precedes_patterns():
    given = {"agent_*": 4, "adversary_1": 2, "adversary_*": 3}
    assert by_player(given, SPEC, "mask") == {"adversary_0": 3, "adversary_1": 2, "adversary_2": 3, "agent_0": 4}
    assert list(by_player(given, SPEC, "mask")) == list(SPEC.names)
    assert by_player({"*_2": 1}, SPEC, "mask", complete=False) == {"adversary_2": 1}


@pytest.mark.parametrize(
    ("given", "complete", "words"),
    [
        ({"adversary_*": 1}, True, "mask: player 'agent_0' of marltrain/simple_tag_v3 is matched by none of the keys;"),
        ({"a*": 1, "*_0": 2}, True, "player 'adversary_0' of .* is matched by 2 patterns \\('a\\*', '\\*_0'\\)"),
        ({"a*": 1, "*_0": 2}, False, "every player must be matched at most once"),
        ({"a*": 1, "wolf_*": 2}, True, "no player of marltrain/simple_tag_v3 is left for the key 'wolf_\\*'"),
        ({"a*": 1, "agent_1": 2}, False, "key 'agent_1'. Did you mean 'agent_0'"),
        ({"adversary_?": 1, "adversary_0": 2, "adversary_1": 2, "adversary_2": 2}, False, "key 'adversary_\\?'"),
        ({"Agent_*": 1}, False, "left for the key 'Agent_\\*'"),
        ({0: 1}, False, "mask: keys are players' names or patterns, got 0"),
    ],
)
def test_keys_that_do_not_fit_the_players(given, complete, words):
    for error in (ConfigError, MaskError, AgentError):
        with pytest.raises(error, match=words):
            by_player(given, SPEC, "mask", error, complete=complete)


def guessing(symbol):
    """An agent whose action is always the same symbol."""
    return mt.FunctionAgent(lambda observation: symbol)


def test_agents_by_name_take_their_seats_in_tests():
    """Rewards are 1 where the action is the observed symbol; a copycat gets 1 in each of 3 steps."""
    copycat, other = mt.FunctionAgent(lambda symbol: symbol), guessing(0)
    for agents in ({"player_1": copycat, "player_0": other}, {"*_1": copycat, "player_[!1]": other}):
        by_name = trainer().test(agents).returns
        np.testing.assert_array_equal(by_name, trainer().test([other, copycat]).returns)
        assert (by_name[:, 1] == 3).all() and (by_name[:, 0] != 3).any()


def test_training_with_a_mapping_equals_training_with_a_list():
    """One agent of two seats and one of the third; the mask leaves the single one out."""

    def made():
        agents = mt.make_agents("ppo", Identity, env_args={"players": 3, "length": 3}, seed=0, minibatches=1, epochs=1)
        return agents[0], agents[2]

    few: dict[str, Any] = {"env_args": {"players": 3, "length": 3}, "steps_per_train": 30}
    pair, single = made()
    result = trainer(**few).train([pair, single, pair], [1, 0, 1], plot=False)
    pair_by_name, single_by_name = made()
    by_name = trainer(**few, run_dir="by_name").train(
        {"player_1": single_by_name, "*": pair_by_name}, {"player_1": False}, plot=False
    )
    assert by_name["reward_metric_stats"] == result["reward_metric_stats"]
    for one, other in ((pair, pair_by_name), (single, single_by_name)):
        for name, array in one.state().arrays.items():
            np.testing.assert_array_equal(other.state().arrays[name], array, err_msg=name)


def test_test_agents_and_demonstrations_take_mappings():
    agents = ppo()
    line_up = {"player_1": mt.RandomAgent(), "player_0": agents[0]}
    one = trainer(steps_per_train=3).train(agents, test_agents=line_up, plot=False)
    other = trainer(steps_per_train=3, run_dir="b").train(ppo(), test_agents=[agents[0], mt.RandomAgent()], plot=False)
    assert len(one["reward_metric_stats"]) == len(other["reward_metric_stats"])
    recorded = mt.demonstrations(Identity, {"*": guessing(1)}, episodes=2, env_args={"players": 2, "length": 3})
    assert all((part.action == 1).all() for part in recorded.values())


def test_wrong_mappings_are_refused_before_anything_runs():
    agents, calls = ppo(), []
    wrong: list[tuple[Any, str]] = [
        ({"player_0": agents[0]}, "agents: player 'player_1' of Identity is matched by none of the keys"),
        ({"*": agents[0], "wolf": agents[1]}, "agents: no player of Identity is left for the key 'wolf'"),
        ({"*": "ppo"}, "agents, player 'player_0': expected an Agent, got str"),
        ({}, "Keys: none"),
    ]
    for given, words in wrong:
        with pytest.raises(AgentError, match=words):
            trainer(test_fn=lambda e, s: calls.append(e)).train(given, plot=False)
        with pytest.raises(AgentError, match=words):
            trainer().test(given)
    with pytest.raises(AgentError, match="test_agents: player 'player_1'"):
        trainer().train(agents, test_agents={"player_0": agents[0]}, plot=False)
    with pytest.raises(AgentError, match="with one agent per player, got PPO: give a list, or a mapping by player"):
        trainer().train(agents[0], plot=False)
    assert not calls


def test_an_agent_in_use_is_refused_in_a_mapping(monkeypatch):
    agents = ppo()

    def nested(episodes, steps):
        with pytest.raises(AgentError, match="agent 0 of this call is training already"):
            trainer(run_dir="inner").train({"player_*": agents[1]}, plot=False)
        raise KeyboardInterrupt

    trainer(train_fn=nested, steps_per_train=3).train({"player_0": agents[0], "player_1": agents[1]}, plot=False)


def test_evaluations_take_mappings_of_agents():
    wrong: dict[str, Any] = {"cat": 3}
    agents: dict[str, Any] = {"cat": mt.FunctionAgent(lambda observation, legal: 1), "*": mt.RandomAgent()}
    found = mt.evaluate(agents, env=Relay, against={"same": agents, "random": "random"}, episodes=2)
    assert found.competitors == ("agents", "same", "random")
    with pytest.raises(AgentError, match=r"against: player 'ann' of .* is matched by none of the keys"):
        mt.evaluate(agents, env=Relay, against=[{"cat": agents["cat"]}], episodes=2)
    with pytest.raises(ConfigError, match="run must be the folder of a run, or agents"):
        mt.evaluate(wrong, env=Relay, episodes=2)
