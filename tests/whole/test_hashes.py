"""Checksums of runs depend on values only."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from marltrain.policies.agents.registry import ALGORITHMS
from tests.whole.hash_cases import CASES, EVERY
from tests.whole.hashes import checksum, main

ONE, TWO = np.arange(3.0), np.arange(4, 6)
RNG = np.random.default_rng(0).bit_generator.state
LEFT = [{"a": ONE, "b": TWO, "rng": RNG, "lr": 0.1}, pd.DataFrame({"x": [1, 2], "y": [3.5, np.nan], "who": ["p", "q"]})]


def test_names_order_nesting_settings_and_text_do_not_count():
    table = pd.DataFrame({"z": ["r", "s"], "v": [3.5, np.nan], "u": [1, 2]})
    assert checksum([{"nets": [TWO, {"c": ONE}], "numbers": {"e": RNG}, "rate": 0.2}, table]) == checksum(LEFT)


@pytest.mark.parametrize(
    "state",
    [
        {"a": ONE + 1e-15, "b": TWO, "rng": RNG},
        {"a": ONE, "b": TWO.astype(np.int32), "rng": RNG},
        {"a": ONE, "b": TWO},
        {"a": ONE, "b": TWO, "c": TWO, "rng": RNG},
        {"a": ONE, "b": TWO, "rng": np.random.default_rng(1).bit_generator.state},
    ],
    ids=["a bit", "a dtype", "no generator", "twice", "another generator"],
)
def test_values_count(state):
    assert checksum([state, LEFT[1]]) != checksum(LEFT)


def test_agents_are_in_order():
    assert checksum([ONE, TWO]) != checksum([TWO, ONE])


def test_every_algorithm_is_run_in_both_frameworks():
    assert set(EVERY) == set(ALGORITHMS)
    assert {f"{name}, tensorflow" for name in ALGORITHMS} <= set(CASES)


def test_lines_that_differ_are_printed(monkeypatch, tmp_path, capsys):
    runs = {"same": lambda: [ONE], "changed": lambda: [TWO], "new": lambda: [ONE], "broken": lambda: [object()]}
    monkeypatch.setattr("tests.whole.hashes.CASES", runs)
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    before = tmp_path / "before.txt"
    before.write_text(f"{checksum([ONE])} same\n{checksum([ONE])} changed\n{checksum([ONE])} left out\n")
    for asked, code, names in (
        ([], 1, ["changed", "new", "broken", "left out"]), (["same"], 0, []), (["s*", "new"], 1, ["new"])
    ):  # fmt: skip
        monkeypatch.setattr("sys.argv", ["hashes", *asked, "--against", str(before)])
        assert main() == code
        assert [line.partition(" ")[2].partition(" (")[0] for line in capsys.readouterr().out.splitlines()] == names
