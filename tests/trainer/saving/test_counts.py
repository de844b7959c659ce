"""The counters of a checkpoint: impossible values are refused."""

import re

import numpy as np
import pytest

from marltrain.core.errors import SaveError
from marltrain.storage.state import State
from marltrain.trainer.reporting.history import History
from marltrain.trainer.saving.counts import check_tables, counted

COUNTERS = {"episodes": 3, "env_steps": 60, "updates": 2, "gradient_steps": 4, "dropped_steps": 0}


def state(**changes):
    """The counts of a run of 2 players in 3 environments, as a checkpoint holds them, with some changed."""
    info = {
        "counters": COUNTERS,
        "gradient_base": 0,
        "seconds": 1.5,
        "tested_at": [3, 60],
        "trained": 1,
    }
    arrays = {"returns": np.zeros((2, 3)), "lengths": np.array([1, 20, 0])}
    for name, value in changes.items():
        (info if name in info else arrays)[name] = value
    return State(info, arrays)


def read(given):
    return counted(given, {"env_steps": 60, "episodes": 3}, 2, 3)


def test_counters_are_read():
    known = read(state())
    assert vars(known.counters) == COUNTERS
    assert (known.tested_at, known.seconds, known.lengths.tolist()) == ((3, 60), 1.5, [1, 20, 0])


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        (
            "counters",
            {**COUNTERS, "env_steps": -(2**63)},
            "counters/env_steps must be from 0 to 9007199254740992, got -9",
        ),
        ("counters", {**COUNTERS, "env_steps": 57}, "counters/env_steps is 57, and the manifest says 60"),
        ("counters", {**COUNTERS, "episodes": 4}, "counters/episodes is 4, and the manifest says 3"),
        ("counters", {**COUNTERS, "updates": 2.0}, "counters/updates must be of type int, got 2.0"),
        ("counters", {"episodes": 3}, "counters holds episodes; expected episodes, env_steps, updates"),
        ("counters", [], "counters must be of type dict, got []"),
        ("gradient_base", -5, "gradient_base must be from -4 to"),
        ("trained", 0, "trained must be from 1 to"),
        ("seconds", -0.5, "seconds must be from 0 to 1000000000000, got -0.5"),
        ("seconds", 1e308, "seconds must be from 0 to 1000000000000, got 1e+308"),
        ("tested_at", [3], "tested_at must be (episodes, env steps), got [3]"),
        ("tested_at", [4, 60], "tested_at[0] must be from -1 to 3, got 4"),
        ("tested_at", [3, "60"], "tested_at[1] must be of type int, got '60'"),
        ("returns", np.full((2, 3), np.inf), "returns[0, 0] must be a finite number, got inf"),
        ("returns", np.zeros(3), "returns must be float64 of shape (2, 3), got float64 of shape (3,)"),
        ("lengths", np.array([0, 21, 0]), "lengths[1] must be from 0 to 20, got 21"),
        ("lengths", np.array([0, -1, 0]), "lengths[1] must be from 0 to 20, got -1"),
    ],
)
def test_impossible_counters_are_refused(name, value, message):
    with pytest.raises(SaveError, match=re.escape(message)):
        read(state(**{name: value}))


def test_table_lengths_must_match_the_counters(tmp_path):
    with pytest.raises(SaveError, match="history/tests has 0 rows, and 2 tests are counted"):
        check_tables(History(["a", "b"], tmp_path), 2, 0)
    with pytest.raises(SaveError, match="history/episodes has 0 rows, and 3 episodes are counted"):
        check_tables(History(["a", "b"], tmp_path), 0, 3)
