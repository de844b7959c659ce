"""The seed tree: named streams, so that adding one moves no other. The numbers here must never change."""

from __future__ import annotations

import json

import numpy as np
import pytest

from marltrain.core.errors import SaveError
from marltrain.core.seeds import SEED_LIMIT, child_seed, fresh_seed, generator, restored, state_of

FROZEN = {
    "act": 0.10167950606212128,
    "weights": 0.21676971874029105,
    "episodes": [374768437, 839587190],
    "agents": [1834452054, 685105191],
}


def test_the_streams_are_frozen():
    """Runs and saved agents of earlier versions depend on these."""
    assert generator(0, "act").random() == pytest.approx(FROZEN["act"], abs=1e-15)
    assert generator(7, "weights", "actor").random() == pytest.approx(FROZEN["weights"], abs=1e-15)
    assert [child_seed(0, "episode", role, 2, 5) for role in ("train", "test")] == FROZEN["episodes"]
    assert [child_seed(seed, "agent", 1) for seed in (0, 1)] == FROZEN["agents"]


def test_equal_paths_are_equal_streams_and_others_differ():
    paths: list[tuple[int, list[int | str]]] = [
        (0, ["a"]), (1, ["a"]), (0, ["b"]), (0, []), (0, ["a", 0]), (0, ["a", 1]), (0, ["a", "b"])
    ]  # fmt: skip
    draws = [generator(seed, *path).random(4).tolist() for seed, path in paths]
    assert len({tuple(drawn) for drawn in draws}) == len(paths)
    assert draws == [generator(seed, *path).random(4).tolist() for seed, path in paths]


def test_seeds_fit_the_legacy_generators_inside_environments():
    seeds = [child_seed(3, "episode", "train", e, k) for e in range(20) for k in range(20)]
    assert len(set(seeds)) == 400
    assert all(0 <= seed < SEED_LIMIT for seed in seeds)
    np.random.RandomState(max(seeds))
    assert {np.sign(child_seed(seed, "x") % 2) for seed in range(20)} == {0, 1}


def test_fresh_seeds_differ():
    assert len({fresh_seed() for _ in range(20)}) == 20


def test_a_state_survives_json():
    rng = generator(0, "act")
    rng.random(3)
    again = restored(json.loads(json.dumps(state_of(rng))))
    assert again.random(5).tolist() == rng.random(5).tolist()
    rng.random()
    assert state_of(again) != state_of(rng)


STATE = state_of(generator(0, "act"))


@pytest.mark.parametrize(
    "wrong",
    [
        None, [], {}, {**STATE, "bit_generator": "MT19937"}, {**STATE, "more": 1}, {**STATE, "has_uint32": 2},
        {**STATE, "uinteger": -1}, {**STATE, "uinteger": "1"}, {**STATE, "has_uint32": True}, {**STATE, "state": 1},
        {**STATE, "state": {"state": 1}}, {**STATE, "state": {"state": 2**128, "inc": 1}},
        {**STATE, "state": {"state": 0, "inc": 0}}, {**STATE, "state": {"state": 1.0, "inc": 1}},
    ],
)  # fmt: skip
def test_what_is_no_state_of_a_generator_is_refused(wrong):
    """With an increment of 0 it gives one number for ever, and drawing without a bias never ends."""
    with pytest.raises(SaveError, match="a generator's state must be what numpy's PCG64 tells of itself, got "):
        restored(wrong)
