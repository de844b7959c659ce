"""Seeding of numpy's global generator for a user's code, with its restoration."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
from numpy.random import mtrand

LENT = np.random.MT19937(0)
"""Bit generator of numpy's global functions within `numpy_seeded`."""


def drawn_seed() -> int:
    """Return a seed from numpy's global generator; call it within `numpy_seeded`."""
    return int(np.random.randint(2**31))


@contextmanager
def numpy_seeded(seed: int) -> Iterator[None]:
    """Seed numpy's global functions; restore their generator afterwards."""
    before = mtrand.get_bit_generator()
    try:  # from the exchange on: a signal may raise anywhere
        mtrand.set_bit_generator(LENT)  # the generator is exchanged, which avoids copies of its state
        np.random.seed(seed)
        yield
    finally:
        mtrand.set_bit_generator(before)
