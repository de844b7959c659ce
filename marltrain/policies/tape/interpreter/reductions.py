"""Sums, largest entries and softmax along an axis."""

from __future__ import annotations

from typing import Any

import numpy as np

from marltrain.jit.compiling import inner
from marltrain.jit.views import f32, i64, record_at
from marltrain.policies.tape.instructions import REDUCTION, ROWWISE
from marltrain.policies.tape.interpreter.lanes import LANES, largest_of_vectors, sum_of_vectors
from marltrain.policies.tape.interpreter.memory import at, row_at
from marltrain.policies.tape.interpreter.scalars import exp, log

_ZERO, _INF = np.float32(0.0), np.float32(np.inf)


def scratch_size(rows: int, columns: int) -> int:
    """Return the float32 numbers that `logsumexp` and `log_softmax` need beside their results."""
    return rows * columns + 2 * rows


@inner
def total(x: int, size: int, step: int) -> Any:
    """Return the sum of some numbers at an address, with a stride."""
    vectors = size // LANES if step == 1 else 0
    result = sum_of_vectors(x, vectors) if vectors else _ZERO
    numbers = f32(x, (size - 1) * step + 1)
    for n in range(vectors * LANES, size):
        result += numbers[n * step]
    return result


@inner
def larger(x: Any, y: Any) -> Any:
    """Return the larger of two numbers; NaN if one is."""
    more = x if x > y else y
    return x if x != x else more


@inner
def largest(x: int, size: int, step: int) -> Any:
    """Return the largest of some numbers at an address, with a stride; NaN if one is."""
    vectors = size // LANES if step == 1 else 0
    numbers = f32(x, (size - 1) * step + 1)
    result = largest_of_vectors(x, vectors) if vectors else numbers[0]
    for n in range(vectors * LANES, size):
        result = larger(result, numbers[n * step])
    return result


@inner
def sum_along(i: int, s: int) -> None:
    """Write the sums over the middle axis."""
    p = record_at(i, REDUCTION)
    out, start, inside, step, apart = at(s, p.out), at(s, p.a), p.inner, p.a_inner, p.a_length
    length, a_outer = p.length, p.a_outer
    for o in range(p.outer):
        result, base = f32(out + 4 * o * inside, inside), start + 4 * o * a_outer
        if inside == 1:
            result[0] = total(base, length, apart)
        else:
            result[:] = _ZERO
            for n in range(length):
                row = row_at(base, n, apart, inside, step)
                if step == 1:
                    for j in range(inside):
                        result[j] += row[j]
                else:
                    for j in range(inside):
                        result[j] += row[j * step]


@inner
def max_along(i: int, s: int) -> None:
    """Write the largest entries along the middle axis."""
    p = record_at(i, REDUCTION)
    out, start, inside, step, apart = at(s, p.out), at(s, p.a), p.inner, p.a_inner, p.a_length
    length, a_outer = p.length, p.a_outer
    for o in range(p.outer):
        result, base = f32(out + 4 * o * inside, inside), start + 4 * o * a_outer
        if inside == 1:
            result[0] = largest(base, length, apart)
        else:
            first = row_at(base, 0, apart, inside, step)
            for j in range(inside):
                result[j] = first[j * step]
            for n in range(1, length):
                row = row_at(base, n, apart, inside, step)
                for j in range(inside):
                    result[j] = larger(result[j], row[j * step])


@inner
def argmax(i: int, s: int) -> None:
    """Write the index of each row's largest entry: the first of equal ones, or the first NaN."""
    p = record_at(i, ROWWISE)
    result, start, step, columns, a_row = i64(at(s, p.out), p.rows), at(s, p.a), p.a_column, p.columns, p.a_row
    for r in range(p.rows):
        x = row_at(start, r, a_row, columns, step)
        best, top = 0, x[0]
        for n in range(1, columns):
            number = x[n * step]
            if number > top or (number != number and top == top):
                best, top = n, number
        result[r] = best


@inner
def shifted(start: int, rows: int, columns: int, row_stride: int, step: int, out: int, tops: int, skips: bool) -> None:
    """Write each row minus its largest entry to out, and that to `tops`; skips: 0 in place of an infinite entry."""
    top = f32(tops, rows)
    for r in range(rows):
        x, o = row_at(start, r, row_stride, columns, step), f32(out + 4 * r * columns, columns)
        number = largest(start + 4 * r * row_stride, columns, step)
        number = _ZERO if skips and abs(number) == _INF else number
        top[r] = number
        if step == 1:
            for n in range(columns):
                o[n] = x[n] - number
        else:
            for n in range(columns):
                o[n] = x[n * step] - number


@inner
def log_totals(start: int, rows: int, columns: int, scratch: int, out: int) -> None:
    """Write log(sum(exp(x))) of each row of x [rows, columns].  scratch: [rows * columns], which may be x."""
    x, powers, result = f32(start, rows * columns), f32(scratch, rows * columns), f32(out, rows)
    for n in range(rows * columns):
        powers[n] = exp(x[n])
    for r in range(rows):
        result[r] = total(scratch + 4 * r * columns, columns, 1)
    for r in range(rows):
        result[r] = log(result[r])


@inner
def logsumexp(i: int, s: int) -> None:
    """Write log(sum(exp(a))) of each row."""
    p = record_at(i, ROWWISE)
    scratch, out = at(s, p.scratch), at(s, p.out)
    tops = scratch + 4 * p.rows * p.columns
    shifted(at(s, p.a), p.rows, p.columns, p.a_row, p.a_column, scratch, tops, True)
    log_totals(scratch, p.rows, p.columns, scratch, out)
    result, top = f32(out, p.rows), f32(tops, p.rows)
    for r in range(p.rows):
        result[r] += top[r]


@inner
def log_softmax(i: int, s: int) -> None:
    """Write a - logsumexp(a) of each row."""
    p = record_at(i, ROWWISE)
    columns, scratch, out = p.columns, at(s, p.scratch), at(s, p.out)
    tops = scratch + 4 * p.rows * columns
    logs = tops + 4 * p.rows
    shifted(at(s, p.a), p.rows, columns, p.a_row, p.a_column, out, tops, False)
    log_totals(out, p.rows, columns, scratch, logs)
    of = f32(logs, p.rows)
    for r in range(p.rows):
        o = f32(out + 4 * r * columns, columns)
        for n in range(columns):
            o[n] -= of[r]


INSTRUCTIONS: dict[str, Any] = {
    "argmax": argmax, "log_softmax": log_softmax, "logsumexp": logsumexp, "max": max_along, "sum": sum_along,
}  # fmt: skip
