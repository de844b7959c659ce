"""Sums in the order in which numpy adds numbers in a row of memory, so that both have the same bits."""

from __future__ import annotations

from typing import Any

import numpy as np

from marltrain.jit.compiling import compiled

_LEAF, _LEVELS = 128, 64
"""Numbers that numpy adds without halving them; the most times that they are halved."""


@compiled
def sum_in_pairs(terms: Any) -> Any:
    """Return the sum of numbers [n], of their type: more than `_LEAF` are halved, and the sums of both halves added."""
    if len(terms) <= _LEAF:
        return sum_of_leaf(terms, 0, len(terms))
    counts, depths = np.empty(_LEVELS, np.int64), np.empty((2, _LEVELS), np.int64)
    sums = np.empty(_LEVELS, terms.dtype)
    counts[0], depths[0, 0], waiting, start, made = len(terms), 0, 1, 0, 0
    while waiting:  # parts from left to right; `sums` are those of left halves whose right halves are still to come
        waiting -= 1
        count, depth = counts[waiting], depths[0, waiting]
        while count > _LEAF:
            half, depth = count // 2 - count // 2 % 8, depth + 1
            counts[waiting], depths[0, waiting], count, waiting = count - half, depth, half, waiting + 1
        total = sum_of_leaf(terms, start, count)
        start += count
        while made and depths[1, made - 1] == depth:
            made -= 1
            total, depth = sums[made] + total, depth - 1
        sums[made], depths[1, made], made = total, depth, made + 1
    return sums[0]


@compiled
def sum_of_leaf(terms: Any, start: int, count: int) -> Any:
    """Return the sum of some neighboring numbers as numpy adds at most `_LEAF`: in eight sums, then the rest."""
    total, whole = terms.dtype.type(0), start
    if count >= 8:
        whole = start + count - count % 8
        a, b, c, d = terms[start], terms[start + 1], terms[start + 2], terms[start + 3]
        e, f, g, h = terms[start + 4], terms[start + 5], terms[start + 6], terms[start + 7]
        for i in range(start + 8, whole, 8):
            a += terms[i]
            b += terms[i + 1]
            c += terms[i + 2]
            d += terms[i + 3]
            e += terms[i + 4]
            f += terms[i + 5]
            g += terms[i + 6]
            h += terms[i + 7]
        total = ((a + b) + (c + d)) + ((e + f) + (g + h))
    for i in range(whole, start + count):
        total += terms[i]
    return total
