"""`marltrain settings`: list the settings of an algorithm."""

from __future__ import annotations

from typing import Any

from marltrain.cli.agents import settings_table
from marltrain.cli.options import Parser
from marltrain.cli.output import say


def add_settings_arguments(parser: Parser) -> None:
    """Add the arguments of `marltrain settings`."""
    parser.add_argument("algo", metavar="ALGO", help="algorithm, or module:Class of your own agent")


def settings(options: dict[str, Any]) -> None:
    """Print the settings of an algorithm, one in each line."""
    say(settings_table(options["algo"]))
