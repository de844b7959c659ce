"""`marltrain plot`: draw the learning curves of runs."""

from __future__ import annotations

import inspect
from typing import Any

from marltrain.cli.options import Parser, integer
from marltrain.cli.output import say


def add_plot_arguments(parser: Parser) -> None:
    """Add the arguments of `marltrain plot`."""
    from marltrain.trainer.reporting.plots import plot_runs

    defaults = {name: p.default for name, p in inspect.signature(plot_runs).parameters.items()}
    parser.add_argument("runs", nargs="+", metavar="RUN", help="folders of runs; runs of one kind form a band")
    parser.add_argument("--x", help=f"horizontal axis: steps, episodes or time (default: {defaults['x']})")
    parser.add_argument("--metric", metavar="COLUMN", help="column of the tables of tests, such as return/player_0 "
                        "(default: metric; where it is always 0, the returns of each side)")  # fmt: skip
    parser.add_argument("--label", action="append", metavar="NAME",
                        help="name of a RUN, once for each in their order; runs of equal names form one curve "
                        "(default: the settings that differ)")  # fmt: skip
    parser.add_argument("--title", metavar="TEXT", help="of the picture (default: what the runs have in common)")
    parser.add_argument("--smooth", type=integer, metavar="INT", help=f"tests averaged (default: {defaults['smooth']})")
    parser.add_argument("--out", metavar="FILE", help=f"the picture (default: {defaults['out']})")


def plot(options: dict[str, Any]) -> None:
    """Draw the learning curves and print the path of the picture."""
    from marltrain.trainer.reporting.plots import plot_runs

    labels = options.pop("label", None)
    say(plot_runs(options.pop("runs"), labels=labels, **options))
