"""Results of pools and of leagues are restored as they were saved, and others are refused."""

from typing import Any

import numpy as np
import pytest

from marltrain.core.errors import SaveError
from marltrain.rivals.league_results import LeagueResults
from marltrain.rivals.standings import Standings


def pool() -> tuple[Any, Any]:
    """The results of a pool of two members, and an empty one."""
    standings = Standings(0.9)
    for name, steps in (("at 0", 0), ("at 9", 9)):
        standings.enter(name, steps)
    standings.add(1, 1.0, -1.0)
    return standings, Standings(0.9)


def league() -> tuple[Any, Any]:
    """The results of a league of two learners and two members, and an empty one."""
    results = LeagueResults(2, 0.9)
    for name, steps in (("main_0 at 0", 0), ("exploiter_0 at 9", 9)):
        results.enter(name, steps)
    results.add(0, 1, 1.0, -1.0)
    return results, LeagueResults(2, 0.9)


@pytest.mark.parametrize("make", [pool, league])
class TestRestored:
    def test_results_are_equal(self, make):
        saved, again = make()
        again.restore(saved.state(), 2)
        assert again.names == saved.names and again.env_steps == [0, 9]
        found, expected = again.state(), saved.state()
        assert found.info == expected.info and found.arrays.keys() == expected.arrays.keys()
        for name, array in expected.arrays.items():
            np.testing.assert_array_equal(found.arrays[name], array)
            assert found.arrays[name].flags.writeable

    @pytest.mark.parametrize(
        ("name", "value"), [("names", ["one"]), ("names", ["one", 2]), ("env_steps", [0]), ("env_steps", [0, -1])]
    )
    def test_wrong_members_are_refused(self, make, name, value):
        saved, again = make()
        state = saved.state()
        state.info[name] = value
        with pytest.raises(SaveError, match=name):
            again.restore(state, 2)

    @pytest.mark.parametrize(("name", "value"), [("wins", -1), ("draws", 2**60), ("points", np.nan), ("games", np.inf)])
    def test_wrong_numbers_are_refused(self, make, name, value):
        saved, again = make()
        state = saved.state()
        state.arrays[name].flat[-1] = value
        with pytest.raises(SaveError, match=name):
            again.restore(state, 2)

    def test_arrays_of_another_shape_are_refused(self, make):
        saved, again = make()
        with pytest.raises(SaveError, match="shape"):
            again.restore(saved.state(), 3)
