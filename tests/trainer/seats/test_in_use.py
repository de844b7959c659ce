"""A trainer or an agent is used by one thread and one call of `train` at a time."""

import os
import threading

import pytest

import marltrain as mt
from marltrain.trainer.seats.in_use import at_work
from tests.trainer.running import At, change, dqn, ppo, trainer


def elsewhere(work):
    """Call a function in another thread; return its exception."""
    raised = []

    def attempt():
        try:
            work()
        except mt.MarlTrainError as error:
            raised.append(error)

    thread = threading.Thread(target=attempt)
    thread.start()
    thread.join()
    return raised[0] if raised else None


def test_object_in_use_is_refused_in_another_thread():
    result, agents, others = trainer(steps_per_train=9), ppo(), dqn()
    said = []

    def meanwhile(moment):
        said.append(elsewhere(lambda: result.train(others, [1, 1])))
        said.append(
            elsewhere(lambda: trainer(run_dir="other", steps_per_train=3).train([others[0], agents[1]], [1, 1]))
        )
        said.append(elsewhere(lambda: trainer(run_dir="other").test(agents)))
        said.append(elsewhere(lambda: trainer(run_dir="other", steps_per_train=3).train(others, [1, 1], plot=False)))

    change(result, callbacks=(At(2, meanwhile),))
    assert result.train(agents, [1, 1], plot=False)["num_collected_steps"] == 9
    assert [type(error) for error in said] == [mt.ConfigError, mt.AgentError, mt.AgentError, type(None)]
    assert "this trainer is training already, in another thread. Make or load another one" in str(said[0])
    assert "agent 1 of this call is training already, in another thread" in str(said[1])
    assert elsewhere(lambda: result.train(agents, [1, 1], plot=False)) is None  # it is free again


def test_hook_may_test_but_not_train_the_agents():
    result, agents = trainer(steps_per_train=9), ppo()
    lengths = []

    def inside(moment):
        lengths.append(len(trainer(run_dir="other").test(agents).lengths))
        for one in (result, trainer(run_dir="other")):
            with pytest.raises(mt.MarlTrainError, match="is training already, in this thread, by the call that this"):
                one.train(agents, [1, 1])

    change(result, callbacks=(At(2, inside),))
    result.train(agents, [1, 1], plot=False)
    assert lengths == [2]


def test_run_that_cannot_start_releases_all_objects():
    result, agents = trainer(steps_per_train=3), ppo()
    with pytest.raises(mt.MaskError):
        result.train(agents, [0, 0])
    assert elsewhere(lambda: result.train(agents, [1, 1], plot=False)) is None


def test_forked_child_may_use_the_objects():
    """Its agents are copies."""
    agents = [mt.RandomAgent()]
    with at_work(None, agents, training=True):
        child = os.fork()
        if child == 0:
            with at_work(None, agents, training=True):
                os._exit(7)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
