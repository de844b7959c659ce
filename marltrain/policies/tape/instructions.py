"""Instructions of the interpreter: 16 int64 each, whose fields depend on the operation.

A place in memory is `segment << SHIFT | offset in bytes`, so that a table of instructions holds no address.
Strides are in elements.
"""

from __future__ import annotations

from typing import Any

import numpy as np

WIDTH = 16
"""Numbers of an instruction."""
BYTES = 8 * WIDTH
SHIFT = 40
"""Bits of the offset in a place."""
OFFSET = (1 << SHIFT) - 1
SEGMENTS = 256
"""Largest number of segments of a table."""
FIXED = ("layer", "constants", "zeros", "arena", "kept")
LAYER, CONSTANTS, ZEROS, ARENA, KEPT = range(5)
"""Segments that every table has, the first ones: the address of `compiled.layers.layer`; constants; zeros; buffers
that are used again and again; buffers that last from the first section to the last.
"""


def _form(names: str) -> np.dtype[Any]:
    """Return the layout of an instruction: a record of WIDTH int64, which begins with the number of the operation."""
    fields = ["operation", *names.split()]
    return np.dtype([(name, np.int64) for name in (*fields, *(f"unused{i}" for i in range(WIDTH - len(fields))))])


ELEMENTWISE = _form("out a b c rows columns out_row a_row a_column b_row b_column c_row c_column")
"""Of matrices [rows, columns]; the rows of the result have no gaps."""
COPY = _form("out a rows columns out_row out_column a_row a_column")
"""Of a matrix with any strides; the rows of the result of `from_bytes` and `from_pixels` have no gaps."""
REDUCTION = _form("out a outer length inner a_outer a_length a_inner")
"""Of an array [outer, length, inner] along its middle axis; out: [outer, inner]."""
ROWWISE = _form("out a scratch rows columns a_row a_column")
"""Of the rows of a matrix. scratch: float32, as many as `scratch_size`."""
INDEXED = _form("out a index rows columns a_row a_column index_row")
"""An entry of each row, at an int64 index; a: [rows, columns], or [rows] with the stride a_row."""
PATCHES = _form("out a rows height width channels down along stride")
"""Patches [rows, H', W', down * along * channels] of images [rows, height, width, channels], or images of patches."""
GATHER = _form("out a index rows size")
"""Rows of `size` bytes at int64 indices."""
FLAT = _form("out a scratch size")
"""Of vectors. scratch, for a norm: float32 [`compiled.optimizers.LANES`]."""
TRANSPOSE = _form("out a rows columns")
"""Of a matrix [rows, columns] without gaps."""
LINEAR = _form("out a weight bias rows inputs outputs a_row a_column activation")
"""activation(a [rows, inputs] @ weight [inputs, outputs] + bias [outputs]); see `compiled.layers.layer`."""
LAYER_GRADIENT = _form("weight bias a gradient scratch rows inputs outputs a_row a_column")
"""Adds a^T @ gradient [inputs, outputs] to `weight` and the column sums of gradient [rows, outputs] to `bias`."""
FOLLOW = _form("out a share size")
"""Moves weights towards others by a share; see `compiled.optimizers.update_target`."""
OPTIMIZER = _form("weights gradient first second count rate factor decay momentum epsilon fine going size rule")
"""A step of an optimizer for the weights [size] of an agent.

first, second: its moments, as far as the rule has them; Adamax's `largest` is the second.
count, rate, factor (of the gradient), decay, momentum: float32.  epsilon: float64.
fine: float32; where it is 0, the gradient and the rate count as 0.  going: where it is 0, nothing changes.
rule: a number of `compiled.optimizers`.
"""

UNARY = (
    "absolute", "cos", "digamma", "elu", "erf", "exp", "isfinite", "lgamma", "log", "sigmoid", "sin", "softplus",
    "sqrt", "tanh", "trigamma",
)  # fmt: skip
BINARY = (
    "absolute_gradient", "add", "divide", "elu_gradient", "equal", "less", "less_equal", "maximum", "minimum",
    "multiply", "not_equal", "relu_gradient", "sigmoid_gradient", "subtract", "tanh_gradient",
)  # fmt: skip
TERNARY = ("clip", "minimum_gradient", "where")
INTEGER = ("integer_equal", "integer_less", "integer_less_equal", "integer_not_equal", "integer_where")
"""Those of int64; comparisons give float32 0.0 and 1.0."""
FORMS: dict[str, np.dtype[Any]] = {
    **dict.fromkeys((*UNARY, *BINARY, *TERNARY, *INTEGER), ELEMENTWISE),
    **dict.fromkeys(("copy", "copy_integers", "add_to", "from_bytes", "from_pixels"), COPY),
    **dict.fromkeys(("sum", "max"), REDUCTION),
    **dict.fromkeys(("argmax", "logsumexp", "log_softmax"), ROWWISE),
    **dict.fromkeys(("take", "put", "one_hot"), INDEXED),
    **dict.fromkeys(("patches", "patches_gradient"), PATCHES),
    "gather": GATHER,
    "transpose": TRANSPOSE,
    **dict.fromkeys(("zero", "norm"), FLAT),
    "linear": LINEAR,
    "layer_gradient": LAYER_GRADIENT,
    "follow": FOLLOW,
    "optimizer": OPTIMIZER,
    "nothing": _form(""),
}
"""The layout of each operation's instructions; the place in this order is the number of the operation."""
NUMBERS = {name: number for number, name in enumerate(FORMS)}
_PLACES = {name: {field: i for i, field in enumerate(form.names or ())} for name, form in FORMS.items()}


def place(segment: int, offset: int = 0) -> int:
    """Return a place in memory: an offset in bytes within a segment."""
    return segment << SHIFT | offset


def instruction(operation: str, **fields: int) -> list[int]:
    """Return an instruction [WIDTH]; fields that are not given are 0. Raises KeyError for an unknown field."""
    row, places = [0] * WIDTH, _PLACES[operation]
    row[0] = NUMBERS[operation]
    for name, value in fields.items():
        row[places[name]] = value
    return row


def multiply_adds(instructions: Any) -> int:
    """Return the multiplications of the products among instructions [N, WIDTH]."""
    total = 0
    for operation in ("linear", "layer_gradient"):
        rows = instructions[instructions[:, 0] == NUMBERS[operation]]
        total += int(rows[:, [_PLACES[operation][field] for field in ("rows", "inputs", "outputs")]].prod(1).sum())
    return total
