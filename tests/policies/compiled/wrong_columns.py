"""Columns [3, 7, ...] that compiled code must refuse to read."""

from __future__ import annotations

from typing import Any

WRONG_COLUMNS: dict[str, Any] = {
    "float64": lambda column: column.double(),
    "int32": lambda column: column.int(),
    "float16": lambda column: column.half(),
    "strides": lambda column: column.repeat_interleave(2, -1)[..., ::2],
    "nothing": lambda column: None,
    r"\(3, 6": lambda column: column[:, :6].contiguous(),
    r"\(2, 7": lambda column: column[:2],
}
"""Part of the error's message -> function that makes such a column from a right one."""
