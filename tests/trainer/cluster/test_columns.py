"""The environments of a runner among all, by game and by match."""

import numpy as np

from marltrain.trainer.cluster.columns import Columns, Joined

TWO = np.array([[0, 2], [1, 3]])  # [K, S]: of two matches, agent k plays both seats of match k


def test_matches_by_hand():
    """Environments 3 to 7 of two matches of five: 3 and 4 of match 0, and the first three of match 1."""
    columns = Columns(3, 8, 5, 2)
    assert columns.width == 3
    assert columns.valid.tolist() == [[True, True, False], [True, True, True]]
    assert columns.cells.tolist() == [[0, 1, 0], [2, 3, 4]]
    games = np.array([[3, 4, 5, 6, 7], [13, 14, 15, 16, 17]])  # [P, n]
    by_match = columns.by_match(games)
    assert by_match.tolist() == [[3, 4, 3], [5, 6, 7], [13, 14, 13], [15, 16, 17]]
    assert columns.by_game(by_match).tolist() == games.tolist()
    rows = np.arange(20).reshape(2, 2, 5)
    taken = columns.take(rows, TWO)
    assert taken.tolist() == [[[3, 4, 0], [8, 9, 5]], [[10, 11, 12], [15, 16, 17]]]
    into = np.full((2, 2, 5), -1)
    columns.put(taken, into, TWO)
    assert into.tolist() == [[[-1, -1, -1, 3, 4], [-1, -1, -1, 8, 9]], [[10, 11, 12, -1, -1], [15, 16, 17, -1, -1]]]


def test_noise_is_that_of_all_environments():
    """Two acts; the noise of a row is its number among all acts, seats and environments."""

    def draw(rngs, rows):
        return {"noise": np.arange(2 * rows).reshape(2, rows)}

    noise = Columns(3, 8, 5, 2).cut(draw, TWO)([], 2 * 2 * 3)["noise"].reshape(2, 2, 2, 3)
    assert noise[0].tolist() == [[[3, 4, 0], [8, 9, 5]], [[13, 14, 10], [18, 19, 15]]]
    assert noise[1, 1].tolist() == [[30, 31, 32], [35, 36, 37]]
    alone = Columns(1, 3, 5).cut(draw, np.array([[0, 1], [2, 3]]))([], 2 * 2 * 2)["noise"]
    assert alone.tolist() == [[1, 2, 6, 7, 11, 12, 16, 17], [21, 22, 26, 27, 31, 32, 36, 37]]


def test_carries_of_runners_are_joined():
    """The second runner has no carry of one part yet: its rows are 0."""
    held, players = [Columns(0, 2, 5), Columns(2, 5, 5)], np.array([[0]])
    first = {"a": np.ones((1, 1, 2)), "b": (np.ones((1, 1, 2)), None)}
    second = {"a": np.full((1, 1, 3), 2.0)}
    joined = Joined(held, players, 5)
    found = joined.of([first, second])
    assert found["a"].tolist() == [[[1, 1, 2, 2, 2]]]
    assert found["b"][0].tolist() == [[[1, 1, 0, 0, 0]]] and found["b"][1] is None
    assert joined.of([None, None]) is None
