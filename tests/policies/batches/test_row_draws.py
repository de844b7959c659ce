"""Random numbers for the rows of a batch: every agent draws for its own rows only."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from marltrain.policies.batches.row_draws import drawn_rows


def draw(rngs: Sequence[np.random.Generator], rows: int) -> dict[str, Any]:
    normal = np.stack([rng.standard_normal((rows, 2)) for rng in rngs])
    return {"noise": normal, "tree": {"index": np.stack([rng.integers(9, size=rows) for rng in rngs])}}


def generators(*seeds: int) -> list[np.random.Generator]:
    return [np.random.default_rng(seed) for seed in seeds]


def test_rows_of_an_agent_do_not_depend_on_the_others():
    rows = np.array([[False, True, True, False, True], [False] * 5, [True] * 5])
    rngs = generators(0, 1, 2)
    result = drawn_rows(draw, rngs, rows)
    for k, own in enumerate(rows):
        alone: Any = draw(generators(k), int(own.sum()))
        assert np.array_equal(result["noise"][k, own], alone["noise"][0])
        assert not result["noise"][k, ~own].any()
    assert np.array_equal(result["tree"]["index"][2], draw(generators(2), 5)["tree"]["index"][0])
    assert rngs[1].random() == np.random.default_rng(1).random()  # an agent without rows drew nothing


def test_full_rows_are_drawn_in_one_call():
    result = drawn_rows(draw, generators(0, 1), np.ones((2, 4), bool))
    assert np.array_equal(result["noise"], draw(generators(0, 1), 4)["noise"])
