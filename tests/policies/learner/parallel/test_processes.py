"""Child processes that answer, fail, die and outlive nobody."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time

import pytest

from marltrain.core.errors import WorkerError
from marltrain.policies.learner.parallel import processes
from marltrain.policies.learner.parallel.processes import Processes, free_ports

NAMES = ["clerk 0 of the office", "clerk 1 of the office"]


def clerk(task):
    """What a child does: answer, raise, die, sleep, or fail because another has died."""
    if task == "unfit":
        raise LookupError("no desk")

    def handle(message):
        what, value = message
        if what == "raise":
            raise ArithmeticError(f"{task} cannot {value}")
        if what == "die":
            os.kill(os.getpid(), signal.SIGKILL)
        if what == "sleep":
            time.sleep(value)
        if what == "lose the other":
            raise ConnectionError("the other is gone")
        return task, value

    return handle


def office(*tasks):
    return Processes(NAMES, clerk, tasks or ("a", "b"), "Hire another")


def alive(pid):
    """Whether a process runs; one that has ended and is not yet waited for does not."""
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def ends(pids, seconds=60.0):
    """Whether all these processes end in time."""
    end = time.monotonic() + seconds
    while any(alive(pid) for pid in pids):
        if time.monotonic() > end:
            return False
        time.sleep(0.05)
    return True


def test_children_answer_in_order():
    group = office()
    assert group.ask([("say", 1), ("say", [2])]) == [("a", 1), ("b", [2])]
    assert group.ask([("say", 3)]) == [("a", 3)], "only the first is asked"
    pids = group.pids
    group.close()
    assert ends(pids)


def test_an_exception_comes_back_with_its_traceback():
    group = office()
    pids = group.pids
    with pytest.raises(WorkerError, match=r"clerk 1 of the office failed: ArithmeticError: b cannot add") as caught:
        group.ask([("say", 1), ("raise", "add")])
    assert "in handle" in str(caught.value)
    assert ends(pids)


def test_one_that_cannot_start_says_why():
    with pytest.raises(WorkerError, match=r"clerk 1 of the office failed: LookupError: no desk"):
        office("a", "unfit")


def test_a_dead_child_is_named_and_the_others_are_ended():
    group = office()
    pids = group.pids
    with pytest.raises(WorkerError, match=r"clerk 1 of the office was killed by signal 9 \(SIGKILL\). Hire another"):
        group.ask([("sleep", 60), ("die", None)])
    assert ends(pids)


def test_one_killed_from_outside_while_nobody_asks_is_named():
    group = office()
    os.kill(group.pids[1], signal.SIGKILL)
    with pytest.raises(WorkerError, match=r"clerk 1 of the office was killed"):
        group.ask([("sleep", 60)])


def test_one_killed_from_outside_while_all_work_is_named_at_once():
    group = office()
    threading.Timer(0.3, os.kill, (group.pids[0], signal.SIGKILL)).start()
    start = time.monotonic()
    with pytest.raises(WorkerError, match=r"clerk 0 of the office was killed"):
        group.ask([("sleep", 120), ("sleep", 120)])
    assert time.monotonic() - start < 60, "the others were not waited for"


def test_whoever_died_is_named_and_not_who_suffered_from_it(monkeypatch):
    """The first child fails at once, the second is killed while the parent still looks for a death as the cause."""
    monkeypatch.setattr(processes, "_GRACE", 60.0)
    group = office()
    threading.Timer(0.3, os.kill, (group.pids[1], signal.SIGKILL)).start()
    with pytest.raises(WorkerError, match=r"clerk 1 of the office was killed"):
        group.ask([("lose the other", None), ("sleep", 60)])


def test_children_end_with_the_object():
    group = office()
    pids = group.pids
    del group
    assert ends(pids)


KILL = "os.kill(os.getpid(), signal.SIGKILL)"
WHILE_ALL_WORK = f"threading.Timer(0.5, lambda: {KILL}).start(); group.ask([('sleep', 120), ('sleep', 120)])"


@pytest.mark.parametrize("end", ["sys.exit()", KILL, WHILE_ALL_WORK])
def test_children_end_with_their_parent(end):
    code = (
        "import os, signal, sys, threading\n"
        "from tests.policies.learner.parallel.test_processes import office\n"
        "group = office()\n"
        "print(*group.pids, flush=True)\n"
        f"{end}\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=170)
    pids = [int(pid) for pid in done.stdout.split()]
    assert len(pids) == 2, done.stderr
    assert ends(pids)


def test_children_do_not_import_the_users_script(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(
        "print('once', flush=True)\n"
        "from tests.policies.learner.parallel.test_processes import office\n"
        "print(office().ask([('say', 1)]))\n"
    )
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, check=False, timeout=170)
    assert done.stdout == "once\n[('a', 1)]\n", done.stderr


def test_free_ports_differ():
    ports = free_ports(5)
    assert len(set(ports)) == 5
    assert min(ports) > 1023
