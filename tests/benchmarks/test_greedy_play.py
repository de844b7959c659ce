from dataclasses import replace

import numpy as np
import pytest

import marltrain as mt
from benchmarks.greedy_play import line, played
from benchmarks.learn.tasks import FORAGING_LARGE
from tests.envs.native.forging import SMALL_FIELD


@pytest.fixture(autouse=True)
def _small(monkeypatch):
    """Play in a field of a size that other tests compile, too."""
    small = {name: SMALL_FIELD[name] for name in ("players", "field_size", "max_num_food")}
    monkeypatch.setattr("benchmarks.greedy_play.FORAGING_LARGE", replace(FORAGING_LARGE, env_args=small))


class Still(mt.Agent):
    """Takes action 0, stay; exploring, it moves north and south by turns, which ends with a changed state."""

    moves = 0

    def act(self, observation, legal=None, explore=False):
        self.moves += 1
        return 1 + self.moves % 2 if explore else 0


def test_players_that_stay_stand_still_and_load_nothing():
    agents = [Still() for _ in range(3)]
    assert played(agents, explore=False, episodes=2) == pytest.approx(np.array([[0, 1], [0, 1]]))


def test_players_that_move_do_not_stand_still():
    agents = [Still() for _ in range(3)]
    assert (played(agents, explore=True, episodes=3)[:, 1] == 0).any()


def test_a_row_holds_means_and_shares():
    assert line("mean", np.array([[0.5, 0.25], [0.991, 0.02]])) == "| mean | 0.50 (25%) | 0.99 (2%) |"
