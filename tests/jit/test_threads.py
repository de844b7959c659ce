"""Threads that run a compiled program together with the calling thread."""

from __future__ import annotations

import gc
import os
import threading
import time

import numpy as np
import pytest

from marltrain.jit import threads as module
from marltrain.jit.compiling import compiled, program
from marltrain.jit.threads import Threads, give_way
from marltrain.jit.views import add_at, address_of, i64, value_at

TASKS = 50


@compiled
def tasks(address: int, thread: int) -> int:
    """Take numbers from a counter, and note for each the number of the thread."""
    numbers = i64(address, TASKS + 1)
    while True:
        task = add_at(address, 1)
        if task >= TASKS:
            return 0
        numbers[1 + task] += 1 + thread


@compiled
def meeting(address: int, thread: int) -> int:
    """Count the thread that comes, and wait until as many are there as the second number says."""
    add_at(address, 1)
    while value_at(address) < value_at(address + 8):
        pass
    add_at(address + 16, 1 << (8 * thread))
    return 0


def named() -> set[threading.Thread]:
    return {thread for thread in threading.enumerate() if thread.name.startswith("marltrain-compiled")}


@pytest.fixture(scope="module")
def shared():
    return program(tasks), program(meeting)


def test_a_thread_that_waits_gives_way_where_it_can():
    assert give_way() == give_way() != 0


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_each_task_is_done_once(shared, threads):
    """500 calls, of which every 50th comes after the threads have fallen asleep."""
    crew = Threads()
    for call in range(500):
        numbers = np.zeros(TASKS + 1, np.int64)
        crew.run(shared[0], address_of(numbers), threads)
        assert (numbers[1:] >= 1).all() and (numbers[1:] <= threads).all()
        if call % 50 == 0:
            time.sleep(0.002)
    assert crew.started == threads - 1
    crew.close()


@pytest.mark.parametrize("pause", [0.0, 0.005])
def test_threads_take_part(shared, pause):
    """Two or three threads wait for each other within a call, also after they have fallen asleep."""
    crew = Threads()
    for threads in (2, 3, 2, 3):
        numbers = np.array([0, threads, 0], np.int64)
        crew.run(shared[1], address_of(numbers), threads)
        assert numbers[0] == threads
        assert numbers[2] == sum(1 << (8 * thread) for thread in range(threads))
        time.sleep(pause)
    crew.close()


def test_they_end_and_start_anew(shared):
    crew, before = Threads(), named()
    for _ in range(2):
        numbers = np.zeros(TASKS + 1, np.int64)
        crew.run(shared[0], address_of(numbers), 3)
        assert crew.started == 2 and len(named() - before) == 2
        crew.close()
        assert crew.started == 0 and not named() - before
    crew.close()


def test_they_end_with_their_owner(shared):
    crew, before = Threads(), named()
    crew.run(shared[0], address_of(np.zeros(TASKS + 1, np.int64)), 2)
    assert len(named() - before) == 1
    del crew
    gc.collect()
    assert not named() - before


def test_there_is_one_thread_where_threads_cannot_wait(shared, monkeypatch):
    monkeypatch.setattr(module, "give_way", lambda: 0)
    crew, numbers = Threads(), np.zeros(TASKS + 1, np.int64)
    crew.run(shared[0], address_of(numbers), 4)
    assert (numbers[1:] == 1).all() and crew.started == 0


def test_one_set_runs_several_programs(shared):
    crew = Threads()
    for _ in range(3):
        numbers, meets = np.zeros(TASKS + 1, np.int64), np.array([0, 2, 0], np.int64)
        crew.run(shared[0], address_of(numbers), 2)
        crew.run(shared[1], address_of(meets), 2)
        assert (numbers[1:] >= 1).all() and meets[0] == 2
    assert crew.started == 1
    crew.close()


def test_a_fork_has_threads_of_its_own(shared):
    """The child has none of its parent's threads, and ends none of them; it leaves without Python's end."""
    crew, meets = Threads(), np.array([0, 2, 0], np.int64)
    crew.run(shared[1], address_of(meets), 2)
    meets[:] = 0, 2, 0
    if (child := os.fork()) == 0:
        try:
            crew.run(shared[1], address_of(meets), 2)
            crew.close()
        finally:
            os._exit(int(meets[0]))
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 2
    meets[:] = 0, 2, 0
    crew.run(shared[1], address_of(meets), 2)
    assert meets[0] == 2
    crew.close()
