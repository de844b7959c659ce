"""Values as text, for options, files of runs and tuned settings: literals, schedules, networks and replay memories."""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from typing import Any

from marltrain.core.errors import ConfigError, did_you_mean, shown

NONE = "none"
"""Text for None, which TOML lacks."""


def parse_value(text: str) -> Any:
    """Parse a value: a Python literal, a schedule, a network such as MLP((128, 128)) or a memory; else return the text.

    Raises ConfigError for a call of anything else, and for a text that is nested too deeply.
    """
    try:
        return _parsed(text)
    except (MemoryError, RecursionError) as error:
        raise ConfigError(f"{shown(text)} is nested too deeply") from error


def _parsed(text: str) -> Any:
    if text.lower() in ("true", "false", NONE):
        return {"true": True, "false": False, NONE: None}[text.lower()]
    try:
        node = ast.parse(text, mode="eval").body
        if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Name)):
            return ast.literal_eval(node)
    except (ValueError, SyntaxError, TypeError):  # TypeError: a list as a key
        return text
    return _made(node, text)


def _made(node: ast.expr, text: str) -> Any:
    """Return the object of a call expression, whose arguments are literals or such calls."""
    if not isinstance(node, ast.Call):
        return ast.literal_eval(node)
    makers, name = _makers(), node.func.id if isinstance(node.func, ast.Name) else ""
    if name not in makers:
        raise ConfigError(f"{shown(text)}: there is no {shown(name)}.{did_you_mean(name, makers)}")
    try:
        arguments = [_made(argument, text) for argument in node.args]
        named = {str(keyword.arg): _made(keyword.value, text) for keyword in node.keywords}
        return makers[name](*arguments, **named)
    except (TypeError, ValueError) as error:
        raise ConfigError(f"{shown(text)} cannot be made: {error}") from error


def _makers() -> dict[str, Callable[..., Any]]:
    """Return the functions and classes that a value may call, by name."""
    from marltrain.policies.hyperparameters.schedules import Schedule, cosine, decay, exponential, linear, switch
    from marltrain.policies.memory.config import Hindsight, Prioritized, Replay, Rollouts, Triplets
    from marltrain.policies.networks.specs import CNN, GRU, LSTM, MLP

    every = (CNN, GRU, LSTM, MLP, Schedule, Hindsight, Prioritized, Replay, Rollouts, Triplets,
             cosine, decay, exponential, linear, switch)  # fmt: skip
    return {result.__name__: result for result in every}


def value_of(value: Any) -> Any:
    """Return a value of TOML as an argument: texts parsed, lists as tuples."""
    if isinstance(value, str):
        return parse_value(value)
    if isinstance(value, list):
        return tuple(map(value_of, value))
    if isinstance(value, dict):
        return {key: value_of(inner) for key, inner in value.items()}
    return value


def as_text(value: Any, where: str) -> Any:
    """Return a value as TOML holds it: schedules, networks and memories as the text that `parse_value` reads.

    Raises ConfigError, naming `where`, for objects that no text stands for, such as functions and models.
    """
    if value is None:
        return NONE
    if isinstance(value, bool | int | float):
        return value
    if isinstance(value, str):
        if parse_value(value) != value:
            raise ConfigError(f"{where}: the text {value!r} would be read as another value")
        return value
    if isinstance(value, Mapping):
        return {str(key): as_text(inner, where) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [as_text(inner, where) for inner in value]
    return _call_of(value, where)


def _call_of(value: Any, where: str) -> str:
    """Return the call that makes an object of `_makers`, as text."""
    name = type(value).__name__
    if not is_dataclass(value) or type(value) is not _makers().get(name):
        raise ConfigError(f"{where} is {shown(value)}, which no file can hold: give it in Python, to make_agents")
    arguments = {f.name: getattr(value, f.name) for f in fields(value)}
    return f"{name}({', '.join(f'{key}={_literal(inner, where)}' for key, inner in arguments.items())})"


def _literal(value: Any, where: str) -> str:
    plain = value is None or isinstance(value, bool | int | float | str)
    if isinstance(value, tuple | list):
        return f"({''.join(f'{_literal(inner, where)}, ' for inner in value)})"
    return repr(value) if plain else _call_of(value, where)
