"""Sums in compiled code have the bits of numpy's sums."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from marltrain.policies.compiled.sums import sum_in_pairs


@pytest.mark.parametrize("kind", [np.float32, np.float64])
def test_sums_are_those_of_numpy(kind: Any) -> None:
    rng = np.random.default_rng(0)
    for count in (0, 1, 7, 8, 9, 127, 128, 129, 255, 256, 257, 1_000, 4_099):
        terms = (rng.normal(size=count) * 10.0 ** rng.integers(-4, 4, count)).astype(kind)
        assert sum_in_pairs(terms) == terms.sum()
