"""`marltrain compare`: compare groups of runs over their seeds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from marltrain.cli.options import Parser, integer, pop_given
from marltrain.cli.output import say
from marltrain.core.errors import ConfigError
from marltrain.storage.files import made_folder


def add_compare_arguments(parser: Parser) -> None:
    """Add the arguments of `marltrain compare`."""
    from marltrain.tools.comparing.runs import METRIC, SCORES
    from marltrain.tools.statistics import RESAMPLES

    parser.add_argument("runs", nargs="*", metavar="RUN", help="folders of runs, grouped by algorithm and settings")
    parser.add_argument("--group", action="append", metavar="NAME=RUN,RUN", help="name a group and its runs instead")
    parser.add_argument("--metric", metavar="COLUMN", help=f"column of the tables of tests (default: {METRIC})")
    parser.add_argument("--score", help=f"test that counts: {', '.join(SCORES)} (default: last)")
    parser.add_argument("--range", action="append", metavar="[ENV=]LOW,HIGH",
                        help="normalize scores: 0 at LOW, 1 at HIGH; needed for several environments")  # fmt: skip
    parser.add_argument("--resamples", type=integer, metavar="INT", help=f"of the bootstrap (default: {RESAMPLES})")
    parser.add_argument("--out", metavar="FILE", help="the report (default: comparison.html)")


def compare(options: dict[str, Any]) -> None:
    """Compare the runs, print the tables and write the report."""
    from marltrain.tools.comparing.compare import compare as compare_runs
    from marltrain.tools.comparing.report import as_text, write_report
    from marltrain.tools.html_page import page_file

    runs, named, out = options.pop("runs", []), options.pop("group", []), options.pop("out", "comparison.html")
    if runs and named:
        raise ConfigError("compare takes runs, or groups of runs with --group, not both")
    ranges = _ranges(options.pop("range", []))
    given = pop_given(options, "metric", "score", "resamples")
    made_folder(page_file(out).parent, "--out")
    compared = compare_runs(_groups(named) if named else runs, ranges=ranges, **given)
    say(f"{as_text(compared)}\n")
    write_report(compared, out)
    say(out)


def _groups(texts: Sequence[str]) -> dict[str, list[str]]:
    groups: dict[str, list[str]] = {}
    for text in texts:
        name, _, runs = text.partition("=")
        if not name or not runs:
            raise ConfigError(f"--group takes NAME=RUN,RUN, got {text!r}")
        groups.setdefault(name, []).extend(filter(None, runs.split(",")))
    return groups


def _ranges(texts: Sequence[str]) -> Any:
    """Return the ranges by environment, or one for all of them; None if there are none."""
    ranges: dict[str, tuple[float, float]] = {}
    for text in texts:
        name, _, limits = text.rpartition("=")
        try:
            low, high = map(float, limits.split(","))
        except ValueError:
            raise ConfigError(f"--range takes LOW,HIGH or ENV=LOW,HIGH, got {text!r}") from None
        if name in ranges or (len(texts) > 1 and not name):
            raise ConfigError(f"--range {text}: several ranges need the names of different environments: ENV=LOW,HIGH")
        ranges[name] = low, high
    return ranges.get("", ranges or None)
