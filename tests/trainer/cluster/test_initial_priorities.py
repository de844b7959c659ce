"""First priorities from errors that runners compute: by the weights that they were sent, whatever happens to them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import marltrain as mt
from marltrain.core.errors import ConfigError
from marltrain.policies.memory.initial_errors import InitialErrors
from marltrain.trainer.cluster.collector import RunnerCollector
from marltrain.trainer.cluster.initial_priorities import DriverRating
from tests.faulty_toys import Flaky
from tests.policies.memory.test_initial_errors import error_by_hand
from tests.tiers import LONG
from tests.trainer.cluster.local_runners import local_runners  # noqa: F401 - a fixture
from tests.trainer.cluster.test_elastic import disturbed
from tests.trainer.cluster.training import agents_of, assert_equal, trained, trainer_of

LAG: dict[str, Any] = {"sync": False, "max_lag": 2}


@pytest.mark.usefixtures("local_runners")
def test_without_lag_runners_equal_one_process():
    expected = trained("error")
    assert_equal(expected, trained("error", runners=2), tolerance=0.0)
    assert_equal(expected, trained("error", runners=2, sync=False, max_lag=0), tolerance=0.0)


@pytest.mark.usefixtures("local_runners")
def test_errors_are_those_of_the_weights_that_were_sent(monkeypatch):
    """Every row of a fragment whose outcome is known gets one, worked out by hand; the driver rates no row."""
    agents, came, rated = agents_of("error"), list[tuple[Any, Any]](), list[int]()
    trainer: Any = trainer_of("error", runners=2, **LAG)
    give, rate = DriverRating.give, InitialErrors.rated

    def noted(self, parts):
        came.append((trainer.run.collector._fragment.version.acting[0].nets["q"][0], [part[0] for part in parts]))
        give(self, parts)

    def counted(self, agent, rows):
        if self._reader.needs.replay is not None:  # runners have no memory
            rated.append(len(rows))
        return rate(self, agent, rows)

    monkeypatch.setattr(DriverRating, "give", noted)
    monkeypatch.setattr(InitialErrors, "rated", counted)
    result = trainer.train(agents, [1], plot=False)
    scheduler = trainer.run.context.schedulers[0]
    ring, choice = scheduler.streams.rings[0], scheduler._reader.choice
    errors = {n: (e, flat) for flat, own in came for part in own for n, e in zip(part.number, part.error, strict=True)}
    assert sum(rated) == 0 and len({flat.tobytes() for flat, _ in came}) > 3 and result["max_lag"] == 2
    assert set(errors) > set(range((ring.now - 4) * ring.num_envs))
    for number, (error, flat) in errors.items():
        if number < (ring.now - 4) * ring.num_envs:
            assert error == pytest.approx(error_by_hand(ring, number, flat), rel=1e-4, abs=1e-5)
    kept = choice._slots()[0].ravel()[: (ring.now - 4) * ring.num_envs]
    first = np.array([errors[n][0] + np.float32(1e-6) for n in range(len(kept))], np.float32)
    assert (kept == first).mean() > 0.1 and (kept > 0).all()  # of the rows that were never drawn


def test_a_lost_runner_changes_nothing(local_runners):  # noqa: F811
    """Rows whose outcome is open at the start of a fragment are sent to the runner that repeats it."""
    expected = trained("error", runners=1, **LAG)
    assert_equal(expected, trained("error", runners=3, **LAG), tolerance=0.0)
    found, collecting = disturbed(local_runners, "error", {12: (2,), 27: (0,)}, (5, 45), **LAG)
    assert collecting[:3] == [3, 2, 1] and found[0]["num_faults"] == 2
    assert_equal(expected, found, tolerance=0.0)


@pytest.mark.usefixtures("local_runners")
def test_a_resumed_run_equals_one_that_was_not_stopped(tmp_path):
    """A checkpoint in the middle of a fragment, whose errors are in the memory up to there."""

    def run(folder: Any, **settings: Any) -> Any:
        agents, resume = agents_of("error"), folder if folder.exists() else None
        given = {"run_dir": folder, "callbacks": [mt.Checkpoint(every_episodes=7)], "runners": 2, **LAG, **settings}
        result = trainer_of("error", **given).train(agents, [1], plot=False, resume=resume)
        return result, [agent.state() for agent in agents]

    expected = run(tmp_path / "whole")
    run(tmp_path / "parts", episodes_per_train=7)
    assert_equal(expected, run(tmp_path / "parts"), tolerance=0.0)


class Mask(mt.Callback):
    """Lets one of three players learn, and not, in turn."""

    def __init__(self) -> None:
        self.steps = 0

    def on_step(self, moment):
        self.steps += 1
        if self.steps in (20, 33):
            moment.trainer.learning_mask = [1, self.steps == 33, 1]


@pytest.mark.usefixtures("local_runners")
def test_a_changed_learning_mask_brings_the_runners_back(monkeypatch):
    """Rows around the change have the steps that the driver's transitions have: runners begin anew with its rows."""
    found, settled = [], list[int]()
    settle = RunnerCollector.settle

    def noted(self):
        settled.append(self._ahead)
        settle(self)

    monkeypatch.setattr(RunnerCollector, "settle", noted)
    for runners in (1, 3):
        env = "marltrain/simple_spread_v3"
        replay = mt.Replay(2_000, 3, mt.Prioritized(initial="error"))
        agents = mt.make_agents(
            "dqn", env, seed=0, share=True, learning_starts=20, batch_size=8, network=mt.MLP((4,)), memory=replay
        )
        trainer = mt.DecentralizedTrainer(
            env, num_train_envs=3, num_test_envs=1, episodes_per_test=1, update_freq=12, steps_per_train=144, seed=0,
            test_freq=None, progress=False, run_dir=False, runners=runners, callbacks=[Mask()], **LAG,
        )  # fmt: skip
        result = trainer.train(agents, [1] * 3, plot=False)
        found.append((result, [agent.state() for agent in agents]))
    assert [ahead > 0 for ahead in settled] == [True] * 4
    assert_equal(*found, tolerance=0.0)


WORLDS: dict[str, tuple[Any, str, dict[str, Any]]] = {
    "turns": ("pettingzoo/classic/tictactoe_v3", "dqn", {}),
    "a team's rewards": ("marltrain/simple_spread_v3", "dqn", {"team_reward": "mean"}),
    "shared memory": ("marltrain/simple_spread_v3", "dqn", {"shared_memory": True}),
    "faults": (Flaky, "dqn", {"env_args": {"fault": "raise", "at": 5, "every": 3}, "on_fault": "restart"}),
}
if LONG:
    WORLDS |= {
        "actions in a box": ("gymnasium/Pendulum-v1", "sac", {}),
        "TensorFlow": ("gymnasium/CartPole-v1", "rainbow", {}),
    }


@pytest.mark.usefixtures("local_runners")
@pytest.mark.parametrize("name", WORLDS)
def test_without_updates_priorities_equal_those_of_one_process(monkeypatch, name):
    """All weights are the initial ones; the runners rate every row, but those that the end of training cuts off."""
    env, algorithm, settings = WORLDS[name]
    backend, rate, by_driver = "tensorflow" if name == "TensorFlow" else "torch", InitialErrors.rated, list[int]()

    def noted(self, agent, rows):
        if self._reader.needs.replay is not None:
            by_driver.append(len(rows))
        return rate(self, agent, rows)

    monkeypatch.setattr(InitialErrors, "rated", noted)
    found = []
    for runners in ({}, {"runners": 2, **LAG}):
        by_driver.clear()
        agents = mt.make_agents(
            algorithm, env, env_args=settings.get("env_args"), seed=0, learning_starts=10**6, network=mt.MLP((4,)),
            backend=backend, memory=mt.Replay(2_000, 3, mt.Prioritized(initial="error")),
        )  # fmt: skip
        trainer: Any = mt.DecentralizedTrainer(
            env, num_train_envs=3, num_test_envs=1, episodes_per_test=1, update_freq=12, steps_per_train=144, seed=0,
            test_freq=None, progress=False, run_dir=False, **runners, **settings,
        )  # fmt: skip
        result = trainer.train(agents, [1] * len(agents), plot=False)
        assert not runners or sum(by_driver) == 0
        readers = [scheduler._reader for scheduler in trainer.run.context.schedulers]
        found.append([reader.state().arrays["priority"] for reader in readers])
    assert name != "faults" or result["num_faults"] > 5
    for one, other in zip(*found, strict=True):
        assert np.array_equal(one, other) and np.count_nonzero(one) > 80


@pytest.mark.usefixtures("local_runners")
def test_rewards_that_cannot_be_sent_are_refused():
    def team_reward(rewards: Any, lock: Any = __import__("threading").Lock()) -> float:  # noqa: B008
        return float(rewards.mean())

    with pytest.raises(ConfigError, match=r"team_reward cannot be sent to Ray actors, .*: .*pickle"):
        trained("error", runners=1, team_reward=team_reward, **LAG)
