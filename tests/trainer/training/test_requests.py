"""Requests to a run, executed without an actor."""

from threading import Lock

import pytest

import marltrain as mt
from marltrain.core.errors import ConfigError, WorkerError
from marltrain.trainer.jobs.messages import Experience, Request
from marltrain.trainer.settings import TestSettings
from marltrain.trainer.training.requests import REQUESTS, serve
from tests.trainer.running import ppo, tables, trainer


class Asking(mt.Callback):
    """Executes a request after the first updates."""

    policies = None

    def __init__(self, kind, argument):
        self.request, self.answers, self.requests = Request(1, kind, argument), [], []
        self.experience = Experience()

    def on_collect(self, moment):
        run = moment.trainer.run
        if moment.updates and not self.answers:
            self.requests = [self.request]
            object.__setattr__(run.context, "job", self)
            serve(run)
            object.__setattr__(run.context, "job", None)

    def answer(self, request, answer):
        assert request == self.request
        self.answers.append(answer)


def trained(*callbacks, **settings):
    settings = {"run_dir": False, "steps_per_train": 200, "test_freq": 30, "callbacks": callbacks, **settings}
    result, agents = trainer(**settings), ppo()
    return result.train(agents, [1, 1], plot=False), result, agents


def test_a_test_is_played_with_the_present_weights_and_changes_nothing():
    asking = Asking("test", TestSettings(episodes=3))
    result, *_ = trained(asking, collect="overlap")
    assert tables(result) == tables(trained(collect="overlap")[0])
    (answer,) = asking.answers
    assert answer.result().returns.shape == (3, 2)
    late = Asking("test", TestSettings(episodes=5, sampled=True))
    _, output, agents = trained(late, steps_per_train=18, test_freq=None)  # one update, before the test
    expected = output.test(agents, 5, sampled=True)
    assert late.answers[0].result().returns.tolist() == expected.returns.tolist()


def test_a_failure_goes_to_the_one_who_asked(monkeypatch):
    def failing(run, argument):
        if argument == "unpicklable":
            return Lock()
        raise {"ours": ConfigError, "other": KeyError}[argument]("broken")

    monkeypatch.setitem(REQUESTS, "fail", failing)
    for argument, kind, text in (("ours", ConfigError, "^broken"), ("other", WorkerError, "KeyError: 'broken'"),
                                 ("unpicklable", WorkerError, "cannot pickle '_thread.lock'")):  # fmt: skip
        asking = Asking("fail", argument)
        assert trained(asking)[0]["stop_reason"] == "steps_per_train"
        with pytest.raises(kind, match=text):
            asking.answers[0].result()
