"""Instructions of images: pixels, and the patches of convolutions."""

from __future__ import annotations

from typing import Any

import numpy as np

from marltrain.jit.compiling import inner
from marltrain.jit.views import f32, record_at, u8
from marltrain.policies.tape.instructions import COPY, PATCHES
from marltrain.policies.tape.interpreter.memory import at

_ZERO = np.float32(0.0)


@inner
def from_pixels(i: int, s: int) -> None:
    """Write uint8 numbers as float32; the rows of the result have no gaps."""
    p = record_at(i, COPY)
    columns, v, out, a = p.columns, p.a_column, at(s, p.out), at(s, p.a)
    for r in range(p.rows):
        o, x = f32(out + 4 * r * p.out_row, columns), u8(a + r * p.a_row, (columns - 1) * v + 1)
        if v == 1:
            for j in range(columns):
                o[j] = np.float32(x[j])
        else:
            for j in range(columns):
                o[j] = np.float32(x[j * v])


@inner
def patches(i: int, s: int) -> None:
    """Write the patches of images; see `PATCHES`. A row of a patch is in one piece in the image."""
    p = record_at(i, PATCHES)
    out, image, line = at(s, p.out), at(s, p.a), 4 * p.width * p.channels
    piece, step, down = p.along * p.channels, 4 * p.stride * p.channels, p.down
    for _ in range(p.rows):
        for top in range(0, p.height - down + 1, p.stride):
            start = image + top * line
            for _ in range((p.width - p.along) // p.stride + 1):
                for y in range(down):
                    o, x = f32(out, piece), f32(start + y * line, piece)
                    for j in range(piece):
                        o[j] = x[j]
                    out += 4 * piece
                start += step
        image += p.height * line


@inner
def patches_gradient(i: int, s: int) -> None:
    """Write images: each pixel is the sum of its entries in patches; see `PATCHES`."""
    p = record_at(i, PATCHES)
    given, image, line = at(s, p.a), at(s, p.out), 4 * p.width * p.channels
    piece, step, down = p.along * p.channels, 4 * p.stride * p.channels, p.down
    f32(image, p.rows * p.height * p.width * p.channels)[:] = _ZERO
    for _ in range(p.rows):
        for top in range(0, p.height - down + 1, p.stride):
            start = image + top * line
            for _ in range((p.width - p.along) // p.stride + 1):
                for y in range(down):
                    o, x = f32(start + y * line, piece), f32(given, piece)
                    for j in range(piece):
                        o[j] += x[j]
                    given += 4 * piece
                start += step
        image += p.height * line


INSTRUCTIONS: dict[str, Any] = {"from_pixels": from_pixels, "patches": patches, "patches_gradient": patches_gradient}
