"""Objects in place of agents, models of another framework, one model for several spaces, runs in place of agents."""

import json
from typing import Any, cast

import keras
import pytest
import torch
from tianshou.algorithm import DQN, PPO

import marltrain as mt
from marltrain.core.remedies import on_command_line
from marltrain.policies.agents.mistaken import remedy_for

TAG = "marltrain/simple_tag_v3"
"""Adversaries see 16 numbers, agent_0 sees 14."""
POLE = "gymnasium/CartPole-v1"


def keras_model():
    return keras.Sequential([keras.Input((4,)), keras.layers.Dense(2)])


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (object.__new__(DQN), "Give the algorithm of tianshou to an agent: mt.OffPolicyAgent(algorithm)"),
        (object.__new__(PPO), "Give the algorithm of tianshou to an agent: mt.OnPolicyAgent(algorithm)"),
        (torch.nn.Linear(4, 2), "mt.DQN(..., network=model)"),
        (keras_model(), "mt.DQN(..., network=model)"),
        ("ppo", "mt.make_agents('ppo', env)"),
        (mt.PPO, "mt.make_agents(PPO, env)"),
        (lambda seen: 0, "mt.FunctionAgent(function)"),
        (None, "a subclass of mt.Agent"),
    ],
)
def test_an_object_in_place_of_an_agent_is_told_where_it_belongs(given, said):
    assert said in remedy_for(given)


def test_the_remedy_is_in_the_error_of_the_line_up():
    trainer = mt.DecentralizedTrainer(POLE, num_test_envs=1, progress=False, run_dir=False)
    with pytest.raises(mt.AgentError, match=r"player 'player_0': expected an Agent, got DQN .*mt\.OffPolicyAgent"):
        trainer.test(cast("Any", [object.__new__(DQN)]), episodes=1)


@pytest.mark.parametrize("given", [keras_model, keras_model()])
def test_a_model_of_keras_names_the_backend(given):
    with pytest.raises(mt.AgentError, match=r'player .player_0.: .* give backend="tensorflow"'):
        mt.make_agents("dqn", POLE, network=given)
    with on_command_line(), pytest.raises(mt.AgentError, match="give --backend tensorflow"):
        mt.make_agents("dqn", POLE, network=given)


def test_a_module_of_torch_names_the_backend():
    with pytest.raises(mt.AgentError, match='This is a model of torch: give backend="torch"'):
        mt.make_agents("dqn", POLE, network=torch.nn.Linear(4, 2), backend="tensorflow")


def test_one_model_for_players_of_different_spaces():
    with pytest.raises(mt.AgentError) as caught:
        mt.make_agents("dqn", TAG, network=torch.nn.Linear(16, 5))
    text = str(caught.value)
    assert text.startswith("player 'agent_0': module Linear cannot take")
    assert "different spaces (adversary_0, adversary_1, adversary_2; agent_0)" in text and "give each its own" in text
    assert '"adversary_0": (..., {"network": ...}), "agent_0": (..., {"network": ...})' in text


def test_the_players_of_equal_spaces_are_not_told_about_others():
    with pytest.raises(mt.AgentError) as caught:
        mt.make_agents("dqn", "marltrain/simple_spread_v3", network=torch.nn.Linear(3, 5))
    assert "different spaces" not in str(caught.value)


def run_folder(path, *saved):
    path.mkdir()
    (path / "config.json").write_text(json.dumps({}))
    for name, seed in saved:
        mt.save(path / name, mt.make_agents("dqn", POLE, seed=seed, network=mt.MLP((3,))))
    return path


@pytest.mark.parametrize(
    ("saved", "seed", "which"), [([("best", 1), ("last", 2)], 1, "best"), ([("last", 2)], 2, "last")]
)
def test_load_takes_the_best_agents_of_a_run_and_says_so(tmp_path, caplog, saved, seed, which):
    folder = run_folder(tmp_path / "run", *saved)
    loaded, *_ = mt.load(folder)
    expected, *_ = mt.make_agents("dqn", POLE, seed=seed, network=mt.MLP((3,)))
    assert loaded.seed == expected.seed
    assert f"{folder} is the folder of a run: these are its {which} agents, {folder / which}" in caplog.text
    caplog.clear()
    mt.load(folder / which)
    assert not caplog.text


def test_weights_are_loaded_from_the_folder_of_a_run(tmp_path, caplog):
    folder = run_folder(tmp_path / "run", ("best", 1), ("last", 2))
    agent: Any = mt.make_agents("dqn", POLE, seed=3, network=mt.MLP((3,)))[0]
    agent.load_weights(folder)
    seen = [0.1, -0.2, 0.03, 0.4]
    assert agent.act(seen) == mt.load(folder / "best")[0].act(seen)
    assert "its best agents" in caplog.text


def test_a_run_without_agents_and_other_folders_are_refused(tmp_path):
    with pytest.raises(mt.SaveError, match=r"run: is the folder of a run that has saved no agents \(best or last\)"):
        mt.load(run_folder(tmp_path / "run"))
    (tmp_path / "other").mkdir()
    with pytest.raises(mt.SaveError, match=r"agents\.json: cannot be read"):
        mt.load(tmp_path / "other")


def test_swapped_arguments_name_the_order(tmp_path):
    agents: Any = mt.make_agents("dqn", POLE, network=mt.MLP((3,)))
    wrong: tuple[Any, ...] = "x.onnx", tmp_path / "x.onnx", agents
    for first in wrong:
        with pytest.raises(mt.ConfigError, match="the agent comes first, then the path"):
            mt.export(first, agents[0])
    with pytest.raises(mt.AgentError, match="the path comes first, then the agents"):
        mt.save(agents, tmp_path / "x")
