"""The parser of a command's options, and how the values of options are parsed."""

from __future__ import annotations

import argparse
import os
import re
import sys
from collections.abc import Callable, Collection, Sequence
from dataclasses import fields
from importlib import import_module
from typing import Any, NoReturn

from marltrain.core.errors import ConfigError, nearest_names
from marltrain.core.remedies import network_remedy, rollout_remedy
from marltrain.trainer.text_values import parse_value


class _Formatter(argparse.RawDescriptionHelpFormatter):
    """Leaves more room for the options, so that most of them take one line."""

    def __init__(self, prog: str) -> None:
        """See argparse."""
        super().__init__(prog, max_help_position=28)


class Parser(argparse.ArgumentParser):
    """Parser of one command's arguments; an unknown option raises ConfigError, which suggests the nearest option."""

    def __init__(self, command: str, summary: str) -> None:
        """Create the parser; it rejects abbreviated options, since they may be typing errors."""
        super().__init__(
            prog=f"marltrain {command}",
            description=summary,
            allow_abbrev=False,
            formatter_class=_Formatter,
            argument_default=argparse.SUPPRESS,  # omitted options are not passed on: defaults live elsewhere
        )
        self.command = command
        self.elsewhere: dict[str, str] = {}
        """Names that are not options -> how to write them; for suggestions."""

    def read(self, arguments: Sequence[str]) -> dict[str, Any]:
        """Return the given options by name; raises ConfigError for unknown options and wrong values."""
        known = self._option_string_actions
        for argument in arguments:
            option = argument.partition("=")[0]
            if re.match(r"--?[A-Za-z]", option) and option not in known:
                hint = self._hint(option, known)
                raise ConfigError(f"{self.command} has no option {option!r}.{hint}")
        return vars(self.parse_args(list(arguments)))

    def _hint(self, option: str, known: Collection[str]) -> str:
        """Return the remedy for an unknown option, or an empty string."""
        if remedy := network_remedy(option, None, self.elsewhere):
            return remedy
        near = [self.elsewhere.get(one, one) for one in nearest_names(option, [*known, *self.elsewhere])]
        hint = f" Did you mean {' or '.join(map(repr, near))}?" if near else ""
        return hint + rollout_remedy(option, hint)

    def format_help(self) -> str:
        """Return the help; its first line names the positional arguments only."""
        places = [(str(action.metavar or action.dest), action.nargs) for action in self._get_positional_actions()]
        words = [f"{name}..." if nargs in ("+", "*") else name for name, nargs in places]
        self.usage = " ".join([self.prog, *words, "[options]"])
        return super().format_help()

    def error(self, message: str) -> NoReturn:
        """Raise ConfigError with a message of argparse."""
        raise ConfigError(f"{self.command}: {message}")


def add_fields(group: Any, settings: type, but: Collection[str] = ()) -> None:
    """Add an option for every field of a settings dataclass but some, with its type, documentation and default."""
    kinds: dict[str, type] = {"bool": bool, "int": int, "float": float, "str": str}
    for field in fields(settings):
        if field.name in but:
            continue
        if str(field.type).startswith("tuple"):
            option, text = f"--{field.name}", f"{field.metadata['doc']}; may be repeated"
            group.add_argument(option, action="append", metavar="NAME", help=text)
            continue
        if "Mapping" in str(field.type):
            option = f"--{field.name.replace('_', '-')}"
            group.add_argument(option, action="append", metavar="KEY=VALUE", help=field.metadata["doc"])
            continue
        kind = next(kinds[word] for word in str(field.type).split(" | ") if word in kinds)
        choices = field.metadata["choices"]
        text = field.metadata["doc"] + (f": {' or '.join(choices)}" if choices else "")
        text += "" if field.default is None else f" (default: {field.default})"
        option = "--" + field.name.replace("_", "-")
        if kind is bool:
            group.add_argument(option, action=argparse.BooleanOptionalAction, help=text)
        else:
            parse: Callable[[str], Any] = integer if kind is int else kind
            metavar = kind.__name__.upper()
            if str(field.type).endswith("| None") and field.default is not None:
                parse, metavar = or_none(parse), f"{metavar}|none"
            group.add_argument(option, type=parse, metavar=metavar, help=text)


def pop_given(options: dict[str, Any], *names: str) -> dict[str, Any]:
    """Remove options from `options` and return those that the user gave."""
    return {name: options.pop(name) for name in names if name in options}


def add_working_folder(env: str) -> None:
    """Add the working folder to sys.path if the user names a module, unless Python runs with a safe path."""
    if ":" in env and not sys.flags.safe_path and os.getcwd() not in sys.path:
        sys.path.append(os.getcwd())  # last: a file there must not shadow an installed module


def imported(option: str, text: str) -> Any:
    """Return the attribute that "module:attribute" names; raises ConfigError if it cannot be imported."""
    add_working_folder(text)
    module, _, attribute = text.partition(":")
    try:
        return getattr(import_module(module), attribute)
    except (ImportError, AttributeError, ValueError) as error:
        raise ConfigError(f"{option} {text}: cannot be imported: {error}. Write module:attribute") from error


def integer(text: str) -> int:
    """Parse an integer, such as 1000000, 1_000_000 or 1e6; raises ValueError for other text."""
    try:
        return int(text)
    except ValueError:
        value = float(text)
    if not value.is_integer():
        raise ValueError(f"{text} is no integer")
    return int(value)


def or_none(parse: Callable[[str], Any]) -> Callable[[str], Any]:
    """Return a parser that returns None for "none", and calls `parse` for other text."""

    def optional(text: str) -> Any:
        return None if text.lower() == "none" else parse(text)

    optional.__name__ = parse.__name__  # argparse shows this name in messages
    return optional


def key_values(option: str, texts: Sequence[str]) -> dict[str, Any]:
    """Parse KEY=VALUE texts; raises ConfigError for a text without "=" and for a repeated key."""
    values: dict[str, Any] = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not equals or not key:
            raise ConfigError(f"{option} takes KEY=VALUE, got {text!r}")
        if key in values:
            raise ConfigError(f"{option} names {key!r} twice")
        try:
            values[key] = parse_value(value)
        except ConfigError as error:
            raise ConfigError(f"{option} {key}: {error}") from error
    return values
