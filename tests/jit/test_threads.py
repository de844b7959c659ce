"""Threads that run a program together with the calling thread."""

import threading

import pytest

from marltrain.jit.threads import Threads, give_way


def test_a_thread_that_waits_gives_way_where_it_can():
    assert give_way() == give_way() != 0


@pytest.mark.parametrize("count", [1, 2, 5])
def test_each_number_runs_once(count):
    threads, seen = Threads(), []
    for _ in range(2):
        threads.run(lambda address, thread: seen.append((address, thread)), 7, count)
        assert sorted(seen) == [(7, thread) for thread in range(count)]
        seen.clear()
    threads.close()


def test_they_end_and_start_anew():
    threads, who = Threads(), []
    for _ in range(2):
        threads.run(lambda _, thread: who.append(threading.current_thread()), 0, 2)
        threads.close()
        assert not any(thread.is_alive() for thread in who if thread is not threading.current_thread())
    assert threading.current_thread() in who


def test_an_error_of_another_thread_is_raised():
    def fails(_: int, thread: int) -> None:
        if thread:
            raise LookupError("in the other thread")

    threads = Threads()
    with pytest.raises(LookupError, match="in the other thread"):
        threads.run(fails, 0, 2)
    threads.run(lambda *_: None, 0, 2)  # goes on
    threads.close()
