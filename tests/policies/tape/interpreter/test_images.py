"""Pixels and patches, worked out by hand."""

import numpy as np

from tests.policies.tape.executed import carry_out

SIZES = {"rows": 2, "height": 3, "width": 4, "channels": 2, "down": 2, "along": 2, "stride": 2}


def test_numbers_of_pixels():
    pixels = np.array([[0, 7, 255, 7], [128, 7, 3, 7]], np.uint8)
    found = carry_out("from_pixels", np.full((2, 2), 77, np.float32), {"a": pixels}, rows=2, columns=2, out_row=2,
                      a_row=4, a_column=2)  # fmt: skip
    assert found.tolist() == [[0, 255], [128, 3]]


def test_patches():
    """Two images of 3 x 4 pixels; the last line is in no patch of 2 x 2 with stride 2."""
    images = np.arange(48, dtype=np.float32).reshape(2, 3, 4, 2)
    found = carry_out("patches", np.zeros((2, 1, 2, 8), np.float32), {"a": images}, **SIZES)
    assert found[0].tolist() == [[[0, 1, 2, 3, 8, 9, 10, 11], [4, 5, 6, 7, 12, 13, 14, 15]]]
    np.testing.assert_array_equal(found[1], found[0] + 24)


def test_images_of_patches():
    """With stride 1, a pixel in the middle is in two patches."""
    patches = np.arange(24, dtype=np.float32).reshape(1, 1, 3, 8)
    found = carry_out("patches_gradient", np.full((1, 3, 4, 2), 77, np.float32), {"a": patches},
                      **{**SIZES, "rows": 1, "height": 2, "stride": 1})  # fmt: skip
    top = [[0, 1], [2 + 8, 3 + 9], [10 + 16, 11 + 17], [18, 19]]
    assert found.reshape(-1)[:16].reshape(2, 4, 2).tolist() == [
        top,
        [[4, 5], [6 + 12, 7 + 13], [14 + 20, 15 + 21], [22, 23]],
    ]
    assert (found.reshape(-1)[16:] == 77).all()
