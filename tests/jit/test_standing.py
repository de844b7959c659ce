"""Threads that wait in compiled code and take part in short calls."""

from __future__ import annotations

import gc
import threading
import time

import numpy as np
import pytest

from marltrain.jit import standing
from marltrain.jit.compiling import compiled, program
from marltrain.jit.standing import StandingThreads
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


def named() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name.startswith("marltrain-step")]


@pytest.fixture(scope="module")
def shared():
    return program(tasks), program(meeting)


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_each_task_is_done_once(shared, threads):
    """500 calls, of which every 50th comes after the threads have fallen asleep."""
    crew = StandingThreads(shared[0])
    for call in range(500):
        numbers = np.zeros(TASKS + 1, np.int64)
        crew.run(address_of(numbers), threads)
        assert (numbers[1:] >= 1).all() and (numbers[1:] <= threads).all()
        if call % 50 == 0:
            time.sleep(0.002)
    assert len(named()) == threads - 1
    crew.close()


@pytest.mark.parametrize("pause", [0.0, 0.005])
def test_threads_take_part(shared, pause):
    """Two or three threads wait for each other within a call, also after they have fallen asleep."""
    crew = StandingThreads(shared[1])
    for threads in (2, 3, 2, 3):
        numbers = np.array([0, threads, 0], np.int64)
        crew.run(address_of(numbers), threads)
        assert numbers[0] == threads
        assert numbers[2] == sum(1 << (8 * thread) for thread in range(threads))
        time.sleep(pause)
    crew.close()


def test_they_end_and_start_anew(shared):
    crew = StandingThreads(shared[0])
    for _ in range(2):
        numbers = np.zeros(TASKS + 1, np.int64)
        crew.run(address_of(numbers), 3)
        assert len(named()) == 2
        crew.close()
        assert not named()
    crew.close()


def test_they_end_with_their_owner(shared):
    crew = StandingThreads(shared[0])
    crew.run(address_of(np.zeros(TASKS + 1, np.int64)), 2)
    assert len(named()) == 1
    del crew
    gc.collect()
    assert not named()


def test_there_is_one_thread_where_threads_cannot_wait(shared, monkeypatch):
    monkeypatch.setattr(standing, "give_way", lambda: 0)
    crew, numbers = StandingThreads(shared[0]), np.zeros(TASKS + 1, np.int64)
    crew.run(address_of(numbers), 4)
    assert (numbers[1:] == 1).all() and not named()
