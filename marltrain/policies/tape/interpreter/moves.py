"""Instructions that move numbers: copies, entries at an index, gathered rows."""

from __future__ import annotations

from typing import Any

import numpy as np

from marltrain.jit.compiling import inner
from marltrain.jit.views import bools, copy, f32, i64, record_at
from marltrain.policies.tape.instructions import COPY, FLAT, GATHER, INDEXED, TRANSPOSE
from marltrain.policies.tape.interpreter.memory import at, row_at
from marltrain.policies.tape.interpreter.transposition import transpose as transpose_matrix

_ZERO, _ONE, _NAN = map(np.float32, (0.0, 1.0, np.nan))


@inner
def copy_strided(i: int, s: int) -> None:
    """Copy a matrix between any strides."""
    p = record_at(i, COPY)
    columns, u, v, out, a = p.columns, p.out_column, p.a_column, at(s, p.out), at(s, p.a)
    out_row, a_row = p.out_row, p.a_row
    for r in range(p.rows):
        o, x = row_at(out, r, out_row, columns, u), row_at(a, r, a_row, columns, v)
        if u == 1 and v == 1:
            for j in range(columns):
                o[j] = x[j]
        elif u == 1 and v == 0:
            number = x[0]
            for j in range(columns):
                o[j] = number
        else:
            for j in range(columns):
                o[j * u] = x[j * v]


@inner
def add_to(i: int, s: int) -> None:
    """Add a matrix to another."""
    p = record_at(i, COPY)
    columns, u, v, out, a = p.columns, p.out_column, p.a_column, at(s, p.out), at(s, p.a)
    out_row, a_row = p.out_row, p.a_row
    for r in range(p.rows):
        o, x = row_at(out, r, out_row, columns, u), row_at(a, r, a_row, columns, v)
        if u == 1 and v == 1:
            for j in range(columns):
                o[j] += x[j]
        else:
            for j in range(columns):
                o[j * u] += x[j * v]


@inner
def copy_integers(i: int, s: int) -> None:
    """Copy a matrix of int64 between any strides."""
    p = record_at(i, COPY)
    columns, u, v, out, a = p.columns, p.out_column, p.a_column, at(s, p.out), at(s, p.a)
    for r in range(p.rows):
        o = i64(out + 8 * r * p.out_row, (columns - 1) * u + 1)
        x = i64(a + 8 * r * p.a_row, (columns - 1) * v + 1)
        for j in range(columns):
            o[j * u] = x[j * v]


@inner
def from_bytes(i: int, s: int) -> None:
    """Write 1.0 where a byte is not 0, and 0.0 elsewhere; the rows of the result have no gaps."""
    p = record_at(i, COPY)
    columns, v, out, a = p.columns, p.a_column, at(s, p.out), at(s, p.a)
    for r in range(p.rows):
        o, x = f32(out + 4 * r * p.out_row, columns), bools(a + r * p.a_row, (columns - 1) * v + 1)
        if v == 1:
            for j in range(columns):
                o[j] = _ONE if x[j] else _ZERO
        else:
            for j in range(columns):
                o[j] = _ONE if x[j * v] else _ZERO


@inner
def zero(i: int, s: int) -> None:
    """Write zeros."""
    p = record_at(i, FLAT)
    f32(at(s, p.out), p.size)[:] = _ZERO


@inner
def gather(i: int, s: int) -> None:
    """Copy the rows at some indices, one after another."""
    p = record_at(i, GATHER)
    size, out, a, index = p.size, at(s, p.out), at(s, p.a), i64(at(s, p.index), p.rows)
    if size % 4 == 0:
        n = size // 4
        for r in range(p.rows):
            o, x = f32(out + r * size, n), f32(a + index[r] * size, n)
            for j in range(n):
                o[j] = x[j]
    else:
        for r in range(p.rows):
            copy(a + index[r] * size, out + r * size, size)


@inner
def take(i: int, s: int) -> None:
    """Write the entry of each row at its index; NaN for an index out of range."""
    p = record_at(i, INDEXED)
    out, index, a = f32(at(s, p.out), p.rows), i64(at(s, p.index), (p.rows - 1) * p.index_row + 1), at(s, p.a)
    columns, a_row, a_column, step = p.columns, p.a_row, p.a_column, p.index_row
    for r in range(p.rows):
        n = index[r * step]
        within = 0 <= n < columns
        number = f32(a + 4 * (r * a_row + (n if within else 0) * a_column), 1)[0]
        out[r] = number if within else _NAN


@inner
def put(i: int, s: int) -> None:
    """Write rows of zeros, with the numbers of a at their indices; an index out of range is left out."""
    p = record_at(i, INDEXED)
    columns, out, a = p.columns, f32(at(s, p.out), p.rows * p.columns), f32(at(s, p.a), (p.rows - 1) * p.a_row + 1)
    index = i64(at(s, p.index), (p.rows - 1) * p.index_row + 1)
    step, a_row = p.index_row, p.a_row
    out[:] = _ZERO
    for r in range(p.rows):
        n = index[r * step]
        if 0 <= n < columns:
            out[r * columns + n] = a[r * a_row]


@inner
def one_hot(i: int, s: int) -> None:
    """Write rows of zeros with 1.0 at their indices; an index out of range is left out."""
    p = record_at(i, INDEXED)
    columns, out = p.columns, f32(at(s, p.out), p.rows * p.columns)
    index = i64(at(s, p.index), (p.rows - 1) * p.index_row + 1)
    step = p.index_row
    out[:] = _ZERO
    for r in range(p.rows):
        n = index[r * step]
        if 0 <= n < columns:
            out[r * columns + n] = _ONE


@inner
def transpose(i: int, s: int) -> None:
    """Write the transpose of a matrix."""
    p = record_at(i, TRANSPOSE)
    transpose_matrix(at(s, p.a), p.rows, p.columns, at(s, p.out))


INSTRUCTIONS: dict[str, Any] = {
    "add_to": add_to, "copy": copy_strided, "copy_integers": copy_integers, "from_bytes": from_bytes, "gather": gather,
    "one_hot": one_hot, "put": put, "take": take, "transpose": transpose, "zero": zero,
}  # fmt: skip
