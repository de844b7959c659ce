"""collect="overlap": updates run in a thread; agents act with weights one update old."""

from __future__ import annotations

import sys
import threading
import time

import numpy as np
import pytest

import marltrain as mt
from marltrain.core.errors import ConfigError
from marltrain.policies.learner.algorithm_learner import AlgorithmLearner
from marltrain.policies.memory.priorities import PrioritizedChoice
from marltrain.trainer.updating.asynchronous import TURN, learning_thread
from marltrain.trainer.updating.scheduler import UpdateScheduler
from tests.tiers import LONG
from tests.trainer.running import Recorder, Student, changed, dqn, ppo, tables, trainer, weights

BACKENDS = ("torch", "tensorflow")


def trained(agents, **settings):
    result = trainer(**{"steps_per_train": 90, "collect": "overlap", **settings}).train(agents, [1, 1], plot=False)
    return result, weights(agents)


@pytest.mark.parametrize(
    ("make", "backend"), [(make, backend) for make in (ppo, dqn) for backend in BACKENDS] if LONG else [(ppo, "torch")]
)
def test_two_runs_of_a_seed_are_equal(make, backend):
    (one, first), (two, second) = (trained(make(backend=backend), test_freq=7) for _ in range(2))
    assert tables(one) == tables(two)
    assert not any(changed(first, second))


def test_agents_act_with_weights_one_update_old():
    """Rollouts 1 and 2 use the initial weights, so the first update is the same; rollout 3 uses those of update 1."""
    (serial, _), (overlap, _) = (trained(ppo(), collect=how, updates_per_train=3) for how in ("serial", "overlap"))
    assert overlap["num_gradient_steps"] == serial["num_gradient_steps"] == 2 * 3 * 2
    assert overlap["num_updates"] == serial["num_updates"] == 3
    first = [trained(ppo(), collect=how, updates_per_train=1)[1] for how in ("serial", "overlap")]
    assert not any(changed(*first))
    second = [trained(ppo(), collect=how, updates_per_train=2)[1] for how in ("serial", "overlap")]
    assert all(changed(*second))


def test_ratio_uses_the_policy_that_acted(monkeypatch):
    """The first ratio compares the present policy with the policy that acted: 1 without an update in between."""
    ratios, update = [], AlgorithmLearner.update

    def noted(self, batch, **arguments):
        out = self.weights.nets["actor"](self.backend.tensor(batch.obs))[0]
        now, _ = self.algorithm.distribution.evaluate(self.backend.ops, out, None, self.backend.tensor(batch.action))
        ratios.append(np.exp(self.backend.numpy(now) - batch.extras["log_prob"]))
        return update(self, batch, **arguments)

    monkeypatch.setattr(AlgorithmLearner, "update", noted)
    trained(ppo(), updates_per_train=3)
    np.testing.assert_allclose(ratios[0], 1.0, atol=1e-5)
    assert all(abs(later - 1).max() > 1e-5 for later in ratios[1:])


def test_updates_run_in_a_thread_that_ends_with_training(monkeypatch):
    names, update = set(), AlgorithmLearner.update

    def noted(self, *args, **kwargs):
        names.add(threading.current_thread().name)
        return update(self, *args, **kwargs)

    monkeypatch.setattr(AlgorithmLearner, "update", noted)
    trained(ppo())
    assert names == {"marltrain-learning_0"}
    assert not [t for t in threading.enumerate() if t.name in names]


def test_agents_act_with_their_trained_weights_after_training():
    agents = ppo()
    trained(agents)
    learner = agents[0].learner_
    assert all(learner.actor.nets[name] is net for name, net in learner.weights.nets.items())


def test_tests_and_checkpoints_wait_for_the_thread():
    """The saved weights are the tested ones, and no update is reported during a test."""
    recorder = Recorder(only=("on_update_end", "on_test_end"))
    result, _ = trained(ppo(), test_freq=5, callbacks=[recorder, mt.Checkpoint(every_steps=30)])
    assert [call for call in recorder.calls if call[0] == "on_update_end"]
    best = mt.load(f"{result['run_dir']}/best")
    again = trainer(collect="overlap").test(best)
    assert again.returns.mean() == pytest.approx(max(result["reward_metric_stats"]))


@pytest.mark.parametrize("stopped", [45, 60, 33])
def test_resumed_run_equals_an_uninterrupted_run(tmp_path, stopped):
    """At any stop: a checkpoint waits for running updates, and does not change the acting weights."""

    def run(folder, steps, **more):
        agents, kept = ppo(), mt.Checkpoint(every_steps=45)
        result = trainer(collect="overlap", steps_per_train=steps, run_dir=tmp_path / folder, callbacks=[kept])
        return result.train(agents, [1, 1], plot=False, **more), weights(agents)

    whole, expected = run("whole", 120)
    run("parts", stopped)
    resumed, came = run("parts", 120, resume=tmp_path / "parts")
    assert not any(changed(expected, came))
    assert resumed["episodes"].drop(columns="seconds").equals(whole["episodes"].drop(columns="seconds"))


def test_refused_run_does_not_change_agents():
    agents = ppo()
    with pytest.raises(ConfigError, match="player_1"):
        trained([agents[0], Student(lambda row: 0)])
    learner = agents[0].learner_
    assert all(learner.actor.nets[name] is net for name, net in learner.weights.nets.items())


def test_callbacks_wait_for_the_thread():
    """Reading or changing an agent during an update would not be reproducible."""

    class Meddler(mt.Callback):
        def __init__(self, agents):
            self.agents, self.seen = agents, []

        def on_step(self, moment):
            self.seen.append(weights(self.agents))
            self.agents[0].hyper.learning_rate = 1e-3 / moment.env_steps

    def run():
        agents = ppo()
        meddler = Meddler(agents)
        _, after = trained(agents, callbacks=[meddler])
        return meddler.seen, after

    (one, first), (two, second) = run(), run()
    assert not any(changed(first, second))
    assert not any(any(changed(a, b)) for a, b in zip(one, two, strict=True))


def test_gradient_step_counts_at_update_events():
    """Two learners: when the updates of one are reported, updates of the other that just started do not count."""

    class Counting(mt.Callback):
        def __init__(self):
            self.told = []

        def on_update_end(self, moment):
            self.told.append(moment.gradient_steps)

    counting = Counting()
    trained([ppo()[0], dqn()[1]], callbacks=[counting])
    again = Counting()
    trained([ppo()[0], dqn()[1]], callbacks=[again])
    assert counting.told == again.told
    alone = Counting()
    trained(ppo(), updates_per_train=3, callbacks=[alone])
    assert alone.told == [2 * 2, 2 * 2 * 2, 2 * 2 * 3]  # agents x minibatches x reported updates


def test_an_error_in_the_thread_ends_the_run(monkeypatch):
    def fail(self, *args, **kwargs):
        raise RuntimeError("the update failed")

    monkeypatch.setattr(AlgorithmLearner, "update", fail)
    with pytest.raises(RuntimeError, match="the update failed"):
        trained(ppo())


def test_agents_with_custom_code_are_refused():
    agents = [Student(lambda row: 0), Student(lambda row: 0)]
    with pytest.raises(ConfigError, match=r'collect="overlap" needs agents of .* own algorithms.*player_0'):
        trained(agents)
    with pytest.raises(ConfigError, match="collect must be one of serial, overlap"):
        trainer(collect="both")


def test_switch_interval_during_training():
    before = sys.getswitchinterval()
    with learning_thread("overlap"):
        assert sys.getswitchinterval() == pytest.approx(TURN)
    assert sys.getswitchinterval() == before
    with learning_thread("serial") as thread:
        assert thread is None
        assert sys.getswitchinterval() == before


def test_rows_are_counted_after_the_running_update(monkeypatch):
    """Counting the rows of a prioritized memory moves its trees, as the priorities of an update do."""
    running, met = threading.Event(), []
    update, size = UpdateScheduler._make, PrioritizedChoice.size

    def slow(self, *arguments):
        running.set()
        time.sleep(0.02)
        result = update(self, *arguments)
        running.clear()
        return result

    def counted(self):
        met.append(running.is_set() and threading.current_thread() is threading.main_thread())
        return size(self)

    monkeypatch.setattr(UpdateScheduler, "_make", slow)
    monkeypatch.setattr(PrioritizedChoice, "size", counted)
    agents = dqn(memory=mt.Replay(prioritized=mt.Prioritized()))
    trained(agents, callbacks=[mt.LambdaCallback(on_update_start=lambda moment: None)])
    assert met and not any(met)
