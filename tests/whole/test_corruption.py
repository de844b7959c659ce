"""A short form of `make corruption-test`: what is damaged anywhere is refused by name."""

import numpy as np

from tests.whole.corrupting import CUTS, damaged, made, mixed


def test_what_is_damaged_is_refused_by_name(tmp_path):
    """Of a checkpoint of 4 files and agents of 2: cuts, a bit in each of 40 regions, and each file missing.

    14 + 12 mixtures of the checkpoint's files with another's and with each other, 2 + 2 of the agents'.
    """
    rng, refused, unchanged = np.random.default_rng(0), 0, 0
    for saved in made("ppo by turns", tmp_path / "run"):
        for counts in (damaged(saved, 40, rng), mixed(saved)):
            refused, unchanged = refused + counts[0], unchanged + counts[1]
    assert refused + unchanged == 6 * (CUTS + 40 + 1) + 26 + 4
    assert unchanged < 20
