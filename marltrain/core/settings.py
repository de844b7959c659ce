"""Validation of settings dataclasses, for the library and the command line.

A settings class is a frozen, keyword-only dataclass whose fields are made by `setting`. Types come from the
annotations, bounds and documentation from the metadata of the fields. `check_function` checks functions given as
arguments, `checked_arguments` the arguments of calls.
"""

from __future__ import annotations

import inspect
import math
import types
from collections.abc import Callable, Iterable, Mapping
from dataclasses import MISSING, Field, dataclass, field, fields
from functools import cache, wraps
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

import numpy as np

from marltrain.core.errors import ConfigError, did_you_mean, shown
from marltrain.core.remedies import network_remedy, rollout_remedy

SettingsT = TypeVar("SettingsT")
CallableT = TypeVar("CallableT", bound=Callable[..., Any])
LARGEST = {int: 2**63 - 1, float: 1e30}
"""Default limits of numbers: arrays can hold them, and their squares are finite in float64."""


@dataclass(frozen=True)
class Range:
    """Values of a setting among which a search looks by default, from low to high.

    scale: "linear", "log" (equal ratios are equally likely), or "complement" (the logarithm of 1 - value, for discounts
        near 1).
    """

    low: float
    high: float
    scale: str = "linear"

    def __post_init__(self) -> None:
        """Raise ConfigError for an empty range, or one that its scale does not support."""
        fits = {"linear": True, "log": self.low > 0, "complement": self.high < 1}
        if self.scale not in fits or not fits[self.scale] or not self.low < self.high:
            raise ConfigError(
                f"a Range goes from low to a larger high, above 0 with scale='log' and below 1 with "
                f"scale='complement', got {self}"
            )


def setting(
    default: Any = MISSING,
    *,
    doc: str,
    per_row: bool = False,
    per_learner: bool = False,
    low: float | None = None,
    high: float | None = None,
    above: float | None = None,
    choices: tuple[str, ...] | None = None,
    only: tuple[str, ...] | None = None,
    saved: bool = True,
    search: Range | None = None,
) -> Any:
    """Declare a field: its default, one line of documentation and the allowed values.

    per_row: whether the number may change in training and differ between agents of one learner, as a learning rate.
    per_learner: whether the number may change in training and is the same for all agents of a learner, as a batch size.
    low, high: inclusive bounds.  above: exclusive lower bound.  choices: the allowed strings.
    only: another setting and the values of it with which this setting has an effect; with other values of it, this
        setting must keep its default.
    saved: False for code or data that only learning needs, such as a reward function: a saved agent stores its name.
    search: the values that `tune` searches if the user names none; None: it keeps the default.
    """
    metadata = {"doc": doc, "per_row": per_row, "per_learner": per_learner, "low": low, "high": high, "above": above,
                "choices": choices, "only": only, "saved": saved, "search": search}  # fmt: skip
    return field(default=default, metadata=metadata)


@dataclass(frozen=True)
class Unsaved:
    """Stands for a setting with saved=False in a loaded agent; name: the name of its function or class."""

    name: str


def build(cls: type[SettingsT], values: Mapping[str, Any], where: str, arguments: Iterable[str] = ()) -> SettingsT:
    """Build and validate settings from a mapping; raises ConfigError, naming `where`, the setting and its value.

    arguments: names of the arguments beside the settings, which an unknown name may have been meant for.
    """
    known = [f.name for f in fields(cls)]  # type: ignore[arg-type]
    for name in values:
        if name not in known:
            meant = network_remedy(name, values[name], known) or did_you_mean(name, [*known, *arguments])
            meant += rollout_remedy(name, meant)
            raise ConfigError(f"{where} has no setting {name!r}.{meant} It has: {', '.join(known)}")
    result = cls(**values)
    validate(result, where)
    return result


def validate(settings: Any, where: str) -> None:
    """Check every field of a settings dataclass; raises ConfigError for the first invalid one.

    NumPy numbers are converted to Python numbers.
    """
    for f in fields(settings):
        object.__setattr__(settings, f.name, check(f, getattr(settings, f.name), type(settings), where))
    for f in fields(settings):
        check_has_effect(f, getattr(settings, f.name), settings, where)


def check(f: Field[Any], value: Any, cls: type, where: str) -> Any:
    """Check a value against its field's annotation and bounds; return it, NumPy numbers as Python numbers.

    A float without a fraction (1e6) is accepted for an integer. Raises ConfigError for an invalid value.
    """
    expected, value = hints_of(cls)[f.name], python_number(value)
    if not _fits(value, expected):
        given, value = value, as_integer(value)
        if not _fits(value, expected):
            raise ConfigError(f"{where}: {f.name} must be {_type_text(expected)}, got {shown(given)}")
    choices = f.metadata.get("choices")
    if isinstance(value, str) and choices and value not in choices:
        raise ConfigError(
            f"{where}: {f.name} must be one of {', '.join(choices)}, got {shown(value)}.{did_you_mean(value, choices)}"
        )
    if isinstance(value, int | float) and not isinstance(value, bool):
        _check_bounds(f, value, where)
    return value


def check_has_effect(f: Field[Any], value: Any, settings: Any, where: str) -> None:
    """Raise ConfigError if another of the settings takes all effect from `value`; see `only` of `setting`."""
    if not f.metadata.get("only") or value == f.default:
        return
    other, *needed = f.metadata["only"]
    if (now := getattr(settings, other)) not in needed:
        raise ConfigError(
            f"{where}: {f.name}={shown(value)} has no effect with {other}={now!r}; it needs {other}="
            f"{' or '.join(map(repr, needed))}. Leave {f.name} at {f.default!r}"
        )


def accepts_fractions(cls: type, name: str) -> bool:
    """Return whether a field of a settings class may hold a number with a fraction."""
    return _fits(0.5, hints_of(cls)[name])


def python_number(value: Any) -> Any:
    """Convert a NumPy number or bool to a Python value; return any other value unchanged."""
    return value.item() if isinstance(value, np.integer | np.floating | np.bool_) else value


def as_integer(value: Any) -> Any:
    """Convert a float without a fraction, such as 1e6, to an integer; handle others like `python_number`."""
    value = python_number(value)
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _check_bounds(f: Field[Any], value: float, where: str) -> None:
    low, high, above = (f.metadata.get(side) for side in ("low", "high", "above"))
    largest = LARGEST[int if isinstance(value, int) else float]
    if isinstance(value, float) and math.isnan(value):
        raise ConfigError(f"{where}: {f.name} is not a number (nan)")
    if low is not None and value < low:
        raise ConfigError(f"{where}: {f.name} must be at least {low}, got {shown(value)}")
    if above is not None and value <= above:
        raise ConfigError(f"{where}: {f.name} must be greater than {above}, got {shown(value)}")
    if high is not None and value > high:
        raise ConfigError(f"{where}: {f.name} must be at most {high}, got {shown(value)}")
    if not -largest <= value <= largest:
        raise ConfigError(f"{where}: {f.name} must be between {-largest} and {largest}, got {shown(value)}")


def check_flags(where: str, **flags: Any) -> None:
    """Raise ConfigError unless each is True or False; text such as "False" would count as True in Python."""
    for name, value in flags.items():
        if not isinstance(value, bool | np.bool_):
            raise ConfigError(f"{where}: {name} must be True or False, got {shown(value)}")


def check_function(name: str, function: Any, *arguments: str) -> None:
    """Raise ConfigError unless `function` accepts these positional arguments; without a signature it passes."""
    call = f"{name}({', '.join(arguments)})"
    if not callable(function):
        raise ConfigError(f"{name} must be a function or None, got {shown(function)}; it is called as {call}")
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):  # some builtins have none
        return
    try:
        signature.bind(*arguments)
    except TypeError as error:
        raise ConfigError(f"{name} is called as {call}, but what was given takes {signature}: {error}") from None


def checked_arguments(called: CallableT) -> CallableT:
    """Decorate a function or class so that missing or unknown arguments raise ConfigError with a suggestion.

    called: a function, or a class whose constructor is checked.
    """
    if isinstance(called, type):
        called.__init__ = checked_arguments(called.__init__)  # type: ignore[misc]
        return called
    signature = inspect.signature(called)
    known = [name for name in signature.parameters if name != "self"]
    name = called.__qualname__.removesuffix(".__init__")

    @wraps(called)
    def call(*args: Any, **kwargs: Any) -> Any:
        try:
            signature.bind(*args, **kwargs)
        except TypeError as error:
            unknown = next((given for given in kwargs if given not in known), "")
            raise ConfigError(f"{name}: {error}.{did_you_mean(unknown, known)}") from None
        return called(*args, **kwargs)

    return call  # type: ignore[return-value]


@cache
def hints_of(cls: type) -> dict[str, Any]:
    """Return the types of a class's fields."""
    return get_type_hints(cls)


def _fits(value: Any, expected: Any) -> bool:
    if expected is Any:
        return True
    origin = get_origin(expected)
    if origin in (Union, types.UnionType):
        return any(_fits(value, option) for option in get_args(expected))
    if origin is Literal:
        return isinstance(value, str) and value in get_args(expected)
    if origin is not None:
        return isinstance(value, origin)
    if expected is float:
        return isinstance(value, int | float) and not isinstance(value, bool)
    if expected is int:
        return isinstance(value, int) and not isinstance(value, bool)
    if expected is None:
        return value is None
    return isinstance(value, expected)


def _type_text(expected: Any) -> str:
    if get_origin(expected) in (Union, types.UnionType):
        return " or ".join(_type_text(option) for option in get_args(expected))
    if get_origin(expected) is Literal:
        return " or ".join(map(repr, get_args(expected)))
    return {type(None): "None", int: "an integer", float: "a number", bool: "True or False", str: "a string"}.get(
        expected, getattr(expected, "__name__", str(expected))
    )
