"""Random numbers of native games: drawn from the environment's uint64 state, or taken from a queue of outcomes.

The rules call these functions with their record `s`. Queued outcomes (`set_chances`) are used first, in order and
unchanged. This allows a comparison of a game with its original on the original's outcomes.

The generator is splitmix64 (Steele, Lea, Flood 2014): a counter and a mixing function.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from marltrain.core.seeds import SEED_LIMIT
from marltrain.jit.compiling import inner
from marltrain.jit.views import f64

_GAMMA, _MIX1, _MIX2 = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
_U11, _U16, _U27, _U30, _U31 = np.uint64(11), np.uint64(16), np.uint64(27), np.uint64(30), np.uint64(31)
_LOW32 = np.uint64(0xFFFFFFFF)
_LIMIT = np.uint64(SEED_LIMIT)


@inner
def uniform(s: Any, low: float, high: float) -> float:
    """Return a uniform random number in [low, high)."""
    return _queued(s) if s.queued > 0 else low + (high - low) * _fraction(s)


@inner
def normal(s: Any) -> float:
    """Return a standard normal random number (Box and Muller 1958)."""
    if s.queued > 0:
        return _queued(s)
    radius = math.sqrt(-2.0 * math.log(1.0 - _fraction(s)))
    return radius * math.cos(2.0 * math.pi * _fraction(s))


@inner
def integer(s: Any, n: int) -> int:
    """Return a uniform random integer from 0 to n - 1."""
    return int(_queued(s)) if s.queued > 0 else int(n * _fraction(s))


@inner
def choice(s: Any, weights: Any) -> int:
    """Return a random index i with probability `weights[i] / sum(weights)`."""
    if s.queued > 0:
        return int(_queued(s))
    total = 0.0
    for weight in weights:
        total += weight
    rest = total * _fraction(s)
    for i in range(len(weights) - 1):
        rest -= weights[i]
        if rest < 0.0:
            return i
    return len(weights) - 1


@inner
def _queued(s: Any) -> float:
    outcome = f64(s.queue, 1)[0]
    s.queue += 8
    s.queued -= 1
    return outcome


@inner
def _mixed(z: Any) -> Any:
    z = (z ^ (z >> _U30)) * _MIX1
    z = (z ^ (z >> _U27)) * _MIX2
    return z ^ (z >> _U31)


@inner
def _fraction(s: Any) -> float:
    """Return a random number in [0, 1) with 53 random bits."""
    s.random += _GAMMA
    return (_mixed(s.random) >> _U11) * 2.0**-53


@inner
def seed(s: Any, number: int) -> None:
    """Start the random stream of an episode's seed."""
    s.seed = number
    s.random = _mixed(np.uint64(number) * _GAMMA + _MIX1)


# numpy's SeedSequence hashes 32-bit words into a pool, one after another. The words that an environment's episodes
# share are hashed in advance: `branch` is from the pool, `stir` is the hash constant. The last word is the episode.
_SEED_A, _SEED_B, _LEFT, _RIGHT = (np.uint64(k) for k in (0x931E8875, 0x58F38DED, 0xCA01F9DD, 0x4973F715))
_START_B = np.uint64(0x8B51F9DD)


@inner
def episode_seed(s: Any, episode: int) -> Any:
    """Return `child_seed(run seed, "episode", role, environment, episode)`; see `marltrain.core.seeds`."""
    stir = np.uint64(s.stir)
    value = (np.uint64(episode) ^ stir) & _LOW32
    value = (value * ((stir * _SEED_A) & _LOW32)) & _LOW32
    value ^= value >> _U16
    pool = (_LEFT * np.uint64(s.branch) - _RIGHT * value) & _LOW32
    pool ^= pool >> _U16
    word = ((pool ^ _START_B) * ((_START_B * _SEED_B) & _LOW32)) & _LOW32
    return np.int64((word ^ (word >> _U16)) % _LIMIT)
