"""The trainer: reproducible runs, workers, files of a run, and invalid arguments."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from gymnasium import spaces

import marltrain as mt
from marltrain.core.errors import AgentError, ConfigError, EnvError
from marltrain.core.seeds import child_seed
from marltrain.trainer.events.callbacks import Callback
from tests.envs.driving import run_seed
from tests.faulty_toys import Broken, Forgetful
from tests.tiers import LONG
from tests.toys import Crowd, Identity, Motley, Relay
from tests.trainer.running import SMALL, Student, changed, dqn, ppo, tables, trainer, weights


def outcome(make, env=Identity, seed=0, **settings):
    agents = make(env, seed=seed)
    run = trainer(env, seed=seed, **{"steps_per_train": 60, "test_freq": 5, "episodes_per_test": 3, **settings})
    result = run.train(agents, [1] * len(agents), plot=False)
    return tables(result), weights(agents), [agent.learner_.export(agent.row).info for agent in agents]


@pytest.mark.parametrize(
    ("make", "env"), [(ppo, Identity), (dqn, Relay), *LONG * [(dqn, Identity), (ppo, Relay), (ppo, Motley)]]
)
def test_equal_seeds_give_identical_runs(make, env):
    """Tables, weights, moments and random streams, bit for bit; 0 is a valid seed."""
    first, second, other = outcome(make, env), outcome(make, env), outcome(make, env, seed=1)
    assert first[0] == second[0]
    assert not any(changed(first[1], second[1]))
    assert first[2] == second[2]
    assert all(changed(first[1], other[1]))
    assert first[0] != other[0] or env is Motley  # whose rewards learn nothing in 60 steps of small nets


@pytest.mark.parametrize("make", [dqn, *LONG * [ppo]])
def test_results_do_not_depend_on_workers(make):
    """One process, and 1, 2 and 3 workers for 4 environments: identical tables and weights, bit for bit."""
    settings = {"num_train_envs": 4, "num_test_envs": 3}
    alone = outcome(make, **settings)
    for workers in (1, 2, 3):
        spread = outcome(make, **settings, vector="subproc", num_workers=workers)
        assert spread[0] == alone[0]
        assert not any(changed(spread[1], alone[1]))
        assert spread[2] == alone[2]


def test_runs_without_a_seed_differ():
    runs = [trainer(seed=None, steps_per_train=30) for _ in range(2)]
    assert runs[0].seed != runs[1].seed
    result = [tables(run.train(ppo(), [1, 1], plot=False))[1] for run in runs]
    assert result[0] != result[1]


def test_callbacks_and_other_players_do_not_affect_random_streams():
    """With a third player and a callback, the first two players have the same observations and actions."""

    class Nosy(Callback):
        def on_step(self, moment):
            np.random.random()

    def run(players, callbacks):
        args = {"players": players, "length": 3}
        agents = dqn(Identity, args, learning_starts=10_000)
        trainer(Identity, args, steps_per_train=60, callbacks=callbacks).train(agents, [1] * players, plot=False)
        return [agent.learner_.export(agent.row).info["rngs"] for agent in agents], weights(agents)

    (two, weights_two), (three, weights_three) = run(2, []), run(3, [Nosy()])
    assert two == three[:2]
    assert changed(weights_two, weights_three[:2]) == [False, False]


def test_files_of_a_run():
    result = trainer(steps_per_train=36, test_freq=6, run_dir="here/run").train(ppo(), [1, 1])
    folder = Path("here/run")
    assert result["run_dir"] == str(folder.absolute())
    assert {"history.parquet", "episodes.parquet", "config.json", "metrics.png", "best", "last"} <= {
        path.name for path in folder.iterdir()
    }
    pd.testing.assert_frame_equal(pd.read_parquet(folder / "history.parquet"), result["history"])
    pd.testing.assert_frame_equal(pd.read_parquet(folder / "episodes.parquet"), result["episodes"])
    assert set(result) == {
        "reward_metric_stats", "num_collected_steps", "num_collected_episodes", "num_gradient_steps", "num_updates",
        "training_time", "stop_reason", "run_dir", "history", "episodes", "num_faults", "faults", "num_dropped_steps",
        "bytes_to_runners", "bytes_from_runners", "max_lag", "fewest_runners", "bytes_to_learners",
        "bytes_from_learners",
    }  # fmt: skip
    assert len(result["reward_metric_stats"]) == len(result["history"]) == 3
    assert result["num_collected_episodes"] == len(result["episodes"]) == 12
    assert result["training_time"] > 0
    config = json.loads((folder / "config.json").read_text())
    assert (config["seed"], config["trainer"]["update_freq"], config["threads"]["torch"]) == (0, 10, 1)
    assert [seat["player"] for seat in config["seats"]] == ["player_0", "player_1"]


def test_default_folder_is_always_new():
    run = trainer(steps_per_train=3, run_dir=None)
    folders = [run.train(ppo(), [1, 1], plot=False)["run_dir"] for _ in range(2)]
    assert folders[0] != folders[1]
    assert all(Path(folder).parent == Path("runs").absolute() and Path(folder).is_dir() for folder in folders)


def test_returns_and_metrics_are_undiscounted_sums():
    """Crowd, all players always play 1: the reds get 1 per step (red_1 for two steps), blue 10 times its 6."""
    agents = [mt.FunctionAgent(lambda o: 1), mt.FunctionAgent(lambda o: 6), Student(lambda row: 1)]
    result = trainer(Crowd, steps_per_train=24, num_train_envs=2, seed=_all_even()).train(agents, [0, 0, 1], plot=False)
    assert result["episodes"].filter(like="return/").iloc[0].tolist() == [4.0, 240.0, 2.0]
    metrics = []

    def metric(rewards):
        metrics.append(rewards.copy())
        return rewards.max()

    trainer(Crowd, steps_per_train=2, reward_metric=metric).train(agents, [0, 0, 1], plot=False)
    assert metrics[0].shape == (2, 3)
    assert metrics[0][:, [0, 2]].tolist() == [[4.0, 2.0]] * 2


def _all_even():
    return next(s for s in range(9999) if not any(child_seed(s, "episode", "train", e, 0) % 2 for e in (0, 1)))


# Agents of all sorts --------------------------------------------------------------------------------------------------


def test_training_with_agents_of_different_classes():
    """On-policy, off-policy, custom, random, frozen and function agents in one game."""
    args = {"players": 6, "length": 3}
    off = dqn(Identity, args)[1]
    on = ppo(Identity, args)[0]
    student = Student(lambda row: int(row.argmax()))
    fixed: list[Any] = [mt.RandomAgent(), mt.FrozenAgent(on), mt.FunctionAgent(lambda observation: observation)]
    before = weights([on, off, fixed[1].inner])
    result = trainer(Identity, args, steps_per_train=60).train(
        [on, off, student, *fixed], [1, 1, 1, 0, 0, 0], plot=False
    )
    assert changed(before, weights([on, off, fixed[1].inner])) == [True, True, False]
    returns = result["episodes"].filter(like="return/").to_numpy()
    assert (returns[:, [2, 5]] == 3).all()  # they name the symbol
    assert student.told == [12] * 5
    assert result["num_gradient_steps"] == 5 * 2 + 12 + 5
    assert result["history"].filter(like="/rows").iloc[-1].tolist() == [12.0]


def test_custom_agent_receives_its_transitions():
    """Crowd, one environment, an even seed: all transitions of red_1 and blue, computed by hand.

    red_1 plays 2, 1 and its part terminates after two steps; blue plays 6 always; red_0 plays t mod 3.
    """
    red_1, blue = Student(lambda row: 2 - int(row[0])), Student(lambda row: 6)
    red_0 = mt.FunctionAgent(lambda observation: int(observation[0]) % 3)
    run = trainer(Crowd, num_train_envs=1, update_freq=3, steps_per_train=6, seed=run_seed([0, 1]))
    run.train([red_0, blue, red_1], [0, 1, 1], plot=False)
    first = red_1.seen[0]
    assert first.observation.tolist() == [[0, 1], [1, 1]]
    assert first.action.tolist() == [2, 1]
    assert first.reward.tolist() == [2, 1]
    assert first.next_observation.tolist() == [[1, 1], [2, 1]]
    assert first.terminated.tolist() == [False, True]
    assert first.truncated.tolist() == [False, False]
    assert first.legal is first.next_legal is None
    # the reds' sum before: 0; then 0 + 2; 1 + 1; and 2 + 0 (red_1 is gone); the fourth step is in the next update
    seen = blue.seen[0]
    assert seen.observation.tolist() == [[0, 2, 0], [1, 2, 2], [2, 2, 2]]
    assert seen.action.tolist() == [6, 6, 6]
    assert seen.reward.tolist() == [60, 60, 60]
    assert seen.next_observation.tolist() == [[1, 2, 2], [2, 2, 2], [3, 2, 2]]
    seen = blue.seen[1]
    assert seen.observation.tolist() == [[3, 2, 2]]  # blue is absent from the next episode, whose seed is odd
    assert seen.next_observation.tolist() == [[4, 2, 0]]
    assert (seen.terminated.tolist(), seen.truncated.tolist()) == ([False], [True])
    assert red_1.seen[1].observation.tolist() == [[0, 1], [1, 1]]


def test_custom_agent_learns():
    """A table of action values, updated in `update` from the batches of `observe`: it learns the identity."""

    class Table(mt.Agent):
        def __init__(self):
            self.values, self.rng = np.zeros((3, 3)), np.random.default_rng(0)

        def act(self, observation, legal=None, explore=False):
            best = self.values[observation].argmax(-1)
            coin = np.logical_and(explore, self.rng.random(np.shape(best)) < 0.3)
            return np.where(coin, self.rng.integers(3, size=np.shape(best)), best)

        def observe(self, batch):
            self.batch = batch

        def update(self, env_steps):
            np.add.at(self.values, (self.batch.observation, self.batch.action), self.batch.reward)
            return {"best": self.values.max()}

    result = trainer(steps_per_train=300, episodes_per_test=10).train([Table(), Table()], [1, 1], plot=False)
    assert result["reward_metric_stats"][-1] == 3.0
    assert result["reward_metric_stats"][0] < 3.0


# Wrong input ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"num_train_envs": 0}, "num_train_envs must be at least 1, got 0"),
        ({"num_train_envs": 2.5}, "num_train_envs must be an integer, got 2.5"),
        ({"episodes_per_test": 0}, "episodes_per_test must be at least 1"),
        ({"test_freq": "none"}, "test_freq must be an integer or None, got 'none'"),
        ({"seed": -1}, "seed must be at least 0, got -1"),
        ({"seed": True}, "seed must be an integer"),
        ({"vector": "suproc"}, "Did you mean 'subproc'?"),
        ({"shared_memory": 1}, "shared_memory must be True or False, got 1"),
        ({"stop_fn": 5}, "stop_fn must be a function or None, got 5"),
        ({"train_fn": "f"}, "train_fn must be a function"),
        ({"reward_metric": 3}, "reward_metric must be a function or None, got 3"),
        ({"callbacks": [print]}, "callbacks must hold objects of subclasses of marltrain.Callback"),
        ({"steps_per_train": 0}, "steps_per_train must be at least 1"),
    ],
)
def test_wrong_arguments(settings, words):
    with pytest.raises(ConfigError) as caught:
        trainer(**settings)
    assert words in str(caught.value)


def test_unknown_arguments_and_environments():
    with pytest.raises(mt.ConfigError, match=r"argument 'num_trainenvs'. Did you mean 'num_train_envs'\?"):
        trainer(num_trainenvs=3)
    with pytest.raises(mt.MarlTrainError, match="simple_spread_v3"):
        mt.DecentralizedTrainer("mpe2/simple_spraed_v3", progress=False)
    with pytest.raises(mt.MarlTrainError, match="color"):
        trainer(Identity, {"color": 3}).train(ppo(), [1, 1], plot=False)


@pytest.mark.parametrize(
    ("metric", "words"),
    [
        (
            lambda rewards: rewards.mean(0),
            "must return one number for rewards [episodes, players], got ndarray of shape (2,)",
        ),
        (lambda rewards: None, "got NoneType"),
        (lambda rewards: "3", "got str"),
        (lambda rewards: True, "got bool"),
        (lambda rewards: float("nan"), "reward_metric returned nan"),
    ],
)
def test_reward_metric_must_return_a_number(metric, words):
    steps = []

    class Watch(Callback):
        def on_step(self, moment):
            steps.append(moment)

    with pytest.raises(ConfigError) as caught:
        trainer(reward_metric=metric, callbacks=[Watch()]).train(ppo(), [1, 1], plot=False)
    assert words in str(caught.value)
    assert not steps


@pytest.mark.parametrize("metric", [lambda r: int(r.sum()), lambda r: r.mean(), lambda r: np.array(r.mean())])
def test_valid_results_of_reward_metric(metric):
    assert isinstance(
        trainer(reward_metric=metric, steps_per_train=3).train(ppo(), [1, 1])["reward_metric_stats"][0], float
    )


def test_reward_metric_receives_a_copy():
    def metric(rewards):
        rewards[:] = 99
        return 0.0

    result = trainer(reward_metric=metric, steps_per_train=3).train(ppo(), [1, 1], plot=False)
    assert (result["history"].filter(like="return/") < 99).all(axis=None)


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        ("outside", "player 'right': observation leaves its space"),
        ("nan", "player 'right': observation leaves its space"),
        ("shape", "player 'right'"),
        ("missing", "right"),
        ("reward", "player 'right': reward inf is not finite"),
        ("no moves", "player 'right' must move, but its action_mask allows no action"),
    ],
)
def test_broken_contract_names_player_environment_and_step(fault, words):
    with pytest.raises(EnvError) as caught:
        trainer(Broken, {"fault": fault}).train(ppo(Broken, {"fault": fault}), [1, 1], plot=False)
    assert words in str(caught.value)
    assert "environment 0" in str(caught.value)
    assert "step 3" in str(caught.value)


@pytest.mark.parametrize(
    ("fault", "words"),
    [("kill", "SIGKILL"), *LONG * [("raise", "ZeroDivisionError: a fault of the environment's own")]],
)
def test_failed_worker_is_reported_and_last_agents_are_saved(fault, words):
    settings = {"vector": "subproc", "num_workers": 2, "num_train_envs": 2, "num_test_envs": 1, "episodes_per_test": 1}
    run = trainer(Broken, {"fault": fault, "episode": 2}, **settings)
    with pytest.raises(EnvError) as caught:
        run.train(ppo(Broken), [1, 1], plot=False)
    assert words in str(caught.value)
    assert len(mt.load("run/last")) == 2


def test_config_json_records_irreproducible_environments():
    agents = ppo(Forgetful)
    trainer(Forgetful, {"flaw": "impure", "declared": True}, steps_per_train=30).train(agents, [1], plot=False)
    assert json.loads(Path("run/config.json").read_text())["reproducible"]
    trainer(Forgetful, {"flaw": "random", "declared": True}, steps_per_train=30).train(agents, [1], plot=False)
    assert not json.loads(Path("run-2/config.json").read_text())["reproducible"]  # no run overwrites another


def test_agent_with_other_spaces_is_refused():
    other = mt.PPO(spaces.Box(-1, 1, (4,)), spaces.Discrete(3), network=SMALL)
    with pytest.raises(AgentError, match="player 'player_1': its observation space is Discrete"):
        trainer().train([ppo()[0], other], [1, 1], plot=False)


def test_environments_are_always_closed():
    closed = []

    class Closing(Identity):
        def close(self):
            closed.append(self)

    def number():
        result, closed[:] = len(closed), []
        return result

    agents = ppo()
    agents = [agents[0], agents[1]]
    run = trainer(Closing, {"players": 2, "length": 3}, num_train_envs=3, num_test_envs=2, steps_per_train=3)
    number()
    run.train(agents, [1, 1], plot=False)
    ended_well = number()
    assert ended_well >= 5
    with pytest.raises(mt.MaskError):
        run.train(agents, [0, 0], plot=False)
    assert number() >= 3
    run.test(agents)
    assert number() >= 2
    with pytest.raises(ConfigError):
        trainer(Closing, {"players": 2, "length": 3}, batch_size=10**6).train(ppo(minibatches=None), [1, 1], plot=False)
    assert number() >= 3
