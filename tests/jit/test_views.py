"""Arrays and functions at addresses, read, written and called by compiled code."""

import time
from concurrent.futures import ThreadPoolExecutor
from fractions import Fraction

import numpy as np
import pytest

from marltrain.jit import views
from marltrain.jit.compiling import compiled
from marltrain.jit.views import address_of, bools, copy, entry, f32, f64, i64, record_at


@compiled
def fused(a, b, c):
    return views.fma(a, b, c)


PAIR = np.dtype([("whole", np.int64), ("number", np.float32), ("three", np.int64, (3,))])


@compiled
def changed(address):
    """Write two fields of a record by the others."""
    pair = record_at(address, PAIR)
    pair.number = pair.three[2] / 4
    pair["whole"] += pair.three[0]


@compiled
def all_views(address):
    """What lies there, as four of each kind; of the last, only the first byte of each number."""
    return f32(address, 4), f64(address, 4), i64(address, 4), bools(address, 4)


@compiled
def write(address, place, value):
    f32(address, 4)[place] = value


@compiled
def called(address, what):
    return views.call(address, (what, 2, 3, 4, 5))


@compiled
def told(a, b, c, d, e):
    return a + 10 * b + 100 * c + 1000 * d + 10_000 * e


@compiled
def add(address, number):
    return views.add_at(address, number)


@compiled
def all_here(here, threads):
    """Say that it is here, and wait for the others: not for ever."""
    views.add_at(here, 1)
    tries = 0
    while views.value_at(here) < threads and tries < 10**10:
        tries += 1
    return tries < 10**10


@compiled
def take_numbers(address, times, taken, here, threads):
    """Take a number again and again, and mark it among all that there are; say whether the others came, too."""
    together = all_here(here, threads)
    for _ in range(times):
        bools(taken, threads * times)[views.add_at(address, 1)] = True
    return together


@compiled
def wait_for(address, number, times, here):
    """Say that it is here; then look until a number is there, so many times at most; return what lies behind it."""
    views.add_at(here, 1)
    for _ in range(times):
        if views.value_at(address) == number:
            return views.value_at(address + 8)
    return -1


@pytest.mark.parametrize(("place", "dtype"), [*enumerate([np.float32, np.float64, np.int64, np.bool_])])
def test_numbers_at_an_address(place, dtype):
    """They are read where they are, and so many of them."""
    array = np.arange(7).astype(dtype)
    view = all_views(address_of(array[2:]))[place]
    assert (view.dtype, view.shape, view.tolist()) == (dtype, (4,), array[2:6].tolist())
    array[3] = 0
    assert view.tolist() == array[2:6].tolist()


def test_numbers_are_written_where_they_are():
    array = np.arange(7, dtype=np.float32)
    write(address_of(array[2:]), 1, 40)
    assert array.tolist() == [0, 1, 2, 40, 4, 5, 6]


def test_a_record_at_an_address():
    three = np.zeros(3, PAIR)
    three["three"], three["whole"] = [[1, 2, 3], [4, 5, 6], [7, 8, 9]], 10
    changed(address_of(three[1:]))
    assert three["whole"].tolist() == [10, 14, 10]
    assert three["number"].tolist() == [0, 1.5, 0]
    assert three["three"].tolist() == [[1, 2, 3], [4, 5, 6], [7, 8, 9]]


def test_an_address_is_that_of_the_first_number():
    array = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
    assert address_of(array[1]) == address_of(array) + 48
    assert address_of(array[:, 1]) == address_of(array) + 16
    kept, read_only = address_of(array), array[:]
    read_only.flags.writeable = False
    assert address_of(read_only) == kept == array.ctypes.data
    assert address_of(array[:0]) and address_of(np.zeros(3, [("a", np.int64)]))


@pytest.mark.parametrize("size", [0, 1, 3, 8, 17, 33])
def test_a_copy_is_of_so_many_bytes_and_no_more(size):
    source, target = np.arange(40, dtype=np.uint8), np.full(40, 99, np.uint8)
    copy(address_of(source[3:]), address_of(target), size)
    assert target.tolist() == [*range(3, 3 + size), *[99] * (40 - size)]


def test_a_function_is_called_at_its_address():
    place = entry(told, 5)
    assert called(place, 1) == 54321
    assert called(place, 7) == 54327
    assert entry(told, 5) == place


def test_a_product_and_a_sum_are_rounded_once():
    """(1 + e)(1 - e) - 1 is -e^2: rounded in between it would be 0."""
    e = np.float32(2**-12)
    assert fused(1 + e, 1 - e, np.float32(-1)) == -(2.0**-24)
    rng = np.random.default_rng(0)
    for a, b, c in rng.normal(size=(500, 3)).astype(np.float32):
        exact = Fraction(float(a)) * Fraction(float(b)) + Fraction(float(c))
        assert fused(a, b, c) == np.float32(float(exact))


def test_added_and_looked_at():
    array, here = np.array([99, 5, 77]), np.zeros(1, np.int64)
    place = address_of(array[1:])
    assert add(place, 3) == 5
    assert add(place, -10) == 8
    assert array.tolist() == [99, -2, 77]
    assert wait_for(place, -2, 1, address_of(here)) == 77
    assert wait_for(place, 5, 3, address_of(here)) == -1
    assert here.tolist() == [2]


def test_threads_that_add_at_once_lose_nothing():
    """No two are given the same number, and none is left out."""
    times, threads = 2_000_000, 3
    total, here, taken = np.zeros(1, np.int64), np.zeros(1, np.int64), np.zeros(threads * times, bool)
    take_numbers(address_of(total), 0, address_of(taken), address_of(here), 1)  # compiled for once
    here[0] = 0
    given = (address_of(total), times, address_of(taken), address_of(here), threads)
    with ThreadPoolExecutor(threads) as pool:
        several = [pool.submit(take_numbers, *given) for _ in range(threads)]
        assert all(one.result() for one in several)
    assert total.tolist() == [threads * times]
    assert taken.all()


def test_a_thread_sees_what_another_adds():
    """However long it looks: the number is read anew each time, and what was written before it is there."""
    array, here = np.zeros(2, np.int64), np.zeros(1, np.int64)
    with ThreadPoolExecutor(1) as pool:
        looking = pool.submit(wait_for, address_of(array), 1, 10**10, address_of(here))
        while not here[0]:
            time.sleep(0.001)
        assert not looking.done()
        add(address_of(array[1:]), 7)
        add(address_of(array), 1)
        assert looking.result() == 7
