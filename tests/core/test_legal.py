"""Masks of legal actions by hand: Discrete(4), and MultiDiscrete([2, 3]) with the entries of its numbers in a row."""

import numpy as np
import pytest
from gymnasium import spaces

from marltrain.core.legal import Legal

FOUR, WHEELS = Legal(spaces.Discrete(4, start=3)), Legal(spaces.MultiDiscrete(np.array([[2, 3]])))
MASKS = np.array([[1, 0, 0, 1, 1], [0, 0, 1, 1, 1], [1, 1, 0, 0, 0]], bool)


def test_sizes_of_masks():
    assert FOUR.sizes == (4,) and FOUR.width == 4
    assert WHEELS.sizes == (2, 3) and WHEELS.width == 5
    assert Legal(spaces.Box(0, 1, (3,))).width == 0


def test_masks_of_the_numbers_are_joined():
    apart = [[1, 0], [0, 1, 1]], (np.array([1, 0]), np.array([0, 1, 1])), [1, 0, 0, 1, 1]
    assert [WHEELS.joined(given).tolist() for given in apart] == [MASKS[0].tolist()] * 3
    assert WHEELS.joined([MASKS[:, :2], MASKS[:, 2:]]).tolist() == MASKS.tolist()
    bits = Legal(spaces.MultiDiscrete([2, 2, 2]))
    assert bits.joined(np.arange(12).reshape(2, 3, 2)).tolist() == np.arange(12).reshape(2, 6).tolist()
    for same in ([[1, 0, 1]], [1, 0, 1]):
        assert FOUR.joined(same).tolist() == same and Legal(spaces.MultiDiscrete([3])).joined(same).tolist() == same
    with pytest.raises(ValueError, match="inhomogeneous"):
        WHEELS.joined([[1, 0, 1], [1, 0]])


def test_each_number_needs_a_choice():
    assert WHEELS.playable(MASKS).tolist() == [True, False, False]
    assert FOUR.playable(np.array([[0, 0, 0, 1], [0, 0, 0, 0]], bool)).tolist() == [True, False]
    assert [WHEELS.without_choice(mask) for mask in (*MASKS[1:], MASKS[0] & False)] == [
        "choice of number 0", "choice of number 1", "action",
    ]  # fmt: skip


def test_legal_actions():
    actions = np.array([[0, 2], [1, 2], [0, 0]])
    assert WHEELS.permits(MASKS[:1].repeat(3, 0), actions).tolist() == [True, False, False]
    assert FOUR.permits(np.eye(4, dtype=bool), np.array([0, 1, 3, 3])).tolist() == [True, True, False, True]


def test_best_choices_and_words():
    scores = np.array([[[0.1, 0.2, 3.0, 2.0, 1.0], [0.3, 0.2, 0.0, 0.0, 0.1]]])
    assert WHEELS.best(scores).tolist() == [[[1, 0], [0, 2]]]
    assert FOUR.best(np.array([[0.0, 1.0, 5.0, 2.0]])).tolist() == [2]
    assert WHEELS.listed(MASKS[0]) == "[0] and [1, 2]" and FOUR.listed(MASKS[0, :4]) == "[0, 3]"
