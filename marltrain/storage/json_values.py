"""JSON values with nan, infinities, tuples and arrays: the states of callbacks in checkpoints."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from marltrain.core.errors import SaveError
from marltrain.core.layout import Array
from marltrain.storage.state import State

_TAGS = ({"float"}, {"mapping"}, {"array"})
KINDS, WIDEST = "biuf", 8
"""Kinds of arrays: truth values, integers and floating-point numbers, and the largest number of bytes of each."""


def encoded(value: Any, where: str, arrays: dict[str, Array]) -> Any:
    """Encode a value as JSON values that `decoded` decodes; raises SaveError for other types.

    nan and infinities, which JSON lacks, are encoded as text.  arrays: gets copies of arrays, by a number.
    """
    if isinstance(value, np.bool_ | np.integer | np.floating):
        value = value.item()
    if isinstance(value, float):
        return value if math.isfinite(value) else {"float": str(value)}
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, list | tuple):
        return [encoded(inner, f"{where}[{i}]", arrays) for i, inner in enumerate(value)]
    if isinstance(value, np.ndarray) and value.dtype.kind in KINDS and value.dtype.itemsize <= WIDEST:
        name = str(len(arrays))
        arrays[name] = value.astype(value.dtype.newbyteorder("="))
        return {"array": name}
    if not isinstance(value, Mapping):
        kind = f"array of {value.dtype}" if isinstance(value, np.ndarray) else type(value).__name__
        raise SaveError(
            f"{where} is a {kind}. Give numbers, text, None, arrays of numbers, or lists and dicts of these"
        )
    for key in value:
        if not isinstance(key, str):
            raise SaveError(f"{where} has the key {key!r}, and keys must be text")
    entries = {key: encoded(inner, f"{where}[{key!r}]", arrays) for key, inner in value.items()}
    return {"mapping": entries} if set(entries) in _TAGS else entries


def decoded(value: Any, held: State) -> Any:
    """Decode the JSON values that `encoded` returned.  held: has the arrays; raises SaveError for a missing one."""
    if isinstance(value, list):
        return [decoded(inner, held) for inner in value]
    if not isinstance(value, dict):
        return value
    if set(value) == {"float"}:
        return float(value["float"])
    if set(value) == {"array"}:
        return held.any_array(str(value["array"]))
    inner = value["mapping"] if set(value) == {"mapping"} else value
    return {key: decoded(entry, held) for key, entry in inner.items()}
