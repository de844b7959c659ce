"""`marltrain watch`: the state of a run of another process."""

from __future__ import annotations

from typing import Any

from marltrain.cli.options import Parser


def add_watch_arguments(parser: Parser) -> None:
    """Add the arguments of `marltrain watch`."""
    parser.add_argument("run", metavar="RUN", help="folder of a run, which may still go on")
    parser.add_argument("--every", type=float, metavar="SECONDS",
                        help="seconds between two looks (default: 2 in a terminal, 30 for lines)")  # fmt: skip
    parser.add_argument("--once", action="store_true", help="show the state now, and end")


def watch(options: dict[str, Any]) -> None:
    """Show the state of a run until it ends."""
    from marltrain.tools.watch import watch as watch_run

    watch_run(options.pop("run"), **options)
