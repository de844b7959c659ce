"""The tiers of the tests: `make test` in few rounds, `make check-long` in many."""

from __future__ import annotations

import os

LONG = os.environ.get("MARLTRAIN_TESTS") == "long"


def rounds(short: int, long: int) -> int:
    """Return how many rounds (episodes, steps, starts) a test plays: `short`, or `long` with MARLTRAIN_TESTS=long."""
    return long if LONG else short
