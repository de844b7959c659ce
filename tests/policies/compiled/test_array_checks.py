"""What compiled code would not read aright is refused by name."""

import numpy as np
import pytest

from marltrain.jit.views import address_of
from marltrain.policies.compiled.array_checks import check_places, place_of


def test_a_column_is_where_it_begins():
    every = np.arange(24, dtype=np.float32).reshape(4, 3, 2)
    assert place_of("obs", every, np.float32, (4, 3, 2)) == address_of(every)
    assert place_of("obs", every[1:3], np.float32, (2, 3, 2)) == address_of(every) + 24
    flags, wholes = np.zeros((2, 0), bool), np.zeros(5, np.int64)
    assert place_of("legal", flags, np.bool_, (2, 0)) == address_of(flags)
    assert place_of("action", wholes, np.int64, (5,)) == address_of(wholes)


RIGHT = np.zeros((4, 3), np.float32)
WRONG = {
    "nothing": None,
    r"float64 \(4, 3\) with strides \(24, 8\)": RIGHT.astype(np.float64),
    r"int32 \(4, 3\)": RIGHT.astype(np.int32),  # as many bytes
    r">f4|float32 \(4, 3\)": RIGHT.astype(">f4"),  # the other way round
    r"float32 \(3, 4\)": RIGHT.reshape(3, 4),
    r"float32 \(4, 3, 1\)": RIGHT[..., None],
    r"float32 \(12,\)": RIGHT.reshape(-1),
    r"float32 \(3, 3\)": RIGHT[:3],
    r"float32 \(4, 3\) with strides \(4, 16\)": np.zeros((3, 4), np.float32).T,
    r"float32 \(4, 3\) with strides \(24, 8\)": np.zeros((4, 6), np.float32)[:, ::2],
    r"float32 \(4, 3\) with strides \(-12, 4\)": RIGHT[::-1],
    r"float32 \(4, 3\) with strides \(0, 4\)": np.broadcast_to(RIGHT[0], (4, 3)),
}


@pytest.mark.parametrize("came", WRONG)
def test_a_column_that_is_not_as_it_is_taken_for(came):
    with pytest.raises(
        TypeError, match=rf"^column 'reward' must be float32 \(4, 3\) in one piece; it is (numpy )?({came})"
    ):
        place_of("reward", WRONG[came], np.float32, (4, 3))


@pytest.mark.parametrize("places", [[0, 3, 1], [[3], [3]], [], [[]]], ids=str)
def test_places_that_there_are(places):
    check_places("rows", np.array(places, np.int64), 4)


def test_nothing_lies_nowhere():
    check_places("rows", None, 4)


@pytest.mark.parametrize(
    ("places", "told"),
    [([0, 4], "0 to 4"), ([[2], [-1]], "-1 to 2"), ([-(2**40), 2**40], f"-{2**40} to {2**40}"), ([4], "4 to 4")],
)
def test_places_that_there_are_not(places, told):
    with pytest.raises(TypeError, match=rf"^rows must lie in \[0, 4\); they are {told}$"):
        check_places("rows", np.array(places, np.int64), 4)


def test_nothing_lies_in_an_array_of_nothing():
    with pytest.raises(TypeError, match=r"^actions must lie in \[0, 0\); they are 0 to 0$"):
        check_places("actions", np.zeros(1, np.int64), 0)
