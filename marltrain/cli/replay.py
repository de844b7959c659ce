"""`marltrain replay`: show or film an episode of an evaluation again."""

from __future__ import annotations

from typing import Any

from marltrain.cli.options import Parser, add_working_folder, integer
from marltrain.cli.output import say


def add_replay_arguments(parser: Parser) -> None:
    """Add the arguments of `marltrain replay`."""
    parser.add_argument("folder", metavar="FOLDER", help="what `marltrain eval --out` wrote")
    parser.add_argument("--match", type=integer, metavar="INT", help="as in its tables (default: 0)")
    parser.add_argument("--episode", type=integer, metavar="INT", help="as in its tables (default: 0)")
    parser.add_argument("--out", metavar="FILE", help="film it: a .gif or .mp4 (default: show a window)")
    parser.add_argument("--text", action="store_true", help="show text in the terminal (with --out, as pictures)")
    parser.add_argument("--fps", type=float, metavar="FLOAT", help="pictures a second")
    parser.add_argument("--env", help="namespace/name or module:attribute, for an environment of your own")


def replay(options: dict[str, Any]) -> None:
    """Show the episode and print its returns."""
    from marltrain.tools.evaluating.replays import replay as replay_episode

    if "env" in options:
        add_working_folder(options["env"])
    returns = replay_episode(options.pop("folder"), **options)
    say(f"returns {', '.join(f'{value:.4g}' for value in returns)}")
