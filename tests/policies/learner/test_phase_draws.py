"""Numbers drawn ahead for several updates equal those drawn for one update after another."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from marltrain.policies.distributions.draws import normals
from marltrain.policies.interface.algorithm import Phase
from marltrain.policies.learner.phase_draws import PhaseDraws

ROWS = 3


def tree(rngs, rows):
    """Two arrays of different types, one of them within a mapping, and a name without numbers."""
    whole = np.stack([rng.integers(9, size=(rows, 2)) for rng in rngs])
    return {"first": {"normal": normals(rngs, rows, 1)}, "whole": whole, "none": None}


def phases() -> list[Phase]:
    def loss(*_: Any) -> Any:
        return None

    return [
        Phase("a", (), loss, draw=tree),
        Phase("silent", (), loss),
        Phase("b", (), loss, draw=lambda rngs, rows: {"more": normals(rngs, rows, 2)}),
    ]


def made() -> tuple[PhaseDraws, list[np.random.Generator]]:
    rngs = [np.random.default_rng(seed) for seed in (1, 2)]
    return PhaseDraws(phases(), rngs), rngs


def flat(tree: Any) -> dict[str, Any]:
    parts = [flat({f"{k}/{n}": v for n, v in t.items()}) if isinstance(t, dict) else {k: t} for k, t in tree.items()]
    return {name: array for part in parts for name, array in part.items() if array is not None}


def singly(draws: PhaseDraws, making: Any) -> list[dict[int, Any]]:
    return [
        {f: flat(draws.of_phase(f, np.repeat(own[:, None], ROWS, 1))) for f, own in enumerate(update) if own.any()
         and f in draws}
        for update in making
    ]  # fmt: skip


MAKING = np.ones((4, 3, 2), bool)
MAKING[1, 0] = MAKING[2, 2, 1] = MAKING[3, 2] = False


def making(shared: bool) -> Any:
    """All agents draw in each phase that is made, since trees with None are not drawn for some of them."""
    return MAKING if not shared else np.broadcast_to(MAKING.any(-1, keepdims=True), MAKING.shape)


@pytest.mark.parametrize("shared", [False, True])
def test_numbers_ahead_are_those_of_single_updates(shared):
    own = making(shared)
    (ahead, rngs), (single, others) = made(), made()
    drawn, expected = ahead.ahead(own, ROWS), singly(single, own)
    for update, phases_made in enumerate(expected):
        for f, arrays in phases_made.items():
            for name, array in arrays.items():
                np.testing.assert_array_equal(flat(drawn[f])[name][update], array)
    for mine, theirs in zip(rngs, others, strict=True):
        assert mine.bit_generator.state == theirs.bit_generator.state


@pytest.mark.parametrize("used", [0, 1, 3, 4])
def test_generators_return_to_the_numbers_that_were_used(used):
    own = making(shared=True)
    (ahead, rngs), (single, others) = made(), made()
    ahead.ahead(own, ROWS)
    ahead.use(used)
    singly(single, own[:used])
    before = ahead.version
    ahead.settle()
    assert ahead.version == before + (used < len(own))
    for mine, theirs in zip(rngs, others, strict=True):
        assert mine.bit_generator.state == theirs.bit_generator.state
    ahead.settle()
    assert ahead.version == before + (used < len(own))


def test_an_example_draws_nothing_from_the_generators():
    draws, rngs = made()
    before = [dict(rng.bit_generator.state) for rng in rngs]
    arrays = {f: flat(tree) for f, tree in draws.example(ROWS).items()}
    assert {f: {name: array.shape for name, array in each.items()} for f, each in arrays.items()} == {
        0: {"first/normal": (2, ROWS, 1), "whole": (2, ROWS, 2)}, 2: {"more": (2, ROWS, 2)},
    }  # fmt: skip
    assert [dict(rng.bit_generator.state) for rng in rngs] == before
