"""Meta-strategies against known answers: equilibria, projections, replicator dynamics."""

from __future__ import annotations

import numpy as np
import pytest

from marltrain.core.errors import ConfigError
from marltrain.rivals.meta_strategies import nash, projected, replicator, uniform

ROCKS = np.array([[0.0, -1.0, 1.0], [1.0, 0.0, -1.0], [-1.0, 1.0, 0.0]])
ODD = np.array([[2.0, -1.0], [-1.0, 1.0]])
"""Both players choose the first action with probability 2/5; the value is 1/5."""


def zero_sum(mine: np.ndarray) -> np.ndarray:
    return np.stack([mine, -mine])


def test_uniform_strategies():
    found = uniform(np.zeros((2, 4, 2)))
    assert [share.tolist() for share in found] == [[0.25] * 4, [0.5] * 2]


@pytest.mark.parametrize(
    ("payoffs", "first", "second"),
    [
        (ROCKS, [1 / 3] * 3, [1 / 3] * 3),
        (ODD, [0.4, 0.6], [0.4, 0.6]),
        (np.array([[3.0, 1.0, 5.0]]), [1.0], [0.0, 1.0, 0.0]),
        (np.array([[1.0, -2.0], [-3.0, 4.0], [-4.0, 3.0]]), [0.7, 0.3, 0.0], [0.6, 0.4]),  # the last is dominated
    ],
)
def test_equilibria(payoffs, first, second):
    x, y = nash(zero_sum(payoffs))
    assert x == pytest.approx(first, abs=1e-6)
    assert y == pytest.approx(second, abs=1e-6)
    assert x.sum() == pytest.approx(1, abs=1e-12)


def test_an_equilibrium_of_another_game_is_refused():
    with pytest.raises(ConfigError, match=r"expected a zero-sum game.*sum to 2"):
        nash(np.stack([ODD, 2 - ODD]))


@pytest.mark.parametrize(
    ("point", "least", "expected"),
    [
        ([0.2, 0.3, 0.5], 0.1, [0.2, 0.3, 0.5]),
        ([1.0, 0.0, 0.0], 0.1, [0.8, 0.1, 0.1]),
        ([0.7, 0.5, -1.0], 0.0, [0.6, 0.4, 0.0]),
        ([0.9, 0.5, 0.1], 0.2, [0.6, 0.2, 0.2]),
        ([5.0, -5.0], 0.5, [0.5, 0.5]),
        ([0.3], 0.1, [1.0]),
    ],
)
def test_projections_by_hand(point, least, expected):
    assert projected(np.array(point), least) == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize(("payoffs", "answer"), [(ROCKS, [1 / 3] * 3), (ODD, [0.4, 0.6])])
def test_replicators_circle_around_the_equilibrium_of_a_zero_sum_game(payoffs, answer):
    count = len(answer)
    start = np.linspace(3, 1, count) / np.linspace(3, 1, count).sum()
    found = replicator(zero_sum(payoffs), start=(start, start[::-1]))
    for share in found:
        assert share == pytest.approx(answer, abs=0.02)


def test_replicators_leave_what_is_dominated_and_nothing_below_the_least_share():
    """The prisoner's dilemma: both defect; a step of 0.01 begins to change the shares by hand."""
    mine = np.array([[3.0, 0.0], [5.0, 1.0]])
    game = np.stack([mine, mine.T])
    x, y = replicator(game, least=0.01)
    assert 0.01 <= x[0] < 0.03  # the mean over time includes the way there
    assert x.tolist() == y.tolist()
    (once, _) = replicator(game, steps=1)  # 0.5 + 0.01 * 0.5 * (1.5 - 2.25) / 5
    assert once == pytest.approx([0.5 - 0.00075, 0.5 + 0.00075], abs=1e-9)
