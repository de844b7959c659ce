"""double_buffer=True: halves of the environments step in turn; results are identical.

The short tier has each kind of environment, budget and checkpoint once, in runs of few updates; the long tier has the
second algorithm for them, and a native game whose program each worker compiles for seconds.
"""

from __future__ import annotations

import itertools
import json
import os
import signal
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import marltrain as mt
from marltrain.core.errors import EnvError, WorkerError
from marltrain.envs import SubprocVectorEnv
from marltrain.policies.learner.algorithm_learner import AlgorithmLearner
from marltrain.trainer.collecting.double_buffer import DoubleBufferedCollector
from tests.faulty_toys import Broken, Flaky
from tests.tiers import LONG
from tests.toys import Crowd, Identity, Motley, Relay
from tests.trainer.running import Recorder, changed, dqn, ppo, tables, trainer, weights

ODD: dict[str, Any] = {"num_train_envs": 5, "vector": "subproc", "num_workers": 3, "update_freq": 33, "test_freq": 20}
CONTINUOUS = "mpe2/simple_spread_v3"


@pytest.fixture
def ahead(monkeypatch):
    """Counts steps: "first", steps of half 0 that began before half 1 arrived; "all", steps that began early."""
    counts = {"first": 0, "all": 0}
    send_first, send = DoubleBufferedCollector._send_first, DoubleBufferedCollector._send

    def first(self, step):
        counts["first"] += 1
        send_first(self, step)

    def both(self, step):
        counts["all"] += self.under_way
        send(self, step)

    monkeypatch.setattr(DoubleBufferedCollector, "_send_first", first)
    monkeypatch.setattr(DoubleBufferedCollector, "_send", both)
    return counts


def run(make=ppo, env=Identity, env_args=None, double=True, mask=None, resume=None, **settings):
    """Return the result of a run, and the weights of the agents that are not frozen."""
    agents = make(env, env_args)
    output = trainer(env, env_args, **{**ODD, "steps_per_train": 200, "double_buffer": double, **settings})
    result = output.train(agents, mask or [1] * len(agents), plot=False, resume=resume)
    return result, weights([agent for agent in agents if not isinstance(agent, mt.FrozenAgent)])


def equal(one, other) -> bool:
    return tables(one[0]) == tables(other[0]) and not any(changed(one[1], other[1]))


def both(**settings):
    """The same run, all environments together and in halves."""
    return [run(double=double, run_dir=f"run-{double}", **settings) for double in (False, True)]


class Meddler(mt.Callback):
    """Changes the exploration mask and epsilon at a certain batch step."""

    def on_step(self, moment):
        if moment.env_steps == 50:
            moment.trainer.exploration_mask = [1, 0]


class Quiet(Recorder):
    """Records events, without changes."""

    only_watches = True


class Watcher(mt.Callback):
    """Calls a function at a batch step; declares `only_watches`."""

    only_watches = True

    def __init__(self, at, function):
        self.at, self.function = at, function

    def on_step(self, moment):
        if moment.env_steps == self.at:
            self.function()


@pytest.mark.parametrize(
    ("make", "backend"),
    [(ppo, "torch"), *LONG * [(dqn, "torch"), (ppo, "tensorflow"), (dqn, "tensorflow")]],
)
def test_double_buffer_equals_stepping_all_environments_together(make, backend, ahead):
    """5 environments on 3 workers, 2 agents, an update every 7 batch steps, a test every 20 episodes."""
    together, halved = both(make=lambda *args: make(*args, backend=backend))
    assert equal(together, halved)
    assert halved[0]["num_updates"] == together[0]["num_updates"] >= 5
    assert 7 < ahead["first"] < 40  # of 40 batch steps; some begin after an update or a test


def test_first_half_waits_if_the_second_may_trigger_a_test(ahead):
    """Identity ends its 5 episodes in every 3rd of 18 batch steps. A test after 5 is due there, and only there.

    With a test after 2, half 0 cannot know whether it comes; when half 1 is there, too, all begin the next step.
    """
    together, halved = both(test_freq=5, update_freq=10_000, steps_per_train=90)
    assert equal(together, halved) and len(halved[0]["history"]) == 7
    assert ahead == {"first": 12, "all": 0}  # 18 batch steps, 6 of which end episodes
    both(test_freq=2, update_freq=10_000, steps_per_train=90)
    assert ahead == {"first": 12, "all": 12}  # with a test after 2 half 0 always waits, and no other is begun early


def test_both_halves_wait_for_a_test_due_by_env_steps(ahead):
    """Of 18 batch steps of 5 env steps every fourth is followed by a test, and so is the last: 4 and one wait."""
    together, halved = both(test_freq=None, test_freq_steps=20, update_freq=10_000, steps_per_train=90)
    assert equal(together, halved)
    assert halved[0]["history"]["env_steps"].tolist() == [0, 20, 40, 60, 80, 90]
    assert ahead == {"first": 13, "all": 0}


def test_without_tests_only_budgets_and_updates_interrupt_the_double_buffer(ahead):
    assert equal(*both(test_freq=None, update_freq=10_000, steps_per_train=90))
    assert ahead == {"first": 17, "all": 0}


@pytest.mark.parametrize(
    ("env", "make"),
    [
        (Relay, dqn), (Crowd, ppo), (Motley, ppo), ("pettingzoo/classic/tictactoe_v3", dqn),
        *([("marltrain/tictactoe_v3", ppo), (Relay, ppo), ("marltrain/foraging_v3", dqn)] if LONG else []),
    ],
)  # fmt: skip
def test_double_buffer_with_every_kind_of_environment(env, make, ahead):
    """Turn-based games, legal moves, players of several kinds that die, images, all kinds of actions, native games."""
    together, halved = both(make=make, env=env, env_args={}, steps_per_train=150)
    assert equal(together, halved) and ahead["first"] > 5


def test_continuous_actions_are_bit_identical(ahead):
    """A product of fewer rows may differ in its last bits; all rows are computed."""
    args = {"N": 2, "continuous_actions": True, "max_cycles": 9}
    wide = lambda env, args: ppo(env, args, network=mt.MLP((64, 64)))  # noqa: E731
    together, halved = both(make=wide, env=CONTINUOUS, env_args=args, num_train_envs=13, steps_per_train=260)
    assert equal(together, halved) and ahead["first"] > 5


def test_double_buffer_with_shared_and_frozen_agents():
    shared = lambda *args: ppo(*args, share=True)  # noqa: E731
    assert equal(*both(make=shared))
    assert equal(*both(mask=[0, 1]))
    crossed = lambda *args: [(result := ppo(*args))[0], mt.FrozenAgent(dqn(*args)[1]), result[0]]  # noqa: E731
    assert equal(*both(make=crossed, env_args={"players": 3, "length": 4}, mask=[1, 0, 1]))


def test_changes_by_hooks_apply_from_the_same_step(ahead):
    """`train_fn` disables exploration and raises a learning rate; it is called while no step runs."""

    def once(double):
        calls = []

        def change(episodes, steps):
            calls.append((episodes, steps))
            agents[0].hyper.epsilon = 1 / (1 + steps)
            result.exploration_mask = [steps % 2 == 0, 1]

        agents = dqn()
        result = trainer(
            **ODD, steps_per_train=300, double_buffer=double, run_dir=f"run-{double}", train_fn=change,
            stop_fn=lambda metric, episode: episode >= 60,
        )  # fmt: skip
        return result.train(agents, [1, 1], plot=False), weights(agents), calls

    together, halved = once(False), once(True)
    assert equal(together[:2], halved[:2]) and ahead["first"] > 5
    assert together[2] == halved[2] and len(halved[2]) > 10
    assert halved[0]["stop_reason"] == together[0]["stop_reason"] == "stop_fn"


BUDGETS: list[dict[str, Any]] = [{"episodes_per_train": 23}, {"updates_per_train": 4}, {"steps_per_train": 141}]


@pytest.mark.parametrize("budget", BUDGETS if LONG else BUDGETS[:1])
def test_budgets_end_at_the_same_step(budget):
    together, halved = both(**{"steps_per_train": None, **budget})
    assert equal(together, halved)
    assert halved[0]["stop_reason"] == together[0]["stop_reason"] == next(iter(budget))
    assert halved[0]["num_collected_steps"] == together[0]["num_collected_steps"]


def test_next_call_of_train_uses_the_same_random_numbers():
    def twice(double):
        agents = ppo()
        result = trainer(**ODD, episodes_per_train=23, double_buffer=double, run_dir=None)
        return [result.train(agents, [1, 1], plot=False) for _ in range(2)][1], weights(agents)

    assert equal(twice(False), twice(True))


def test_double_buffer_with_asynchronous_updates():
    assert equal(*both(collect="overlap", test_freq=7))


# Faults


@pytest.mark.parametrize("fault", ["raise", *LONG * ["nan"]])
def test_survived_faults_have_the_same_effect(fault, ahead):
    args = {"fault": fault, "at": 3, "every": 3}
    together, halved = both(env=Flaky, env_args=args, on_fault="restart", max_env_restarts=400, steps_per_train=300)
    assert equal(together, halved) and ahead["first"] > 5
    data = [result["faults"].drop(columns="seconds") for result, _ in (together, halved)]
    assert data[0].equals(data[1]) and len(data[0]) > 10
    assert halved[0]["num_dropped_steps"] == together[0]["num_dropped_steps"] > 30


@pytest.mark.parametrize("fault", ["kill", *LONG * ["hang"]])
def test_lost_worker_is_replaced_during_the_step_of_the_other_half(fault, ahead):
    args = {"fault": fault, "at": 3, "every": 25}
    settings = {"on_fault": "restart", "max_env_restarts": 400, "env_timeout": 0.5, "steps_per_train": 100}
    together, halved = both(env=Flaky, env_args=args, **settings)
    assert equal(together, halved) and ahead["first"] > 5
    data = [result["faults"].drop(columns="seconds") for result, _ in (together, halved)]
    assert data[0].equals(data[1]) and set(data[0]["kind"]) == {"died" if fault == "kill" else "timeout"}


def test_lost_worker_ends_the_run_with_on_fault_raise():
    with pytest.raises(WorkerError, match=r"worker 0, .* was killed by signal 9"):
        run(env=Broken, env_args={"fault": "kill", "at": 5}, on_fault="raise", test_freq=10_000, num_test_envs=1,
            episodes_per_test=1)  # fmt: skip


def test_error_in_a_hook_during_a_step():
    def team(rewards):
        calls.append(1)
        if len(calls) == 60:
            raise ValueError("nobody is to be rewarded")
        return 1.0

    calls: list[int] = []
    with pytest.raises(ValueError, match="nobody is to be rewarded"):
        run(team_reward=team)
    assert Path("run/last").is_dir()


# Checkpoints and interrupts


@pytest.mark.parametrize("every", [{"every_steps": 45}, *LONG * [{"every_episodes": 7}, {"every_minutes": 1e-9}]])
def test_resumed_run_equals_an_uninterrupted_run(every, tmp_path, ahead):
    """With and without the double buffer: the checkpoint is written while no step runs."""

    def once(folder, steps, double, **more):
        kept = mt.Checkpoint(**every)
        return run(dqn, double=double, steps_per_train=steps, run_dir=tmp_path / folder, callbacks=[kept], **more)

    whole = once("whole", 240, False)
    once("parts", 120, True)
    found = sorted(int(path.name) for path in (tmp_path / "parts/checkpoints").iterdir())
    assert found[-1] == 120
    assert equal(whole, once("parts", 180, False, resume=tmp_path / "parts")) is False  # not the end yet
    assert equal(whole, once("parts", 240, True, resume=tmp_path / "parts"))
    assert (ahead["first"] > 0) is ("every_minutes" not in every)  # by the clock: at every step, so none is early


@pytest.mark.parametrize("every", [{"every_episodes": 7}, *LONG * [{"every_steps": 45}]])
def test_checkpoints_are_written_at_the_same_steps(every, ahead):
    def written(double):
        recorder = Quiet(only=("on_checkpoint",))
        run(double=double, run_dir=f"run-{double}", callbacks=[mt.Checkpoint(**every), recorder])
        return recorder.calls

    assert written(True) == written(False)
    assert ahead["first"] > 5


def test_checkpoint_by_minutes_is_written_one_step_later(monkeypatch):
    """A checkpoint that becomes due during a step waits for its end, and no further step is started."""
    seconds = [0.0]
    recorder = Quiet(only=("on_checkpoint",))
    monkeypatch.setattr("marltrain.trainer.counters.Clock.seconds", property(lambda clock: seconds[0]))
    late = Watcher(60, lambda: seconds.__setitem__(0, 61.0))
    run(callbacks=[late, mt.Checkpoint(every_minutes=1), recorder], update_freq=10_000, test_freq=10_000)
    assert [call[2] for call in recorder.calls if call[2]][:2] == [65, 200]


@pytest.mark.parametrize("number", [signal.SIGTERM, *LONG * [signal.SIGINT]])
def test_interrupt_waits_for_the_running_step(number, ahead):
    callbacks = [Watcher(70, lambda: os.kill(os.getpid(), number)), mt.Checkpoint(every_steps=1000)]
    result, _ = run(callbacks=callbacks, update_freq=50)
    assert (result["stop_reason"], result["num_collected_steps"]) == ("interrupted", 75)
    assert Path("run/checkpoints/75").is_dir() and ahead["first"] > 5
    resumed = run(run_dir=None, resume="run", update_freq=50)
    assert equal(run(double=False, run_dir="whole", update_freq=50), resumed)


def test_second_interrupt_exits_at_once():
    def twice():
        for _ in range(2):
            os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        run(callbacks=[Watcher(60, twice)])


# Callbacks that disable the double buffer


def test_callback_without_only_watches_disables_the_double_buffer(ahead):
    with pytest.warns(
        UserWarning, match=r"speeds nothing up: Meddler.on_step may change .* only_watches = True"
    ) as data:
        halved = run(callbacks=[Meddler()])
    assert [warning.filename for warning in data] == [__file__]
    assert ahead["first"] == 0
    assert equal(run(double=False, run_dir="together", callbacks=[Meddler()]), halved)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        run(callbacks=[Watcher(10, lambda: None)], progress=True, run_dir=None)
    assert ahead["first"] > 5


def test_recorded_actions_are_the_executed_actions(monkeypatch):
    """In this test every act returns other actions, also for the same Step."""
    sent: list = []
    acts = itertools.count()
    act, send_half = AlgorithmLearner.act, SubprocVectorEnv.send_half

    def changing(self, *args, **kwargs):
        acted = act(self, *args, **kwargs)
        return replace(acted, action=(acted.action + next(acts)) % 3)

    def noted(self, half, actions):
        sent.append((half, [array[:, self.halves[half]].copy() for array in actions]))
        send_half(self, half, actions)

    monkeypatch.setattr(SubprocVectorEnv, "send_half", noted)
    monkeypatch.setattr(AlgorithmLearner, "act", changing)
    result = trainer(**{**ODD, "update_freq": 10_000}, steps_per_train=300, double_buffer=True)
    result.train(ppo(), [1, 1], plot=False)
    assert result.run is not None
    ring = result.run.context.streams.rings[0]
    done = np.concatenate([np.stack([a[0] for h, a in sent if h == half], 1) for half in (0, 1)], 2)
    assert done.shape == (2, 60, 5) and np.array_equal(ring.action[:, :60], done)


def test_config_json_records_double_buffer():
    run(steps_per_train=30)
    assert json.loads(Path("run/config.json").read_text())["trainer"]["double_buffer"] is True


def test_too_many_faults_with_double_buffer():
    args = {"fault": "raise", "at": 3, "every": 1}
    with pytest.raises(EnvError, match="max_env_restarts=4 are survived"):
        run(env=Flaky, env_args=args, on_fault="restart", max_env_restarts=4, num_test_envs=1, episodes_per_test=1)
