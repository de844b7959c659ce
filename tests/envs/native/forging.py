"""States as somebody might forge them, played on: `python -m tests.envs.native.forging ROUNDS SEED [CASE ...]`.

Run as a process of its own: what compiled code does to memory, or a loop without an end, takes the process with it.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from marltrain.core.errors import ConfigError
from marltrain.envs.native.batch import GameBatch
from marltrain.envs.native.catalog import GAMES
from marltrain.envs.native.vector import NativeVectorEnv
from marltrain.envs.python.check_env import random_actions
from tests.tiers import LONG

SMALL_FIELD: dict[str, Any] = {"players": 3, "field_size": (6, 6), "max_num_food": 2, "sight": 2}
"""Sizes of foraging in tests where the size is not the subject."""
CASES: dict[str, tuple[str, dict[str, Any]]] = {
    **{name: (f"marltrain/{name}", {}) for name in GAMES},
    "leduc of three": ("marltrain/leduc_poker_v1", {"players": 3, "action_mapping": True, "suit_isomorphism": True}),
    **({"kuhn of three": ("marltrain/kuhn_poker_v1", {"players": 3})} if LONG else {}),
    "pictures": (
        "marltrain/foraging_v3",
        {"players": 3, "field_size": (7, 5), "max_num_food": 4, "sight": 2, "grid_observation": True},
    ),
    "neighbors": (
        "marltrain/simple_tag_v3",
        {"num_adversaries": 0, "num_good": 2, "num_agent_neighbors": 2, "num_landmark_neighbors": 1},
    ),
    "curriculum": ("marltrain/simple_tag_v3", {"curriculum": True}),
    "crowded": (
        "marltrain/rware_v2",
        {"n_agents": 8, "request_queue_size": 3, "layout": ".x.x..\nx....x\n.gx.g.", "max_steps": 60},
    ),
}
"""Sizes are those of other tests: every size of a game is a program of its own, compiled for several seconds.

The short tier plays those that its other tests compile, too.
"""
NUM_ENVS, STEPS = (32, 200) if LONG else (16, 100)
EXTREME = (-(2**63), -(2**31), -257, -2, -1, 0, 1, 2, 3, 7, 127, 256, 2**31, 2**62, 2**63 - 1)
WILD = (np.nan, np.inf, -np.inf, 1e300, -1e300, 1e18, 0.0, -1.0)


def forged(batch: GameBatch, state: dict[str, Any], rng: np.random.Generator) -> dict[str, Any]:
    """One or more entries of one or more fields of a state, replaced by what its dtype can hold."""
    names = rng.choice(list(state), rng.choice([1, 1, 2, 3, 6]), replace=False)
    changed = {str(name): np.array(state[name]) for name in names}
    for name, values in changed.items():
        for at in rng.choice(values.size, rng.integers(1, min(values.size, 3) + 1), replace=False):
            values.reshape(-1)[at] = replaced(batch, name, int(at), values.dtype, rng)
    return changed


def replaced(batch: GameBatch, name: str, at: int, dtype: np.dtype[Any], rng: np.random.Generator) -> Any:
    """Draw a value, more often than not within the field's bounds or just outside."""
    inside = name in batch.game.bounds and rng.random() < 0.8
    if dtype.kind == "f":
        low, high = (side.reshape(-1)[at] for side in batch.game.bounds[name]) if inside else (-2.0, 2.0)
        return rng.choice(WILD) if rng.random() < 0.3 else low + (high - low) * rng.choice([0, 1, rng.random()])
    info = np.iinfo(dtype)
    if inside:
        low, high = (int(side.reshape(-1)[at]) for side in batch.game.bounds[name])
        value = low + int(rng.integers(-1, 2 + min(high - low, 40)))
    else:
        value = int(rng.choice(np.array(EXTREME, object)))
    return min(max(value, info.min), info.max)


def play(case: str, rounds: int, seed: int) -> tuple[int, int]:
    """Forge, and play on from what is accepted; return how many were, and how many were refused."""
    name, arguments = CASES[case]
    vector, rng = NativeVectorEnv(name, NUM_ENVS, arguments, with_state=True), np.random.default_rng(seed)
    accepted = refused = 0
    for _ in range(rounds):
        step = vector.reset(int(rng.integers(1000)))
        for _ in range(rng.integers(30)):
            step = vector.step(random_actions(vector.spec, step, rng))
        for e in range(NUM_ENVS):
            for _ in range(4):
                try:
                    vector.batch.set_state(e, forged(vector.batch, vector.batch.get_state(e), rng))
                    accepted += 1
                except ConfigError:
                    refused += 1
        for _ in range(STEPS):
            step = vector.step(random_actions(vector.spec, step, rng))
    return accepted, refused


if __name__ == "__main__":
    with np.errstate(all="ignore"):
        for one in sys.argv[3:] or CASES:
            print(one, *play(one, int(sys.argv[1]), int(sys.argv[2])), flush=True)
