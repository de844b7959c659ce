"""collect="overlap": learning in a thread changes when agents know what they learned, and nothing else."""

from __future__ import annotations

import sys
import threading

import numpy as np
import pytest

import marltrain as mt
from marltrain.errors import ConfigError
from marltrain.policies.learner.algorithm_learner import AlgorithmLearner
from marltrain.trainer.updating.asynchronous import TURN, learning_thread
from tests.trainer.running import Recorder, Student, changed, dqn, ppo, tables, trainer, weights

BACKENDS = ("torch", "tensorflow")


def trained(agents, **settings):
    result = trainer(**{"steps_per_train": 90, "collect": "overlap", **settings}).train(agents, [1, 1], plot=False)
    return result, weights(agents)


@pytest.mark.parametrize("make", [ppo, dqn])
@pytest.mark.parametrize("backend", BACKENDS)
def test_two_runs_of_a_seed_are_equal(make, backend):
    (one, first), (two, second) = (trained(make(backend=backend), test_freq=7) for _ in range(2))
    assert tables(one) == tables(two)
    assert not any(changed(first, second))


def test_agents_act_one_update_behind_and_learn_as_often():
    """Rollouts 1 and 2 are played by the initial weights, so the first update is the same; 3 by what came of 1."""
    (serial, _), (overlap, _) = (trained(ppo(), collect=how, updates_per_train=3) for how in ("serial", "overlap"))
    assert overlap["num_gradient_steps"] == serial["num_gradient_steps"] == 2 * 3 * 2
    assert overlap["num_updates"] == serial["num_updates"] == 3
    first = [trained(ppo(), collect=how, updates_per_train=1)[1] for how in ("serial", "overlap")]
    assert not any(changed(*first))
    second = [trained(ppo(), collect=how, updates_per_train=2)[1] for how in ("serial", "overlap")]
    assert all(changed(*second))


def test_what_was_done_is_counted_as_what_it_was_then(monkeypatch):
    """The ratio of a first pass is that of the present policy to the one that acted: 1 where no update lies between."""
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


def test_updates_run_in_a_thread_of_their_own_which_is_gone_afterwards(monkeypatch):
    names, update = set(), AlgorithmLearner.update

    def noted(self, *args, **kwargs):
        names.add(threading.current_thread().name)
        return update(self, *args, **kwargs)

    monkeypatch.setattr(AlgorithmLearner, "update", noted)
    trained(ppo())
    assert names == {"marltrain-learning_0"}
    assert not [t for t in threading.enumerate() if t.name in names]


def test_afterwards_agents_act_by_what_they_are():
    agents = ppo()
    trained(agents)
    learner = agents[0].learner_
    assert all(learner.actor.nets[name] is net for name, net in learner.weights.nets.items())


def test_a_test_and_a_checkpoint_see_agents_at_rest():
    """What is saved is what was tested, and no update is told between a test's beginning and its end."""
    recorder = Recorder(only=("on_update_end", "on_test_end"))
    result, _ = trained(ppo(), test_freq=5, callbacks=[recorder, mt.Checkpoint(every_steps=30)])
    assert [call for call in recorder.calls if call[0] == "on_update_end"]
    best = mt.load(f"{result['run_dir']}/best")
    again = trainer(collect="overlap").test(best)
    assert again.returns.mean() == pytest.approx(max(result["reward_metric_stats"]))


@pytest.mark.parametrize("stopped", [45, 60, 33])
def test_a_run_goes_on_from_a_checkpoint_as_it_would_have(tmp_path, stopped):
    """Wherever it stopped: a checkpoint waits for what is under way, and leaves agents acting as they did."""

    def run(folder, steps, **more):
        agents, kept = ppo(), mt.Checkpoint(every_steps=45)
        made = trainer(collect="overlap", steps_per_train=steps, run_dir=tmp_path / folder, callbacks=[kept])
        return made.train(agents, [1, 1], plot=False, **more), weights(agents)

    whole, expected = run("whole", 120)
    run("parts", stopped)
    resumed, came = run("parts", 120, resume=tmp_path / "parts")
    assert not any(changed(expected, came))
    assert resumed["episodes"].drop(columns="seconds").equals(whole["episodes"].drop(columns="seconds"))


def test_a_refused_run_leaves_agents_acting_by_what_they_are():
    agents = ppo()
    with pytest.raises(ConfigError, match="player_1"):
        trained([agents[0], Student(lambda row: 0)])
    learner = agents[0].learner_
    assert all(learner.actor.nets[name] is net for name, net in learner.weights.nets.items())


def test_callbacks_see_and_change_agents_at_rest():
    """Read or changed in the middle of an update, an agent would differ from run to run."""

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


def test_gradient_passes_are_told_as_they_were_made():
    """Two learners: when the updates of one are told, those just begun of another do not count yet."""

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
    assert alone.told == [2 * 2, 2 * 2 * 2, 2 * 2 * 3]  # agents x minibatches x the updates that are told


def test_an_error_in_the_thread_ends_the_run(monkeypatch):
    def fail(self, *args, **kwargs):
        raise RuntimeError("the update failed")

    monkeypatch.setattr(AlgorithmLearner, "update", fail)
    with pytest.raises(RuntimeError, match="the update failed"):
        trained(ppo())


def test_agents_with_code_of_their_own_are_refused():
    agents = [Student(lambda row: 0), Student(lambda row: 0)]
    with pytest.raises(ConfigError, match=r'collect="overlap" needs agents of .* own algorithms.*player_0'):
        trained(agents)
    with pytest.raises(ConfigError, match="collect must be one of serial, overlap"):
        trainer(collect="both")


def test_threads_take_turns_more_often_meanwhile():
    before = sys.getswitchinterval()
    with learning_thread("overlap"):
        assert sys.getswitchinterval() == pytest.approx(TURN)
    assert sys.getswitchinterval() == before
    with learning_thread("serial") as thread:
        assert thread is None
        assert sys.getswitchinterval() == before
