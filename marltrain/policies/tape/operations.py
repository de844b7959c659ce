"""The operations of a recorded list: what an executor must compute."""

from __future__ import annotations

from typing import Literal

DType = Literal["float", "integer", "boolean", "bytes", "pixels"]
"""float: float32.  integer: int64.  boolean: float32, 0.0 and 1.0.  bytes: uint8 of a bool column.  pixels: uint8."""

SOURCES = {
    "input": "attrs (name,): a column or a number that is given",
    "weights": "attrs (network,): the weights [K, N] of a network",
    "constant": "attrs (number,): a number, of shape ()",
    "array": "attrs (bytes of float32 in C order,): constant numbers",
}
"""Operations without arguments."""

ELEMENTWISE = {
    "add": "x + y",
    "subtract": "x - y",
    "multiply": "x * y",
    "divide": "x / y",
    "minimum": "the smaller of x and y; NaN if one is",
    "maximum": "the larger of x and y; NaN if one is",
    "where": "y where the boolean x is True, z elsewhere; float or integer",
    "clip": "x limited to [y, z]: minimum(maximum(x, y), z)",
    "negative": "-x",
    "exp": "e to the power of x",
    "log": "the natural logarithm of x",
    "sqrt": "the square root of x",
    "square": "x * x",
    "absolute": "the size of x",
    "tanh": "the hyperbolic tangent of x",
    "sigmoid": "1 / (1 + exp(-x))",
    "relu": "x where x > 0 or NaN, 0 elsewhere",
    "elu": "x where x > 0, exp(x) - 1 elsewhere",
    "softplus": "log(1 + exp(x))",
    "cos": "the cosine of x",
    "sin": "the sine of x",
    "erf": "the error function of x",
    "lgamma": "the logarithm of the gamma function of x > 0",
    "digamma": "the first derivative of lgamma at x > 0",
    "trigamma": "the second derivative of lgamma at x > 0",
    "greater": "boolean: x > y; as all comparisons, of floats or of integers",
    "greater_equal": "boolean: x >= y",
    "equal": "boolean: x == y; also of booleans",
    "not_equal": "boolean: x != y; also of booleans",
    "and": "boolean: x and y",
    "or": "boolean: x or y",
    "not": "boolean: not x",
    "isfinite": "boolean: whether x is neither infinite nor NaN",
    "from_bytes": "boolean: whether the byte x is not 0",
    "from_pixels": "float: the pixel x",
    "copy": "x, of any type",
    "absolute_gradient": "(x, g): g * sign(x), 0 at x = 0",
    "minimum_gradient": "(x, y, g), the gradient of x in minimum(x, y): 0 where x > y, g / 2 where x == y, g elsewhere",
    "tanh_gradient": "(y, g), y = tanh(x): g * (1 - y * y)",
    "sigmoid_gradient": "(y, g), y = sigmoid(x): g * y * (1 - y)",
    "relu_gradient": "(y, g), y = relu(x): g where y > 0, 0 elsewhere",
    "elu_gradient": "(y, g), y = elu(x): g where y > 0, g * (y + 1) elsewhere",
}
"""Operations entry by entry; all arguments have the shape of the result."""

ALONG_AN_AXIS = {
    "sum": "attrs (axis,): the sum over the axis, which the result lacks",
    "max": "attrs (axis,): the largest entry along the axis, which the result lacks",
    "argmax": "attrs (axis,), integer: the index of the largest entry, the first of equal ones",
    "logsumexp": "attrs (axis,): log(sum(exp(x))) over the axis, which the result lacks",
    "log_softmax": "x - logsumexp(x) over the last axis",
    "concat": "attrs (axis,): joins the arguments, of any number and one type, along the axis",
    "take": "(x [..., A], index [...]): the entry of the last axis at the index",
    "put": "(g [...], index [...]), attrs (A,): g at the index, 0 elsewhere, [..., A]",
    "one_hot": "(index [...]), attrs (A,), float: 1.0 at the index, 0.0 elsewhere, [..., A]",
    "scatter": "attrs (cover, views): zeros, to which each argument is added at the places of its view; cover: each "
    "place is in 'one' view, in 'at most one', or in 'several' ones",
    "patches": "(images [K, B, H, W, C]), attrs (h, w, stride): those of a convolution, [K, B, H', W', h * w * C]",
    "patches_gradient": "(g [K, B, H', W', h * w * C]), attrs (H, W, C, h, w, stride): the gradient of images, from "
    "that of their patches, [K, B, H, W, C]",
}
"""Operations whose result has another shape than the arguments, or reads along an axis."""

PRODUCTS = {
    "linear": "(x [K, B, N], weight [K, N, M], bias [K, M]): x @ weight + bias, [K, B, M]",
    "linear_inputs": "(g [K, B, M], weight [K, N, M]): g @ weight^T, [K, B, N]",
    "linear_weight": "(x [K, B, N], g [K, B, M]): x^T @ g, [K, N, M]",
}
"""Products of matrices."""

OPERATIONS = SOURCES | ELEMENTWISE | ALONG_AN_AXIS | PRODUCTS
"""All operations: name -> what the result is, for arguments x, y, z."""
