"""The seed tree: all streams of random numbers and their seeds.

One integer seeds a run. Every stream is identified by its path below this seed, so that a new stream changes no other:

    (seed, "episode", role, environment, episode)   one episode of one environment; role is "train" or "test"
    (seed, "agent", player)                         an agent made by `make_agents`
    (seed, "serve", player)                         acts for processes that are attached to a run
    (agent seed, "weights", network)                initial weights
    (agent seed, purpose)                           "act", "sample", "update", "test"
"""

from __future__ import annotations

import zlib
from typing import Any

import numpy as np

from marltrain.core.errors import ConfigError, SaveError, shown
from marltrain.core.settings import as_integer

Key = int | str
MOST_SEED = 2**63 - 1
SEED_LIMIT = 2**31 - 1  # legacy generators inside environments take no more than 31 bits


def _words(path: tuple[Key, ...]) -> tuple[int, ...]:
    return tuple(zlib.crc32(key.encode()) if isinstance(key, str) else int(key) for key in path)


def sequence(seed: int, *path: Key) -> np.random.SeedSequence:
    """Return the seed sequence at `path` below `seed`."""
    return np.random.SeedSequence(seed, spawn_key=_words(path))


def generator(seed: int, *path: Key) -> np.random.Generator:
    """Return the random generator at `path` below `seed`; equal arguments give equal streams."""
    return np.random.default_rng(sequence(seed, *path))


def child_seed(seed: int, *path: Key) -> int:
    """Return the integer seed at `path` below `seed`, in [0, 2**31 - 1)."""
    return int(sequence(seed, *path).generate_state(1)[0]) % SEED_LIMIT


def fresh_seed() -> int:
    """Return a seed from the operating system's entropy, for runs without a given seed."""
    return int(np.random.SeedSequence().generate_state(1)[0]) % SEED_LIMIT


def chosen_seed(seed: int | None, where: str) -> int:
    """Return the seed, or a fresh seed for None; raises ConfigError unless it is an integer from 0 to 2**63 - 1."""
    if seed is None:
        return fresh_seed()
    number = as_integer(seed)
    if isinstance(number, bool) or not isinstance(number, int) or not 0 <= number <= MOST_SEED:
        raise ConfigError(f"{where}: seed must be an integer of at least 0, below 2**63, or None, got {shown(seed)}")
    return number


def state_of(rng: np.random.Generator) -> dict[str, Any]:
    """Return a generator's state as plain Python values that JSON can hold."""
    return dict(rng.bit_generator.state)


def restored(state: Any) -> np.random.Generator:
    """Return a generator in a state from `state_of`; raises SaveError for an invalid state."""
    if not _is_state(state):
        raise SaveError(f"a generator's state must be what numpy's PCG64 tells of itself, got {shown(state)}")
    rng = np.random.default_rng(0)
    rng.bit_generator.state = state
    return rng


def _is_state(state: Any) -> bool:
    """Return whether this is a valid state of PCG64; an even increment would give a very short period."""
    numbers = state.get("state") if isinstance(state, dict) else None
    if not isinstance(numbers, dict) or set(state) != {"bit_generator", "state", "has_uint32", "uinteger"}:
        return False
    if state["bit_generator"] != "PCG64" or set(numbers) != {"state", "inc"}:
        return False
    limits = {"state": 2**128, "inc": 2**128, "has_uint32": 2, "uinteger": 2**32}
    held = {**state, **numbers}
    return all(type(held[n]) is int and 0 <= held[n] < most for n, most in limits.items()) and held["inc"] % 2 == 1
