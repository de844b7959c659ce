"""What a newcomer gives by mistake, each answered by one clear sentence before anything runs."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from gymnasium import spaces

import marltrain as mt
from marltrain.trainer.settings import run_folder, team_rewards
from tests.toys import Identity

BOX, CHOICE = spaces.Box(-1, 1, (4,)), spaces.Discrete(3)


@pytest.mark.parametrize("seed", [-1, 0.5, "0", True])
def test_seeds_are_integers_of_at_least_zero(seed):
    for make in (
        lambda: mt.make_agents("ppo", Identity, seed=seed),
        lambda: mt.PPO(BOX, CHOICE, seed=seed),
        lambda: mt.RandomAgent(seed=seed),
    ):
        with pytest.raises(mt.ConfigError, match="seed must be an integer of at least 0 or None, got"):
            make()


@pytest.mark.parametrize("network", ["mlp", [64, 64], 64])
def test_networks_are_specifications_or_models(network):
    for agent in (mt.PPO, mt.DQN):
        with pytest.raises(mt.AgentError, match=r"network must be a NetworkSpec \(MLP\(...\), CNN\(...\)\), a model"):
            agent(BOX, CHOICE, network=network)
    with pytest.raises(mt.ConfigError, match="hidden must be a tuple of widths"):
        mt.MLP(64)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"run_dir": 3}, "run_dir must be a path or None, got 3"),
        ({"callbacks": mt.Callback()}, "callbacks must be a list of callbacks"),
        ({"env_args": ["length"]}, "env_args must be a mapping from argument to value"),
        ({"seed": 2**63}, "seed must be at most"),
    ],
)
def test_arguments_of_the_trainer(wrong, said):
    with pytest.raises(mt.ConfigError, match=said):
        mt.DecentralizedTrainer(Identity, **wrong)


@pytest.mark.parametrize("agents", [None, mt.RandomAgent(), {"player_0": mt.RandomAgent()}])
def test_agents_are_a_list(agents):
    with pytest.raises(mt.AgentError, match="agents must be a list with one agent a player, got"):
        mt.DecentralizedTrainer(Identity, progress=False).train(agents, [1, 1])


@pytest.mark.parametrize("joint", [lambda r: None, lambda r: r, lambda r: float("nan")])
def test_a_team_reward_is_one_finite_number(joint):
    with pytest.raises(mt.EnvError, match="team_reward must return one finite number"):
        team_rewards(joint, np.ones((2, 3), np.float32))


def test_no_run_overwrites_another_and_a_file_is_no_folder():
    first = run_folder("run", "game", "now")
    (first / "config.json").write_text("{}")
    assert run_folder("run", "game", "now") == Path("run-2")
    assert run_folder(None, "a/my game", "now") == Path("runs/my-game-now")
    Path("file").write_text("")
    for taken in ("file", "file/below"):
        with pytest.raises(mt.ConfigError, match="run_dir 'file"):
            run_folder(taken, "game", "now")


def test_a_player_without_a_reward_is_named():
    class Forgetting(Identity):
        def step(self, actions):
            observations, _, *rest = super().step(actions)
            return observations, {}, *rest

    with pytest.raises(mt.EnvError, match=r"player 'player_0' is in env.agents but was given no reward"):
        mt.DecentralizedTrainer(Forgetting, progress=False).test(mt.make_agents("random", Forgetting, seed=0))
