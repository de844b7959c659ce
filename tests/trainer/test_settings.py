"""Mistakes in arguments, each with a clear message before training starts."""

from __future__ import annotations

from typing import Any, cast

import numpy as np
import pytest
from gymnasium import spaces

import marltrain as mt
from tests.toys import Identity

BOX, CHOICE = spaces.Box(-1, 1, (4,)), spaces.Discrete(3)


@pytest.mark.parametrize("seed", [-1, 0.5, "0", True])
def test_seed_must_be_a_non_negative_integer(seed):
    for make in (
        lambda: mt.make_agents("ppo", Identity, seed=seed),
        lambda: mt.PPO(BOX, CHOICE, seed=seed),
        lambda: mt.RandomAgent(seed=seed),
    ):
        with pytest.raises(mt.ConfigError, match=r"seed must be an integer of at least 0, .* or None, got"):
            make()


def test_integers_may_be_written_as_1e6():
    result = mt.DecentralizedTrainer(Identity, steps_per_train=cast(Any, 1e6), seed=cast(Any, 3.0))
    agent = mt.DQN(
        BOX, CHOICE, seed=cast(Any, 1e3), capacity=cast(Any, 1e5), epsilon=mt.linear(1.0, 0.1, cast(Any, 1e6))
    )
    network = mt.MLP(hidden=cast(Any, (8.0,)))
    whole = result.settings.steps_per_train, result.seed, agent.seed, agent.hyper.capacity, *network.hidden
    assert (*whole, agent.settings.epsilon.steps) == (10**6, 3, 1000, 10**5, 8, 10**6)
    assert {type(number) for number in whole} == {int}
    with pytest.raises(mt.ConfigError, match=r"steps_per_train must be an integer or None, got 1\.5"):
        mt.DecentralizedTrainer(Identity, steps_per_train=cast(Any, 1.5))


@pytest.mark.parametrize("network", ["mlp", [64, 64], 64])
def test_network_must_be_a_specification_or_a_model(network):
    for agent in (mt.PPO, mt.DQN):
        with pytest.raises(
            mt.AgentError, match=r"network must be a NetworkSpec \(MLP\(...\), CNN\(...\), .*\), a model"
        ):
            agent(BOX, CHOICE, network=network)
        with pytest.raises(mt.AgentError, match=r"network is the class GRU: write GRU\(\)"):
            agent(BOX, CHOICE, network=mt.GRU)
    with pytest.raises(mt.ConfigError, match="hidden must be a tuple of widths"):
        mt.MLP(64)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"run_dir": 3}, "run_dir must be a path, None or False, got 3"),
        ({"run_dir": True}, "run_dir must be a path, None or False, got True"),
        ({"callbacks": mt.Callback()}, "callbacks must be a list of callbacks"),
        ({"env_args": ["length"]}, "env_args must be a mapping from argument to value"),
        ({"seed": 2**63}, "seed must be at most"),
        ({"run_dir": "a\0b"}, "run_dir 'a.x00b' cannot be used as a path: embedded null byte"),
        ({"run_dir": "x" * 5000}, "run_dir 'x+.* cannot be used as a path: File name too long"),
        ({"run_dir": "/"}, "run_dir '/' is the root of the file system: name a folder in it"),
        (
            {"run_dir": False, "callbacks": [mt.Checkpoint(every_steps=1)]},
            "run_dir=False writes nothing, but callbacks",
        ),
        ({"num_train_envs": 10**9}, "num_train_envs must be at most 1048576, got 1000000000"),
        ({"episodes_per_test": np.array([3])}, "episodes_per_test must be an integer, got array"),
        ({"steps_per_train": 10**30}, "steps_per_train must be between"),
        ({"team_reward": np.array(["mean"])}, 'team_reward must be None, "mean", "sum", a function'),
        ({"team_reward": lambda: 0}, r"team_reward is called as team_reward\(rewards\), but what was given takes"),
        ({"reward_metric": lambda: 0}, r"reward_metric is called as reward_metric\(rewards\), but"),
        ({"train_fn": lambda episodes: 0}, r"train_fn is called as train_fn\(episodes, steps\), but"),
        ({"num_trainenvs": 3}, r"unexpected keyword argument 'num_trainenvs'. Did you mean 'num_train_envs'\?"),
    ],
)
def test_invalid_arguments_of_the_trainer(wrong, said):
    with pytest.raises(mt.ConfigError, match=said):
        mt.DecentralizedTrainer(Identity, **wrong)


def test_trainer_accepts_numpy_numbers():
    twice = ("num_train_envs", "num_test_envs", "episodes_per_test", "update_freq")
    counts: dict[str, Any] = {name: np.int64(2) for name in twice}
    counts |= {"seed": np.int64(3), "progress": np.False_, "steps_per_train": np.int32(6)}
    result = mt.DecentralizedTrainer(Identity, {"players": 2, "length": 3}, run_dir="run", **counts)
    assert (result.seed, type(result.seed)) == (3, int)
    agents = mt.make_agents("ppo", Identity, env_args={"players": 2, "length": 3}, minibatches=np.int64(1))
    assert result.train(agents, np.array([1, 1]), plot=cast(Any, np.False_))["num_collected_steps"] == 6


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"plot": "yes"}, "plot must be True or False, got 'yes'"),
        ({"plot": np.ones(2)}, "plot must be True or False, got array"),
        ({"any_threads": 1}, "any_threads must be True or False, got 1"),
        ({"resume": 3}, "resume must be the folder of a run"),
        ({"resume": "a\0b"}, "resume 'a.x00b' cannot be used as a path: embedded null byte"),
        ({"resume": "x" * 5000}, "resume 'x+.* cannot be used as a path: File name too long"),
        ({"exploration_maskk": [1, 1]}, r"'exploration_maskk'. Did you mean 'exploration_mask'\?"),
    ],
)
def test_invalid_arguments_of_train(wrong, said):
    result = mt.DecentralizedTrainer(Identity, progress=False)
    with pytest.raises(mt.ConfigError, match=said):
        result.train(mt.make_agents("ppo", Identity, seed=0), [1, 1], **wrong)


@pytest.mark.parametrize("episodes", [0, -1, 1.5, "3", True, 10**9, np.zeros(2)])
def test_invalid_numbers_of_test_episodes(episodes):
    result = mt.DecentralizedTrainer(Identity, progress=False)
    with pytest.raises(mt.ConfigError, match="episodes must be"):
        result.test(mt.make_agents("random", Identity, seed=0), episodes)
    assert len(result.test(mt.make_agents("random", Identity, seed=0), cast(Any, np.int64(3))).lengths) == 3


@pytest.mark.parametrize("agents", [None, mt.RandomAgent(), {mt.RandomAgent()}])
def test_agents_must_be_a_list(agents):
    with pytest.raises(mt.AgentError, match="agents must be a list with one agent per player, got"):
        mt.DecentralizedTrainer(Identity, progress=False).train(agents, [1, 1])


def test_error_names_a_player_without_a_reward():
    class Forgetting(Identity):
        def step(self, actions):
            observations, _, *rest = super().step(actions)
            return observations, {}, *rest

    with pytest.raises(mt.EnvError, match=r"player 'player_0' is in env.agents but was given no reward"):
        mt.DecentralizedTrainer(Forgetting, progress=False).test(mt.make_agents("random", Forgetting, seed=0))
