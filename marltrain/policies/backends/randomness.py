"""numpy's global generator, seeded for a user's code and restored afterwards."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
from numpy.random import mtrand

LENT = np.random.MT19937(0)
"""What numpy's global functions draw from within `numpy_seeded`."""


@contextmanager
def numpy_seeded(seed: int) -> Iterator[None]:
    """Let numpy's global functions draw from a seed, and put their own generator back afterwards."""
    before = mtrand.get_bit_generator()
    mtrand.set_bit_generator(LENT)  # exchanged, so that no state has to be copied
    np.random.seed(seed)
    try:
        yield
    finally:
        mtrand.set_bit_generator(before)
