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
    parser.add_argument("--smooth", type=integer, metavar="INT", help=f"tests averaged (default: {defaults['smooth']})")
    parser.add_argument("--out", metavar="FILE", help=f"the picture (default: {defaults['out']})")


def plot(options: dict[str, Any]) -> None:
    """Draw the learning curves and print the path of the picture."""
    from marltrain.trainer.reporting.plots import plot_runs

    say(plot_runs(options.pop("runs"), **options))
