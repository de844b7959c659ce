"""Masks of MultiDiscrete actions: those of the numbers side by side, or one for each number."""

import numpy as np
import pytest
from gymnasium import spaces

import marltrain as mt
from marltrain.core.errors import EnvError
from marltrain.envs import probe
from tests.envs.python.test_masks import PLAIN, PROMISED, Scripted, legal_moves

WHEELS = spaces.MultiDiscrete([2, 3], start=[5, -1])
PAIRED = {"space": PROMISED, "action_space": WHEELS}


@pytest.mark.parametrize(
    "mask",
    [[1, 0, 0, 1, 1], np.array([1, 0, 0, 1, 1], bool), ([1, 0], [0, 1, 1]), [np.array([1, 0]), np.array([0, 1, 1])]],
)
def test_masks_of_several_numbers_are_side_by_side(mask):
    """5, but not 6; 0 and 1, but not -1. Without a mask all is legal."""
    for arguments in ({"infos": {0: mask}, "action_space": WHEELS}, {"seen": {0: mask}, "space": PLAIN} | PAIRED):
        arguments = {**arguments, "space": PLAIN}
        assert legal_moves(arguments, steps=1, action=[0, 2]) == [[0, 3, 4], [0, 1, 2, 3, 4]]
        for wrong in ([1, 1], [0, 0]):
            with pytest.raises(EnvError, match=rf"action \{wrong} is not legal; expected one of \[0\] and \[1, 2\]"):
                legal_moves(arguments, steps=1, action=wrong)


def test_masks_of_equal_numbers_may_be_rows_and_those_of_bits_have_two_entries_each():
    rows = np.array([[1, 0], [1, 1], [0, 1]])
    bits = {"infos": dict.fromkeys(range(4), rows), "action_space": spaces.MultiBinary(3)}
    assert legal_moves(bits, steps=2, action=[0, 1, 1]) == [[0, 2, 3, 5]] * 3
    assert mt.check_env(Scripted, bits).ok


def test_a_method_that_gives_masks_to_other_libraries_is_told_of(recwarn):
    class Method(Scripted):
        def action_masks(self):
            return np.ones(3, bool)

    probe(Method, {"infos": {0: [1, 1, 1]}})
    assert not recwarn.list
    with pytest.warns(UserWarning, match=r"Method' has a method action_masks\(\), .*Give .* info\['action_mask'\]"):
        probe(Method)


@pytest.mark.parametrize(
    ("mask", "said"),
    [
        (
            [1, 0, 1],
            r"has shape \(3,\), expected \(5,\): one entry for each choice of each number of MultiDiscrete.*a list",
        ),
        ([[1, 0, 1], [1, 1]], r"is \[\[1, 0, 1\], \[1, 1\]\], expected \(5,\)"),
        ([[1, 0], [1, 2, 0]], "holds 2 for entry 3, expected 1 for a legal action"),
        ([0, 0, 1, 1, 1], "must move, but its action_mask allows no choice of number 0"),
        ([1, 1, 0, 0, 0], "must move, but its action_mask allows no choice of number 1"),
        ([0, 0, 0, 0, 0], "must move, but its action_mask allows no action"),
    ],
)
def test_wrong_masks_of_several_numbers(mask, said):
    with pytest.raises(EnvError, match=f"step 1: player 'player_0'.*{said}"):
        legal_moves({"infos": {0: [1] * 5, 1: mask}, "action_space": WHEELS}, action=[0, 0])


def test_a_final_mask_without_a_choice_of_a_number_allows_all():
    assert legal_moves({"infos": {0: [1] * 5, 4: [1, 0, 0, 0, 0]}, "action_space": WHEELS}, action=[0, 0])[-1] == [
        0, 1, 2, 3, 4
    ]  # fmt: skip
