"""Arrays that were read: refused by name, entry, and the value that came."""

import numpy as np
import pytest
from gymnasium import spaces

from marltrain.core.errors import SaveError
from marltrain.storage.checks import actions, counted, finite, of_type, shaped, within


def test_what_fits_is_given_back():
    array = np.array([[1.0, 2.0]])
    assert shaped("it", array, np.float64, (1, 2)) is finite("it", array) is within("it", array, 1, 2) is array


@pytest.mark.parametrize(
    ("check", "message"),
    [
        (lambda: shaped("it", np.zeros(2), np.float32, (2,)), r"it must be float32 of shape \(2,\), got float64 of "),
        (lambda: shaped("it", np.zeros(2), np.float64, (1, 2)), r"of shape \(1, 2\), got float64 of shape \(2,\)"),
        (lambda: finite("it", np.array([0, np.nan])), r"it\[1\] must be a finite number, got nan"),
        (lambda: finite("it", np.array(np.inf)), "it must be a finite number, got inf"),
        (lambda: within("it", np.array([[0, 1], [5, 6]]), 0, [4, 7]), r"it\[1, 0\] must be from 0 to 4, got 5"),
        (lambda: within("it", np.array([np.nan]), -np.inf, np.inf), r"it\[0\] must be from -inf to inf, got nan"),
        (lambda: actions("it", np.array([2, 3]), spaces.Discrete(3, start=5)), r"it\[1\] .* 0 to 2"),
        (lambda: actions("it", np.array([[1, 2]]), spaces.MultiDiscrete([2, 2])), r"\[0, 1\].* 0 to 1"),
        (lambda: actions("it", np.array([[np.nan]]), spaces.Box(-1, 1, (1,))), r"it\[0, 0\] must be a"),
    ],
)
def test_what_does_not_is_named(check, message):
    with pytest.raises(SaveError, match=message):
        check()


def test_what_nobody_reads_may_be_anything():
    where = np.array([True, False])
    finite("it", np.array([[0.0, 1.0], [np.nan, np.inf]]), where)
    within("it", np.array([1, 99]), 0, 2, where)


def test_a_value_of_another_type_is_told():
    assert of_type("it", 1, int, float) == 1
    for wrong in (True, "1", None, 1.5):
        with pytest.raises(SaveError, match=r"it must be of type int, got"):
            of_type("it", wrong, int)


@pytest.mark.parametrize("wrong", [-1, 2**53 + 1, True, 1.0, "1", None])
def test_a_count_is_a_whole_number_that_may_be_counted_on(wrong):
    with pytest.raises(SaveError, match="it must be"):
        counted("it", wrong)
