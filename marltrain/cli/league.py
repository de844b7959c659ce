"""`marltrain league`: the ratings of a run's learners and of their earlier versions."""

from __future__ import annotations

from typing import Any

from marltrain.cli.agents import add_loading_arguments, loading_arguments
from marltrain.cli.options import Parser, add_working_folder, integer
from marltrain.cli.output import say
from marltrain.storage.files import made_folder


def add_league_arguments(parser: Parser) -> None:
    """Add the arguments of `marltrain league`."""
    parser.add_argument("runs", nargs="+", metavar="RUN", help="folder of a run; those of several meet each other")
    parser.add_argument("--members", type=integer, metavar="INT", help="earlier versions of each run (default: 12)")
    parser.add_argument("--episodes", type=integer, metavar="INT", help="of a pair from each seat (default: 100)")
    parser.add_argument("--greedy", action="store_true", help="agents do not explore (default: as in training)")
    parser.add_argument("--seed", type=integer, metavar="INT", help="of the episodes (default: 0)")
    parser.add_argument("--env", help="namespace/name or module:attribute, for a run of an environment of your own")
    add_loading_arguments(parser)
    parser.add_argument("--out", metavar="FILE", help="the report (default: league.html)")


def league(options: dict[str, Any]) -> None:
    """Play the round robin, print the ratings and write the report."""
    from marltrain.rivals.rate_league import league_report
    from marltrain.tools.html_page import page_file

    if "env" in options:
        add_working_folder(options["env"])
    runs, out = options.pop("runs"), options.pop("out", "league.html")
    made_folder(page_file(out).parent, "--out")
    greedy = options.pop("greedy", False)
    found = league_report(runs, sampled=not greedy, **loading_arguments(options), **options)
    say(f"{found!r}\n")
    found.save(out)
    say(out)
