"""JSON values with nan, infinities and tuples: the states of callbacks in checkpoints."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from marltrain.errors import SaveError

_TAGS = ({"float"}, {"mapping"})


def encoded(value: Any, where: str) -> Any:
    """Encode a value as JSON values that `decoded` decodes; raises SaveError for other types.

    nan and infinities, which JSON lacks, are encoded as text.
    """
    if isinstance(value, np.bool_ | np.integer | np.floating):
        value = value.item()
    if isinstance(value, float):
        return value if math.isfinite(value) else {"float": str(value)}
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, list | tuple):
        return [encoded(inner, f"{where}[{i}]") for i, inner in enumerate(value)]
    if not isinstance(value, Mapping):
        raise SaveError(f"{where} is a {type(value).__name__}. Give numbers, text, None, or lists and dicts of these")
    for key in value:
        if not isinstance(key, str):
            raise SaveError(f"{where} has the key {key!r}, and keys must be text")
    entries = {key: encoded(inner, f"{where}[{key!r}]") for key, inner in value.items()}
    return {"mapping": entries} if set(entries) in _TAGS else entries


def decoded(value: Any) -> Any:
    """Decode the JSON values that `encoded` returned."""
    if isinstance(value, list):
        return [decoded(inner) for inner in value]
    if not isinstance(value, dict):
        return value
    if set(value) == {"float"}:
        return float(value["float"])
    inner = value["mapping"] if set(value) == {"mapping"} else value
    return {key: decoded(held) for key, held in inner.items()}
