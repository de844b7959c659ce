"""Child processes end with their run, however it ends."""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import marltrain as mt
from marltrain.core.errors import EnvError, MaskError
from marltrain.envs import make_vector
from tests.envs.driving import act
from tests.faulty_toys import Broken
from tests.tiers import LONG
from tests.toys import Identity
from tests.trainer.running import SHORT, At, ppo, trainer

WITHIN = 60.0
"""Seconds that a child may take to end: a bound for a hang, which no loaded machine reaches."""


def stat(pid):
    """The fields of /proc/<pid>/stat after the name: state, parent, group, session; empty for an ended process."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return []


def running(pid):
    """Whether a process runs; one that has ended and is not yet waited for does not."""
    return stat(pid)[:1] not in ([], ["Z"])


def left(pids, within=WITHIN):
    """Those of some processes that still run when the time is over."""
    end = time.monotonic() + within
    while (pids := {pid for pid in pids if running(pid)}) and time.monotonic() < end:
        time.sleep(0.02)
    return pids


def workers():
    """This process's workers."""
    return {process.pid for process in multiprocessing.active_children()}


class Seen(mt.Callback):
    """Notes the workers of a run."""

    def __init__(self):
        self.pids = set()

    def on_train_start(self, moment):
        self.pids = workers()


def fail(*_):
    raise ArithmeticError("enough")


def interrupt(_):
    os.kill(os.getpid(), signal.SIGINT)


def run(env=Identity, env_args=SHORT, callbacks=(), mask=(1, 1), **settings):
    """Train with two workers, and two more for tests; return their numbers. An error is put into words."""
    seen = Seen()
    output = trainer(env, env_args, vector="subproc", num_workers=2, steps_per_train=40, callbacks=[seen, *callbacks],
                   **settings)  # fmt: skip
    try:
        result = output.train(ppo(env, env_args), mask, plot=False)
    except (ArithmeticError, EnvError) as error:
        return seen.pids, type(error).__name__
    return seen.pids, result["stop_reason"]


def failing(event):
    return {"callbacks": [type("Failing", (mt.Callback,), {event: fail})()]}


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({}, "steps_per_train"),
        ({"callbacks": [At(3, interrupt)]}, "interrupted"),
        (failing("on_train_start"), "ArithmeticError"),
        (failing("on_step"), "ArithmeticError"),
        (failing("on_train_end"), "ArithmeticError"),
        ({"train_fn": fail}, "ArithmeticError"),
        ({"test_fn": fail}, "ArithmeticError"),
        ({"save_last_fn": fail}, "ArithmeticError"),
        ({"env": Broken, "env_args": {"fault": "raise", "at": 3}}, "EnvError"),
    ],
)
def test_after_training(settings, reason):
    seen, why = run(**settings)
    assert why == reason
    assert len(seen) == 4
    assert not left(seen, 0.5), "train ended, and its workers did not"


def test_after_a_call_that_was_refused():
    with pytest.raises(MaskError):
        run(mask=(1, 1, 1))
    assert not left(workers())


def test_workers_that_hang_are_ended_when_they_are_closed():
    vector = make_vector(Broken, {"fault": "hang", "at": 1}, 4, vector="subproc", num_workers=4)
    pids = workers()
    vector.reset(0)
    vector.send(act(vector.spec, 4))
    vector.close()
    assert len(pids) == 4 and not left(pids, 0.5)


SCRIPT = """
import os, signal, threading
from pathlib import Path
import marltrain as mt
from tests.faulty_toys import Broken
from tests.toys import Identity
from tests.trainer.running import SHORT, ppo, trainer
from tests.whole.test_workers_gone import stat

def kill():
    os.kill(os.getpid(), signal.SIGKILL)

class Late(mt.Callback):
    def on_{event}(self, moment):
        pids = [int(path.name) for path in Path("/proc").glob("[0-9]*")]
        print(*(pid for pid in pids if stat(pid)[3:4] == [str(os.getpid())] and pid != os.getpid()), flush=True)
        {how}

env, env_args = {env}
trainer(env, env_args, vector="subproc", num_workers=2, steps_per_train=10**6, callbacks=[Late()]).train(
    ppo(env, env_args), [1, 1]
)
"""
AT_ONCE, SOON = "kill()", "threading.Timer(1.0, kill).start()"


@pytest.mark.parametrize(
    ("event", "how", "env"),
    [
        ("update_end", AT_ONCE, "Identity, SHORT"),
        *LONG * [("test_end", AT_ONCE, "Identity, SHORT"), ("test_end", SOON, "Identity, SHORT")],
        ("train_start", SOON, 'Broken, {"fault": "hang", "at": 2}'),
    ],
)
def test_after_kill_9_of_the_parent(tmp_path, event, how, env):
    """The script leads a session of its own and prints the other members: the workers and the fork server.

    In the last case all workers sleep in the middle of a step.
    """
    path = tmp_path / "script.py"
    path.write_text(SCRIPT.format(event=event, how=how, env=env))
    with subprocess.Popen(
        [sys.executable, path], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    ) as script:
        assert script.stdout is not None
        members = {int(pid) for pid in script.stdout.readline().split()}
        script.wait()
        assert len(members) >= 4, "the script saw its workers"
        assert not left(members)
