"""The run's side of its actor: training goes on without it, and another one is started."""

import os
import signal
import threading
import time
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest

import marltrain as mt
from marltrain.processes.ray_actors import NAMESPACE, ActorError
from marltrain.trainer.events.counters import Traffic
from marltrain.trainer.jobs.connection import Connection
from marltrain.trainer.jobs.job import Job
from marltrain.trainer.jobs.messages import Report, RunProgress
from tests.tiers import LONG
from tests.trainer.running import ppo, tables, trainer


class Witness:
    """Attaches in a thread while the test trains; sends a signal to the run's actor, and waits for the next one."""

    def __init__(self, ray, sign):
        self.ray, self.sign, self.seen, self.error = ray, sign, [], None
        self.thread = threading.Thread(target=self.run, daemon=True)

    def run(self):
        try:
            self.watch()
        except BaseException as error:
            self.error = error

    def watch(self):
        until = time.monotonic() + 200  # a loaded machine takes many seconds to start an actor
        while not any(progress.name == "lost" for progress in mt.named_runs()) and time.monotonic() < until:
            time.sleep(0.05)
        handle = mt.attach("lost", timeout=10)
        actor = self.ray.get_actor("lost", namespace=NAMESPACE)
        os.kill(self.ray.get(actor.__ray_call__.remote(lambda self: os.getpid())), self.sign)
        while time.monotonic() < until:
            try:
                self.seen.append(handle.progress())
                handle.stop("found again")
                return
            except mt.WorkerError:
                time.sleep(0.05)


@pytest.mark.parametrize("sign", [signal.SIGKILL, signal.SIGSTOP] if LONG else [signal.SIGKILL])
def test_an_actor_that_is_lost_is_replaced_and_the_run_goes_on(ray_cluster, sign):
    witness = Witness(ray_cluster, sign)
    witness.thread.start()
    with pytest.warns(UserWarning, match="name='lost': .* Another one is started; requests that it held have failed"):
        result = trainer(name="lost", run_dir=False, test_freq=None, steps_per_train=10**9, timeout=2.0).train(
            ppo(), [1, 1], plot=False
        )
    witness.thread.join(200)
    assert witness.error is None and result["stop_reason"] == "found again"
    assert 0 < witness.seen[0].env_steps <= result["num_collected_steps"]


def test_a_name_changes_nothing_in_a_run(ray_cluster):
    named, plain = (
        trainer(name=name, run_dir=False, steps_per_train=120, test_freq=30).train(ppo(), [1, 1], plot=False)
        for name in ("same", None)
    )
    assert tables(named) == tables(plain)


class Reports:
    """Stands for the connection of a job; keeps whether each report takes observed transitions."""

    def __init__(self, *_):
        self.room = list[bool]()

    def received(self, now):
        return None

    def free(self, now):
        return True

    def send(self, report, now):
        self.room.append(report.room)


def test_a_run_takes_no_transitions_during_a_test_and_while_it_stores_others(monkeypatch):
    monkeypatch.setattr("marltrain.trainer.jobs.job.Connection", Reports)
    monkeypatch.setattr("marltrain.trainer.jobs.job.LOOKING", 0.0)
    monkeypatch.setattr("marltrain.trainer.jobs.job.EVERY", 0.0)
    job = Job(RunProgress("x", "game", ("a",), "process 1 on here", None, {}), None, 1.0)
    moment: Any = SimpleNamespace(
        data={"finished": 1, "episodes": 2}, episodes=0, env_steps=0, updates=0, gradient_steps=0, seconds=0.0,
        traffic=Traffic(),
    )  # fmt: skip
    job.on_collect(moment)
    job.on_test_step(moment)
    job.experience.waiting = [("a", None)]  # type: ignore[list-item]
    job.on_collect(moment)
    reports: Any = job._connection
    assert reports.room == [True, False, False]


@pytest.mark.parametrize("kind", [KeyboardInterrupt, ActorError])
def test_only_a_lost_actor_is_passed_over_at_the_end(kind, caplog):
    """An interrupt ends the wait for the last report."""

    def result(timeout):
        raise ActorError("gone", hung=False) if kind is ActorError else kind

    connection = Connection.__new__(Connection)
    actor: Any = SimpleNamespace(call=lambda *_: None, result=result)
    connection.name, connection._actor, connection._sent_at = "x", actor, None
    with pytest.raises(KeyboardInterrupt) if kind is KeyboardInterrupt else nullcontext():
        connection.end(Report(RunProgress("x", "game", ("a",), "process 1 on here", None, {})))
    assert ("the end of run 'x' could not be told" in caplog.text) == (kind is ActorError)
