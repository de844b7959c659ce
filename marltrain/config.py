"""Validates any settings dataclass, for the library and the command line; it knows none itself.

A settings class is a frozen, keyword-only dataclass whose fields are made by `setting`. Types are read from the
annotations, bounds and meaning from the field's metadata.
"""

from __future__ import annotations

import math
import types
from collections.abc import Mapping
from dataclasses import MISSING, Field, field, fields
from functools import cache
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

from marltrain.errors import ConfigError, did_you_mean

SettingsT = TypeVar("SettingsT")


def setting(
    default: Any = MISSING,
    *,
    doc: str,
    per_row: bool = False,
    low: float | None = None,
    high: float | None = None,
    above: float | None = None,
    choices: tuple[str, ...] | None = None,
) -> Any:
    """Declare a field: its default, one line of documentation and the values it may take.

    per_row: a number that may differ between the agents of one learner (a learning rate, not a batch size).
    low, high: inclusive bounds.  above: exclusive lower bound.  choices: the allowed strings.
    """
    metadata = {"doc": doc, "per_row": per_row, "low": low, "high": high, "above": above, "choices": choices}
    return field(default=default, metadata=metadata)


def build(cls: type[SettingsT], values: Mapping[str, Any], where: str) -> SettingsT:
    """Make and validate settings from a mapping; raises ConfigError naming `where`, the setting and what came."""
    known = [f.name for f in fields(cls)]  # type: ignore[arg-type]
    for name in values:
        if name not in known:
            raise ConfigError(f"{where} has no setting {name!r}.{did_you_mean(name, known)} It has: {', '.join(known)}")
    made = cls(**values)
    validate(made, where)
    return made


def validate(settings: Any, where: str) -> None:
    """Check every field of a settings dataclass; raises ConfigError at the first that does not fit."""
    for f in fields(settings):
        check(f, getattr(settings, f.name), type(settings), where)


def check(f: Field[Any], value: Any, cls: type, where: str) -> None:
    """Check one value against its field's annotation and bounds; raises ConfigError."""
    expected = _hints(cls)[f.name]
    if not _fits(value, expected):
        raise ConfigError(f"{where}: {f.name} must be {_spoken(expected)}, got {value!r}")
    if value is None or isinstance(value, bool):
        return
    if isinstance(value, str) and f.metadata.get("choices") and value not in f.metadata["choices"]:
        choices = f.metadata["choices"]
        raise ConfigError(
            f"{where}: {f.name} must be one of {', '.join(choices)}, got {value!r}.{did_you_mean(value, choices)}"
        )
    if isinstance(value, int | float):
        _check_bounds(f, float(value), where)


def _check_bounds(f: Field[Any], value: float, where: str) -> None:
    low, high, above = (f.metadata.get(side) for side in ("low", "high", "above"))
    if math.isnan(value):
        raise ConfigError(f"{where}: {f.name} is not a number (nan)")
    if low is not None and value < low:
        raise ConfigError(f"{where}: {f.name} must be at least {low}, got {value:g}")
    if above is not None and value <= above:
        raise ConfigError(f"{where}: {f.name} must be greater than {above}, got {value:g}")
    if high is not None and value > high:
        raise ConfigError(f"{where}: {f.name} must be at most {high}, got {value:g}")


@cache
def _hints(cls: type) -> dict[str, Any]:
    return get_type_hints(cls)


def _fits(value: Any, expected: Any) -> bool:
    if expected is Any:
        return True
    origin = get_origin(expected)
    if origin in (Union, types.UnionType):
        return any(_fits(value, option) for option in get_args(expected))
    if origin is not None:
        return isinstance(value, origin)
    if expected is float:
        return isinstance(value, int | float) and not isinstance(value, bool)
    if expected is int:
        return isinstance(value, int) and not isinstance(value, bool)
    if expected is None:
        return value is None
    return isinstance(value, expected)


def _spoken(expected: Any) -> str:
    if get_origin(expected) in (Union, types.UnionType):
        return " or ".join(_spoken(option) for option in get_args(expected))
    return {type(None): "None", int: "an integer", float: "a number", bool: "True or False", str: "a string"}.get(
        expected, getattr(expected, "__name__", str(expected))
    )
