"""Operations entry by entry over matrices; loops over rows without gaps, and over repeated numbers, vectorize."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from marltrain.jit.compiling import inner
from marltrain.jit.views import f32, i64, record_at
from marltrain.policies.compiled.layers import tanh
from marltrain.policies.tape.instructions import ELEMENTWISE
from marltrain.policies.tape.interpreter import scalars
from marltrain.policies.tape.interpreter.memory import at, row_at

Scalar = Callable[..., Any]
_ZERO, _HALF, _ONE, _INF = map(np.float32, (0.0, 0.5, 1.0, np.inf))


def unary(f: Scalar) -> Any:
    """Return an instruction for f(a)."""

    @inner
    def loop(i: int, s: int) -> None:
        p = record_at(i, ELEMENTWISE)
        columns, step, start, out, out_row, a_row = p.columns, p.a_column, at(s, p.a), at(s, p.out), p.out_row, p.a_row
        for r in range(p.rows):
            o, x = f32(out + 4 * r * out_row, columns), row_at(start, r, a_row, columns, step)
            if step == 1:
                for j in range(columns):
                    o[j] = f(x[j])
            else:
                for j in range(columns):
                    o[j] = f(x[j * step])

    return loop


def binary(f: Scalar) -> Any:
    """Return an instruction for f(a, b)."""

    @inner
    def loop(i: int, s: int) -> None:
        p = record_at(i, ELEMENTWISE)
        columns, u, v = p.columns, p.a_column, p.b_column
        out, a, b = at(s, p.out), at(s, p.a), at(s, p.b)
        out_row, a_row, b_row = p.out_row, p.a_row, p.b_row
        for r in range(p.rows):
            o = f32(out + 4 * r * out_row, columns)
            x, y = row_at(a, r, a_row, columns, u), row_at(b, r, b_row, columns, v)
            if u == 1 and v == 1:
                for j in range(columns):
                    o[j] = f(x[j], y[j])
            elif u == 1 and v == 0:
                number = y[0]
                for j in range(columns):
                    o[j] = f(x[j], number)
            elif u == 0 and v == 1:
                number = x[0]
                for j in range(columns):
                    o[j] = f(number, y[j])
            else:
                for j in range(columns):
                    o[j] = f(x[j * u], y[j * v])

    return loop


def ternary(f: Scalar) -> Any:
    """Return an instruction for f(a, b, c)."""
    of_row = ternary_row(f)

    @inner
    def loop(i: int, s: int) -> None:
        p = record_at(i, ELEMENTWISE)
        columns, u, v, w = p.columns, p.a_column, p.b_column, p.c_column
        out, a, b, c = at(s, p.out), at(s, p.a), at(s, p.b), at(s, p.c)
        out_row, a_row, b_row, c_row = p.out_row, p.a_row, p.b_row, p.c_row
        kind = 4 * u + 2 * v + w if max(u, v, w) <= 1 else 0
        for r in range(p.rows):
            o, x = f32(out + 4 * r * out_row, columns), row_at(a, r, a_row, columns, u)
            y, z = row_at(b, r, b_row, columns, v), row_at(c, r, c_row, columns, w)
            of_row(kind, o, x, y, z, u, v, w)

    return loop


def ternary_row(f: Scalar) -> Any:
    """Return a function that writes f(x, y, z) for a row o, with strides u, v, w.

    kind: 4 * u + 2 * v + w for strides of 0 and 1, whose loops vectorize; 0 for all others.
    """

    @inner
    def of_row(kind: int, o: Any, x: Any, y: Any, z: Any, u: int, v: int, w: int) -> None:
        first, middle, last = x[0], y[0], z[0]
        if kind == 7:
            for j in range(len(o)):
                o[j] = f(x[j], y[j], z[j])
        elif kind == 6:
            for j in range(len(o)):
                o[j] = f(x[j], y[j], last)
        elif kind == 5:
            for j in range(len(o)):
                o[j] = f(x[j], middle, z[j])
        elif kind == 4:
            for j in range(len(o)):
                o[j] = f(x[j], middle, last)
        elif kind == 3:
            for j in range(len(o)):
                o[j] = f(first, y[j], z[j])
        elif kind == 2:
            for j in range(len(o)):
                o[j] = f(first, y[j], last)
        elif kind == 1:
            for j in range(len(o)):
                o[j] = f(first, middle, z[j])
        else:
            for j in range(len(o)):
                o[j] = f(x[j * u], y[j * v], z[j * w])

    return of_row


def of_integers(f: Scalar) -> Any:
    """Return an instruction for f(a, b) of int64 numbers, with a float32 result."""

    @inner
    def loop(i: int, s: int) -> None:
        p = record_at(i, ELEMENTWISE)
        columns, out, a, b, u, v = p.columns, at(s, p.out), at(s, p.a), at(s, p.b), p.a_column, p.b_column
        for r in range(p.rows):
            o = f32(out + 4 * r * p.out_row, columns)
            x, y = i64(a + 8 * r * p.a_row, (columns - 1) * u + 1), i64(b + 8 * r * p.b_row, (columns - 1) * v + 1)
            for j in range(columns):
                o[j] = f(x[j * u], y[j * v])

    return loop


@inner
def where_of_integers(i: int, s: int) -> None:
    """Write the int64 number of b where the float32 number of a is not 0, that of c elsewhere."""
    p = record_at(i, ELEMENTWISE)
    columns, out, a, b, c = p.columns, at(s, p.out), at(s, p.a), at(s, p.b), at(s, p.c)
    for r in range(p.rows):
        o, x = i64(out + 8 * r * p.out_row, columns), row_at(a, r, p.a_row, columns, p.a_column)
        y = i64(b + 8 * r * p.b_row, (columns - 1) * p.b_column + 1)
        z = i64(c + 8 * r * p.c_row, (columns - 1) * p.c_column + 1)
        for j in range(columns):
            o[j] = y[j * p.b_column] if x[j * p.a_column] != _ZERO else z[j * p.c_column]


@inner
def maximum(x: Any, y: Any) -> Any:
    """Return the larger of x and y; NaN if one is."""
    larger = x if x > y else y
    return x if x != x else larger


@inner
def minimum(x: Any, y: Any) -> Any:
    """Return the smaller of x and y; NaN if one is."""
    smaller = x if x < y else y
    return x if x != x else smaller


_UNARY: dict[str, Scalar] = {
    "absolute": lambda x: abs(x),
    "isfinite": lambda x: _ONE if abs(x) < _INF else _ZERO,
    "sqrt": lambda x: math.sqrt(x),
}
_BINARY: dict[str, Scalar] = {
    "absolute_gradient": lambda x, g: g if x > _ZERO else (-g if x < _ZERO else g * _ZERO),
    "add": lambda x, y: x + y,
    "divide": lambda x, y: x / y,
    "elu_gradient": lambda y, g: g if y > _ZERO else g * (y + _ONE),
    "equal": lambda x, y: _ONE if x == y else _ZERO,
    "less": lambda x, y: _ONE if x < y else _ZERO,
    "less_equal": lambda x, y: _ONE if x <= y else _ZERO,
    "multiply": lambda x, y: x * y,
    "not_equal": lambda x, y: _ONE if x != y else _ZERO,
    "relu_gradient": lambda y, g: g if y > _ZERO else _ZERO,
    "sigmoid_gradient": lambda y, g: g * (y * (_ONE - y)),
    "subtract": lambda x, y: x - y,
    "tanh_gradient": lambda y, g: g * (_ONE - y * y),
}


@inner
def clip(x: Any, low: Any, high: Any) -> Any:
    """Return minimum(maximum(x, low), high); NaN if one of them is."""
    return minimum(maximum(x, low), high)


@inner
def minimum_gradient(x: Any, y: Any, g: Any) -> Any:
    """Return the gradient of x in minimum(x, y): 0 where x > y, half where they are equal."""
    part = _HALF * g if x == y else g
    return _ZERO if x > y else part


@inner
def where(condition: Any, x: Any, y: Any) -> Any:
    """Return x where the condition is not 0, y elsewhere."""
    return x if condition != _ZERO else y


_OF_INTEGERS: dict[str, Scalar] = {
    "integer_equal": lambda x, y: _ONE if x == y else _ZERO,
    "integer_less": lambda x, y: _ONE if x < y else _ZERO,
    "integer_less_equal": lambda x, y: _ONE if x <= y else _ZERO,
    "integer_not_equal": lambda x, y: _ONE if x != y else _ZERO,
}
_NAMED = ("cos", "digamma", "elu", "erf", "exp", "lgamma", "log", "sigmoid", "sin", "softplus", "trigamma")
INSTRUCTIONS: dict[str, Any] = {
    **{name: unary(inner(f)) for name, f in _UNARY.items()},
    **{name: unary(getattr(scalars, name)) for name in _NAMED},
    "tanh": unary(tanh),
    **{name: binary(inner(f)) for name, f in _BINARY.items()},
    "maximum": binary(maximum),
    "minimum": binary(minimum),
    "clip": ternary(clip),
    "minimum_gradient": ternary(minimum_gradient),
    "where": ternary(where),
    **{name: of_integers(inner(f)) for name, f in _OF_INTEGERS.items()},
    "integer_where": where_of_integers,
}
