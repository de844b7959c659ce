"""Random numbers for acts: uniform numbers row by row, and normal and Gumbel numbers made from them.

Each row uses the same number of uniform numbers. Numbers of a + b rows are therefore those of a rows followed by those
of b rows, as `Algorithm.noise_by_rows` requires.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from marltrain.core.layout import Array
from marltrain.policies.ops import Ops


def uniforms(rngs: Sequence[np.random.Generator], shape: tuple[int, ...]) -> Array:
    """Draw uniform numbers in [0, 1), [K, *shape] float32."""
    drawn = np.empty((len(rngs), *shape), np.float32)
    for own, rng in zip(drawn, rngs, strict=True):
        rng.random(dtype=np.float32, out=own)
    return drawn


def uniform_of(rngs: Sequence[np.random.Generator], rows: int, widths: Mapping[str, int]) -> dict[str, Array]:
    """Draw uniform numbers in [0, 1), float32; return name -> [K, rows, width], in the order of `widths`."""
    drawn = uniforms(rngs, (rows, sum(widths.values())))
    pieces = np.split(drawn, np.cumsum(list(widths.values()))[:-1], -1)
    return dict(zip(widths, pieces, strict=True))


def normals(rngs: Sequence[np.random.Generator], rows: int, width: int) -> Array:
    """Draw standard normal numbers, [K, rows, width] float32."""
    drawn = np.empty((len(rngs), rows, width), np.float32)
    for own, rng in zip(drawn, rngs, strict=True):
        rng.standard_normal(dtype=np.float32, out=own)
    return drawn


def gumbel_of(numbers: Array) -> Array:
    """Convert uniform to Gumbel(0, 1) numbers of the same shape: argmax(logits + noise) is a sample of the softmax.

    The given numbers may be overwritten.
    """
    # 1 - U lies in (0, 1]; the floor keeps log(0) out after rounding to float32
    result: Array = np.clip(numbers, 1e-12, 1.0 - 1e-7, out=numbers if numbers.flags.c_contiguous else None)
    for _ in range(2):
        np.negative(np.log(result, out=result), out=result)
    return result


def normal_of(uniform: Array) -> Array:
    """Convert uniform [..., 2N] to standard normal numbers [..., 2N] (Box and Muller 1958)."""
    radius, angle = np.split(uniform, 2, -1)
    length, turn = np.sqrt(-2.0 * np.log1p(-radius)), np.float32(2 * math.pi) * angle
    return np.concatenate([length * np.cos(turn), length * np.sin(turn)], -1)


@dataclass(frozen=True)
class Sampling:
    """How the noise with which an act samples a policy follows from uniform numbers, for exported policies.

    width: uniform numbers in [0, 1) for each row.  noise: (ops, uniform [K, B, width]) -> the noise [K, B, ...].
    name: name of the noise in `Algorithm.noise`.
    """

    width: int
    noise: Callable[[Any, Any], Any]
    name: str = "sample"


def gumbel_from(ops: Ops, uniform: Any) -> Any:
    """Return `gumbel_of` over `ops`."""
    return -ops.log(-ops.log(ops.clip(uniform, 1e-12, 1.0 - 1e-7)))


def normal_from(ops: Ops, uniform: Any) -> Any:
    """Return `normal_of` over `ops`."""
    half = uniform.shape[-1] // 2
    radius, angle = ops.split(uniform, [half, half])
    length, turn = ops.sqrt(-2.0 * ops.log(1.0 - radius)), 2.0 * math.pi * angle
    return ops.concat([length * ops.cos(turn), length * ops.sin(turn)], -1)
