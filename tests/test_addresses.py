"""Arrays and functions at addresses, read, written and called by compiled code."""

from fractions import Fraction

import numpy as np
import pytest

from marltrain import addresses
from marltrain.addresses import address_of, carray, copy, entry, flags, numbers, outcomes, pointer, wholes
from marltrain.compiling import compiled


@compiled
def fused(a, b, c):
    return addresses.fma(a, b, c)


@compiled
def second_row(address):
    return carray(pointer(address), (2, 3), np.float32)[1]


@compiled
def called(address, what):
    return addresses.call(address, (what, 2, 3, 4, 5))


@compiled
def told(a, b, c, d, e):
    return a + 10 * b + 100 * c + 1000 * d + 10_000 * e


@pytest.mark.parametrize(("read", "dtype"), [(numbers, np.float32), (outcomes, np.float64), (wholes, np.int64)])
def test_numbers_at_an_address(read, dtype):
    array = np.arange(7, dtype=dtype)
    view = read(address_of(array[2:]), 4)
    assert (view.dtype, view.tolist()) == (dtype, [2, 3, 4, 5])
    view[1] = 40
    assert array.tolist() == [0, 1, 2, 40, 4, 5, 6]


def test_truth_values_at_an_address():
    array = np.array([True, False, True])
    view = flags(address_of(array), 3)
    assert view.tolist() == [True, False, True]
    view[1] = True
    assert array.all()


def test_an_address_is_that_of_the_first_number():
    array = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
    assert address_of(array[1]) == address_of(array) + 48
    assert address_of(array[:, 1]) == address_of(array) + 16
    assert second_row(address_of(array)).tolist() == [3, 4, 5]


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
