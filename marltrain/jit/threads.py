"""Threads that run compiled programs together with the calling thread.

Between calls they wait in compiled code, so that a call costs them no step of Python: they take part in calls of
0.1 ms. A thread that has nothing to do watches for the next call a while, then it sleeps.
"""

from __future__ import annotations

import ctypes
import functools
import os
import threading
import weakref
from typing import Any

import numpy as np

from marltrain.core.layout import Array
from marltrain.jit.compiling import compiled, program
from marltrain.jit.views import add_at, address_of, call, entry, record_at, value_at

_WORDS = ("round", "open", "active", "sleepers", "ended")
_GIVEN = ("program", "argument", "threads", "mutex", "condition", "lock", "unlock", "wait", "wake", "give_way")
SHARED = np.dtype([(name, np.int64) for name in (*_WORDS, *_GIVEN)])
"""Numbers and addresses that the threads share.

round: number of calls.  open: 1 while a thread may take part in the call.  active: threads that take part, or are about
to.  sleepers: threads that sleep.  ended: whether they end.
program: address of a function of (argument, number of the thread).  threads: how many take part.
mutex, condition: memory that the operating system's functions use.  lock, unlock, wait, wake: its functions.
give_way: address of a function that lets other threads run.
"""
_ROUND, _OPEN, _ACTIVE, _SLEEPERS, _ENDED = (8 * i for i in range(len(_WORDS)))
WATCHES = 200
"""How often a thread looks for the next call before it sleeps: about 0.1 ms."""
LOOKS = 2_000
"""How often a thread looks for the end of another thread's task before it gives way: about 0.001 ms."""
_BYTES = 256
"""More than any system's mutex or condition variable takes."""


@functools.cache
def give_way() -> int:
    """Return the address of `sched_yield`, by which a waiting thread lets other threads run; 0 except on POSIX."""
    if os.name != "posix":
        return 0
    return ctypes.cast(ctypes.CDLL(None).sched_yield, ctypes.c_void_p).value or 0


class Threads:
    """Threads for compiled programs of (address, number of the thread), which start at the first use.

    A program must not wait for a thread that has not started yet. On systems that are not POSIX there is one thread.
    """

    def __init__(self) -> None:
        """Start no threads."""
        self._threads: list[threading.Thread] = []
        self._record, self._memory = np.zeros(1, SHARED), np.zeros((2, _BYTES), np.uint8)
        self._process, self._end = 0, _nothing

    def run(self, program: Any, address: int, threads: int) -> None:
        """Run a program in the calling thread, number 0, and in up to `threads` - 1 others; return when all left.

        program: see `jit.compiling.program`.  A thread that has not come when the calling thread has left does not take
        part.
        """
        if threads == 1 or not give_way():
            program(address, 0)
            return
        self._start(threads - 1)
        record = self._record[0]
        record["program"], record["argument"], record["threads"] = _entry(program), address, threads
        _lead()(address_of(self._record))

    @property
    def started(self) -> int:
        """Number of threads that have been started, and not ended."""
        return len(self._threads)

    def close(self) -> None:
        """End the threads; the next run starts new ones."""
        end, self._threads, self._process, self._end = self._end, [], 0, _nothing
        end()

    def _start(self, count: int) -> None:
        """Start threads until there are `count`; a fork of the process has none of its parent's."""
        if self._process != os.getpid():
            self._prepare()
        while len(self._threads) < count:
            number = len(self._threads) + 1
            given = _stand(), self._record, self._memory, number
            thread = threading.Thread(target=_standing, args=given, name=f"marltrain-compiled-{number}", daemon=True)
            self._threads.append(thread)  # first: after an interrupt in `start`, no other thread gets the number
            thread.start()

    def _prepare(self) -> None:
        """Fill in the record, and see to it that the threads end before the record's memory is released."""
        # Threads that are about to end still read their own.
        self._record, self._memory = np.zeros(1, SHARED), np.zeros((2, _BYTES), np.uint8)
        system, record, process = ctypes.CDLL(None), self._record[0], os.getpid()
        self._threads, record["give_way"] = [], give_way()
        called = {
            "lock": system.pthread_mutex_lock, "unlock": system.pthread_mutex_unlock,
            "wait": system.pthread_cond_wait, "wake": system.pthread_cond_broadcast,
        }  # fmt: skip
        for name, function in called.items():
            record[name] = ctypes.cast(function, ctypes.c_void_p).value
        initialized = {"mutex": system.pthread_mutex_init, "condition": system.pthread_cond_init}
        for memory, (name, function) in zip(self._memory, initialized.items(), strict=True):
            record[name] = address_of(memory)
            function(ctypes.c_void_p(address_of(memory)), None)
        self._end = weakref.finalize(self, _ended, process, self._record, self._memory, self._threads)
        self._process = process  # last: an interrupt leaves nothing half prepared


def _nothing() -> None:
    """End no threads."""


def _standing(stand: Any, record: Array, memory: Array, number: int) -> None:
    """The work of a thread; it keeps the memory that it reads, but no object that owns it."""
    stand(address_of(record), number)


def _ended(process: int, record: Array, memory: Array, threads: list[threading.Thread]) -> None:
    """End the threads of a process, not of its fork; memory: kept until then."""
    if process != os.getpid():
        return
    _dismiss()(address_of(record))
    for thread in threads:
        if thread.is_alive():  # an interrupt may have come before it started
            thread.join()


@compiled
def stand(address: int, thread: int) -> int:
    """Take part in the calls, as number `thread`, until the end; return 0."""
    s, seen = record_at(address, SHARED), 0
    while True:
        seen = next_round(s, address, seen)
        if value_at(address + _ENDED):
            return 0
        add_at(address + _ACTIVE, 1)
        if value_at(address + _OPEN) and thread < s.threads:
            call(s.program, (s.argument, thread))
        add_at(address + _ACTIVE, -1)


@compiled
def next_round(s: Any, address: int, seen: int) -> int:
    """Wait until the number of calls is not `seen`; return it."""
    for _ in range(WATCHES):
        if value_at(address + _ROUND) != seen:
            return value_at(address + _ROUND)
        call(s.give_way, ())
    call(s.lock, (s.mutex,))
    add_at(address + _SLEEPERS, 1)  # before the number is read: `begin` then sees the sleeper, or it sees the number
    while value_at(address + _ROUND) == seen:
        call(s.wait, (s.condition, s.mutex))
    add_at(address + _SLEEPERS, -1)
    call(s.unlock, (s.mutex,))
    return value_at(address + _ROUND)


@compiled
def begin(s: Any, address: int) -> None:
    """Begin a round, and wake the sleepers."""
    add_at(address + _ROUND, 1)
    if value_at(address + _SLEEPERS):
        call(s.lock, (s.mutex,))
        call(s.wake, (s.condition,))
        call(s.unlock, (s.mutex,))


@compiled
def lead(address: int) -> int:
    """Make a call of the program, as number 0; return 0 when no thread takes part any more."""
    s = record_at(address, SHARED)
    add_at(address + _OPEN, 1)
    begin(s, address)
    call(s.program, (s.argument, 0))
    add_at(address + _OPEN, -1)
    while value_at(address + _ACTIVE):
        call(s.give_way, ())
    return 0


@compiled
def dismiss(address: int) -> int:
    """Let the threads end; return 0."""
    add_at(address + _ENDED, 1)
    begin(record_at(address, SHARED), address)
    return 0


@compiled
def wait_until(address: int, least: int, give_way: int) -> None:
    """Wait until the int64 at an address is at least `least`.

    give_way: address of the function of that name; 0: the thread does not give way.
    """
    looks = 0
    while value_at(address) < least:
        looks += 1
        if looks > LOOKS and give_way:
            call(give_way, ())


@functools.cache
def _entry(function: Any) -> int:
    return entry(function, 2)


@functools.cache
def _stand() -> Any:
    return program(stand, SHARED)


@functools.cache
def _lead() -> Any:
    return program(lead, SHARED)


@functools.cache
def _dismiss() -> Any:
    return program(dismiss, SHARED)
