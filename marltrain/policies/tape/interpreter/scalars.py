"""Functions of one float32 number that vectorize, unless they say otherwise: no branches, no calls.

Each docstring states the largest error: in units in the last place (ulp) of a float32 result, or absolute.
Results for NaN, infinities and numbers below the smallest normal one are those of the frameworks.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from llvmlite import ir  # type: ignore[import-untyped]
from numba import float32, float64, types
from numba.extending import intrinsic

from marltrain.jit.compiling import inner
from marltrain.jit.views import fma

_TYPES: Any = types
_ZERO, _ONE, _HALF, _TWO = map(np.float32, (0.0, 1.0, 0.5, 2.0))
_INF, _NAN = np.float32(np.inf), np.float32(np.nan)
_ROUND = np.float32(12582912.0)
"""Adding and subtracting 1.5 * 2^23 rounds to an integer."""
_LOG2E = np.float32(1.44269504088896341)
_LN2_HIGH, _LN2_LOW = np.float32(0.693359375), np.float32(-2.12194440e-4)
"""The natural logarithm of 2 as a sum; products of the first part with small integers are exact."""
_LOWEST_EXPONENT, _HIGHEST_EXPONENT = np.float32(-104.0), np.float32(89.0)
"""exp is 0 below and infinite above."""
_LOWEST_EXPM1 = np.float32(-18.0)
"""exp(x) - 1 rounds to -1 below."""
_SMALLEST = np.float32(np.finfo(np.float32).tiny)
_SCALE, _SCALE_EXPONENT = np.float32(2.0**23), np.float32(23.0)
_SQRT_HALF = np.float32(math.sqrt(0.5))
_TURN = 1 / (2 * math.pi)
_QUARTER = np.float32(0.25)
_ERF_BOUND, _ERF_END = np.float32(0.9375), np.float32(4.0)


def _power(_: Any, n: Any) -> Any:
    """Return 2^n for an integer n of [-126, 127], given as float32; 32-bit integers, where Numba would use 64 bits."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        whole = ir.IntType(32)
        bits = builder.shl(builder.add(builder.fptosi(arguments[0], whole), whole(127)), whole(23))
        return builder.bitcast(bits, ir.FloatType())

    return _TYPES.float32(types.float32), generate


def _exponent(_: Any, x: Any) -> Any:
    """Return the exponent e of a positive normal number x = m * 2^e with m in [0.5, 1)."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        whole = ir.IntType(32)
        bits = builder.ashr(builder.bitcast(arguments[0], whole), whole(23))
        return builder.sitofp(builder.sub(bits, whole(126)), ir.FloatType())

    return _TYPES.float32(types.float32), generate


def _mantissa(_: Any, x: Any) -> Any:
    """Return the factor m in [0.5, 1) of a positive normal number x = m * 2^e."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        whole = ir.IntType(32)
        bits = builder.and_(builder.bitcast(arguments[0], whole), whole(0x007FFFFF))
        return builder.bitcast(builder.or_(bits, whole(0x3F000000)), ir.FloatType())

    return _TYPES.float32(types.float32), generate


def polynomial(*coefficients: float) -> Any:
    """Return an intrinsic: the polynomial at x by Horner's rule, each step rounded once.

    coefficients: highest power first.
    """

    def evaluate(_: Any, x: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            first, *others = (ir.Constant(ir.FloatType(), float(np.float32(c))) for c in coefficients)
            result = first
            for coefficient in others:
                result = builder.fma(result, arguments[0], coefficient)
            return result

        return _TYPES.float32(types.float32), generate

    return intrinsic(evaluate)


power: Any = intrinsic(_power)
exponent: Any = intrinsic(_exponent)
mantissa: Any = intrinsic(_mantissa)
_exp = polynomial(
    1.9875691500e-4, 1.3981999507e-3, 8.3334519073e-3, 4.1665795894e-2, 1.6666665459e-1, 5.0000001201e-1,
)  # fmt: skip
"""(exp(x) - 1 - x) / x^2 on [-ln(2) / 2, ln(2) / 2]; this and `_log`: Moshier's Cephes library. Highest power first."""
_log = polynomial(
    7.0376836292e-2, -1.1514610310e-1, 1.1676998740e-1, -1.2420140846e-1, 1.4249322787e-1, -1.6668057665e-1,
    2.0000714765e-1, -2.4999993993e-1, 3.3333331174e-1,
)  # fmt: skip
"""(log(1 + x) - x + x^2 / 2) / x^3 on [sqrt(1/2) - 1, sqrt(2) - 1]."""
_sine = polynomial(
    -14.34606679704, 42.00165717143, -76.70378147615, 81.60521291202, -41.34170197547, 6.28318530667,
)  # fmt: skip
"""sin(2 pi t) / t as a polynomial of t^2 for t in [-1/4, 1/4]: weighted least squares."""
_erf = polynomial(
    8.22398725910e-05, -8.10808282873e-04, 5.19799184243e-03, -2.68581858982e-02, 1.12836740716e-01,
    -3.76126323883e-01, 1.28379166506e-01,
)  # fmt: skip
"""erf(x) / x - 1 as a polynomial of x^2 for |x| < 0.9375; this and `_erfc`: weighted least squares."""
_erfc = polynomial(
    2.09094754899e-05, -4.32302128659e-04, 4.16052298308e-03, -2.50914868289e-02, 1.08236604854e-01,
    6.33386658924e-01, 1.29495153317e-01, -1.70550910244e-04,
)  # fmt: skip
"""-log(1 - erf(x)) - x as a polynomial of x for 0.9375 <= x <= 4."""


@inner
def exp_parts(x: Any) -> tuple[Any, Any]:
    """Return n and q with exp(x) = 2^n * (1 + q), for x in [-104, 89]."""
    n = fma(x, _LOG2E, _ROUND) - _ROUND
    r = fma(n, -_LN2_LOW, fma(n, -_LN2_HIGH, x))
    return n, fma(_exp(r), r * r, r)


@inner
def exp(x: Any) -> Any:
    """Return e^x; 1 ulp, 2 where the result is below the smallest normal number."""
    low: Any = _LOWEST_EXPONENT if x < _LOWEST_EXPONENT else x
    n, q = exp_parts(_HIGHEST_EXPONENT if low > _HIGHEST_EXPONENT else low)
    half = fma(n, _HALF, _ROUND) - _ROUND  # in two factors, since 2^n itself may be no normal number
    result = (_ONE + q) * power(half) * power(n - half)
    return x if x != x else result


@inner
def expm1(x: Any) -> Any:
    """Return e^x - 1 for x <= 0; 1.5 ulp."""
    n, q = exp_parts(_LOWEST_EXPM1 if x < _LOWEST_EXPM1 else x)
    scale = power(n)
    result = fma(scale, q, scale - _ONE)
    return x if x != x else result


@inner
def log(x: Any) -> Any:
    """Return the natural logarithm of x; 1 ulp."""
    tiny = x < _SMALLEST
    normal = x * _SCALE if tiny else x
    e, m = exponent(normal), mantissa(normal)
    e = e - _SCALE_EXPONENT if tiny else e
    small = m < _SQRT_HALF
    e = e - _ONE if small else e
    m = m + m - _ONE if small else m - _ONE
    square = m * m
    y = fma(e, _LN2_LOW, _log(m) * m * square)
    result = fma(e, _LN2_HIGH, m + fma(-_HALF, square, y))
    result = x if x == _INF else result
    result = -_INF if x == _ZERO else result
    return result if x >= _ZERO else _NAN


@inner
def log1p(x: Any) -> Any:
    """Return log(1 + x) for x in [0, 1]; 2 ulp. The quotient corrects the rounding of 1 + x (Kahan)."""
    u = _ONE + x
    d = u - _ONE
    corrected = log(u) * (x / d)
    return x if d == _ZERO else corrected


@inner
def softplus(x: Any) -> Any:
    """Return log(1 + e^x); 2.5 ulp."""
    positive: Any = x if x > _ZERO else _ZERO
    return log1p(exp(-abs(x))) + positive


@inner
def sigmoid(x: Any) -> Any:
    """Return 1 / (1 + e^-x); 2.5 ulp."""
    e = exp(-abs(x))
    return (_ONE if x >= _ZERO else e) / (_ONE + e)


@inner
def elu(x: Any) -> Any:
    """Return x where it is positive, e^x - 1 elsewhere; 1.5 ulp."""
    return x if x > _ZERO else expm1(x)


@inner
def sine_of_turns(turns: float) -> Any:
    """Return sin(2 pi turns), turns: float64; absolute error 2e-7."""
    t = float32(turns - np.floor(turns + 0.5))
    end = _HALF if t > _ZERO else -_HALF
    t = end - t if abs(t) > _QUARTER else t
    return _sine(t * t) * t


@inner
def sin(x: Any) -> Any:
    """Return the sine of x; absolute error 2e-7 + 1e-15 |x|."""
    return sine_of_turns(float64(x) * _TURN)


@inner
def cos(x: Any) -> Any:
    """Return the cosine of x; absolute error 2e-7 + 1e-15 |x|."""
    return sine_of_turns(float64(x) * _TURN + 0.25)


@inner
def erf(x: Any) -> Any:
    """Return the error function of x; 1.5 ulp."""
    size = abs(x)
    inside = fma(_erf(size * size), x, x)
    bounded = _ERF_END if size > _ERF_END else size
    outside = _ONE - exp(-(_erfc(bounded) + bounded))
    outside = -outside if x < _ZERO else outside
    result = inside if size < _ERF_BOUND else outside
    return x if x != x else result


@inner
def lgamma(x: Any) -> Any:
    """Return the logarithm of |Gamma(x)|; the C library's, in float64, which does not vectorize."""
    return float32(math.lgamma(float64(x)))


@inner
def digamma(x: Any) -> Any:
    """Return the derivative of `lgamma` at x > 0 in float64: recurrence and an asymptotic series; 1 ulp.

    It does not vectorize. The result for x <= 0 is NaN, except -inf at 0.
    """
    z = float64(x)
    if not z > 0.0:
        return -_INF if z == 0.0 else _NAN
    total = 0.0
    while z < 8.0:
        total -= 1.0 / z
        z += 1.0
    f = 1.0 / (z * z)
    series = f * (1 / 12 - f * (1 / 120 - f * (1 / 252 - f * (1 / 240 - f / 132))))
    return float32(total + math.log(z) - 0.5 / z - series)


@inner
def trigamma(x: Any) -> Any:
    """Return the second derivative of `lgamma` at x > 0, as `digamma`; the result for x <= 0 is NaN, inf at 0."""
    z = float64(x)
    if not z > 0.0:
        return _INF if z == 0.0 else _NAN
    total = 0.0
    while z < 8.0:
        total += 1.0 / (z * z)
        z += 1.0
    f = 1.0 / (z * z)
    return float32(total + 1.0 / z + f / 2 + f / z * (1 / 6 - f * (1 / 30 - f * (1 / 42 - f / 30))))
