"""The report of a league: its tables, as text and as an HTML page with pictures."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from marltrain.core.version import __version__
from marltrain.rivals.round_robin import RoundRobin
from marltrain.tools import html_page
from marltrain.tools.evaluating.pictures import draw_cells
from marltrain.tools.text_table import number, text_table
from marltrain.trainer.reporting.curves import Curve
from marltrain.trainer.reporting.figures import COLORS, INK, LINES, draw_curve, name_axes, new_figure, png_of, style
from marltrain.trainer.reporting.labels import labels
from marltrain.trainer.reporting.legends import add_legend, legend_room

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

MOST_CYCLES = 20
"""Largest number of cycles that a page names."""
Table = tuple[tuple[str, ...], Sequence[tuple[str, ...]], int]
"""Header, rows, and number of first columns that are no numbers."""


@dataclass(frozen=True)
class LeagueReport:
    """Results of a round robin of a run's learners, their earlier versions and others; see `league_report`.

    results: the games of all pairs.
    ratings: the players, the best first: the columns of `RoundRobin.ratings`, before them "run", "learner" (the
        learner that it is a version of), "env_steps", and behind them "elo": the points in training, shifted so that
        their mean is that of the ratings of the same players.
    payoffs: share of the points of rows against columns.
    history: rating over training: "run", "learner", "env_steps", "player", "rating", "low", "high" and "elo".
    regressions: for each learner at the end ("final"), except exploiters, and each earlier version of its run, the
        columns of `RoundRobin.regressions`.
    cycles: triples in which each wins against the next, every result with a confidence of 95 %.
    subject: environment, runs and games, as text.
    """

    results: RoundRobin
    ratings: pd.DataFrame
    payoffs: pd.DataFrame
    history: pd.DataFrame
    regressions: pd.DataFrame
    cycles: list[tuple[str, str, str]]
    subject: str

    def save(self, path: str | Path) -> Path:
        """Write the report as one HTML file with its pictures, and return its path; the name ends in .html."""
        return write_page(self, path)

    def __repr__(self) -> str:
        """Return the ratings and whether learners regress, as text."""
        return as_text(self)


def write_page(report: LeagueReport, path: str | Path) -> Path:
    """Write the report into an HTML file; return its path."""
    runs = [str(run) for run in report.ratings["run"].unique() if run]
    parts = [
        html_page.paragraph(report.subject),
        html_page.heading("Ratings"),
        html_page.paragraph(
            "Ratings are in Elo points, and their mean is 0: 400 points are odds of 10 to 1. They are fitted to the "
            "games of all pairs at once (Bradley and Terry 1952), with bootstrap intervals of 95 %. Elo: the points at "
            "the end of training, from the games of training, shifted to the same mean. Score: share of the points, a "
            "draw counts one half."
        ),
        html_page.table(*ratings_table(report)),
        html_page.paragraph(elo_sentence(report)),
        html_page.heading("Rating over training"),
        html_page.picture(png_of(draw_history(report)), "Ratings over env steps with intervals"),
        html_page.heading("Regressions"),
        html_page.paragraph(
            "Whether an agent at the end of training has become worse than an earlier version. High: upper bound of "
            "its score against this version; all bounds of an agent together hold with a probability of 95 % "
            "(Bonferroni's correction). Below 0.5: the earlier version beats it."
        ),
        html_page.listing(regression_sentences(report)),
        *([html_page.table(*regressions_table(report))] if len(report.regressions) else []),
        html_page.heading("Payoffs"),
        html_page.paragraph(
            "Share of the points of each player (rows) against each other (columns). In brackets: the player's share "
            "in the Nash equilibrium, see below."
        ),
        html_page.picture(png_of(draw_payoffs(report)), "Table of the shares of points of all pairs"),
        html_page.heading("Cycles"),
        *cycles_parts(report),
        html_page.heading("Nash averaging"),
        html_page.paragraph(nash_sentence(report.ratings)),
        html_page.heading("All pairs"),
        html_page.table(*pairs_table(report.results.pairs())),
        f"<footer>marltrain {__version__}</footer>",
    ]
    return html_page.write_page(path, f"League of {', '.join(runs)}", parts)


def as_text(report: LeagueReport) -> str:
    """Return the ratings, the regressions and the cycles as plain text."""
    cycles = [f"cycle: {' > '.join(cycle)} > {cycle[0]}" for cycle in report.cycles[:MOST_CYCLES]]
    said = "\n".join([*regression_sentences(report), *cycles])
    return "\n\n".join([report.subject, text_table(*ratings_table(report)), said])


def ratings_table(report: LeagueReport) -> Table:
    """Return the table of ratings."""
    header = ("player", "env steps", "rating", "95 % interval", "Elo", "score", "Nash share", "Nash rating")
    rows = [
        (str(row["player"]), _whole(row["env_steps"]), _whole(row["rating"]),
         f"{_whole(row['low'])} to {_whole(row['high'])}", _whole(row["elo"]), f"{row['score']:.2f}",
         f"{row['nash']:.2f}", _whole(row["nash_rating"]))
        for row in report.ratings.reset_index().to_dict("records")
    ]  # fmt: skip
    return header, rows, 1


def _whole(value: float) -> str:
    """Return a number as text without decimals; nan: no text."""
    return "" if np.isnan(value) else f"{round(value):,}"


def regressions_table(report: LeagueReport) -> Table:
    """Return the table of regressions."""
    header = ("agent", "against", "games", "wins", "draws", "losses", "score", "high", "")
    rows = [
        (str(row["final"]), str(row["player"]), *(f"{row[name]:,}" for name in ("games", "wins", "draws", "losses")),
         f"{row['score']:.3f}", f"{row['high']:.3f}", "is beaten" if row["regresses"] else "")
        for row in report.regressions.to_dict("records")
    ]  # fmt: skip
    return header, rows, 2


def pairs_table(pairs: pd.DataFrame) -> Table:
    """Return the table of all pairs."""
    header = ("first", "second", "games", "wins", "draws", "losses", "score", "return", "return of the second")
    rows = [
        (row["first"], row["second"], *(f"{row[name]:,}" for name in ("games", "wins", "draws", "losses")),
         f"{row['score']:.3f}", number(row["return"]), number(row["return_second"]))
        for row in pairs.to_dict("records")
    ]  # fmt: skip
    return header, rows, 2


def regression_sentences(report: LeagueReport) -> list[str]:
    """Return a sentence for each agent at the end: which earlier versions beat it."""
    finals = report.ratings[(report.ratings["learner"] != "")]
    found = []
    for name, rows in report.regressions.groupby("final", sort=False):
        beaten, least = rows[rows["regresses"]], rows.loc[rows["high"].idxmin()]
        if len(beaten):
            by = ", ".join(
                f'"{row["player"]}" (score {row["score"]:.1%}, at most {row["high"]:.1%})'
                for row in beaten.to_dict("records")
            )
            found.append(f'"{name}" regresses: {len(beaten)} of {len(rows)} earlier versions beat it: {by}.')
        else:
            found.append(
                f'"{name}" does not regress: none of {len(rows)} earlier versions beats it. The lowest upper bound of '
                f'its score is {least["high"]:.1%}, against "{least["player"]}".'
            )
    if not found:
        found.append(f"No earlier versions of {', '.join(map(str, finals.index))} were kept, so none were met.")
    return found


def elo_sentence(report: LeagueReport) -> str:
    """Return how well the ratings agree with Elo of training."""
    both = report.ratings[["rating", "low", "high", "elo"]].dropna()
    if len(both) < 3:
        return "Fewer than three players have Elo points of training, so the two are not compared."
    ranks = both[["rating", "elo"]].rank().corr().to_numpy()[0, 1]
    inside = ((both["low"] <= both["elo"]) & (both["elo"] <= both["high"])).sum()
    return (
        f"Elo of training and ratings: rank correlation {ranks:.2f} over {len(both)} players; Elo is inside the "
        f"interval of the rating for {inside} of them. Elo follows the games of training, in which players meet "
        "unequally often and the learner changes."
    )


def cycles_parts(report: LeagueReport) -> list[str]:
    """Return the HTML parts about cycles."""
    if not report.cycles:
        return [html_page.paragraph(
            "No three players win against each other in a circle, each result with a confidence of 95 %. A single "
            "number can describe the strength of each."
        )]  # fmt: skip
    shown = [f"{' wins against '.join((*cycle, cycle[0]))}" for cycle in report.cycles[:MOST_CYCLES]]
    more = len(report.cycles) - len(shown)
    return [
        html_page.paragraph(
            "Each of these results has a confidence of 95 %. Ratings cannot tell who wins among such players."
        ),
        html_page.listing([*shown, *([f"and {more} more"] if more else [])]),
    ]


def nash_sentence(ratings: pd.DataFrame) -> str:
    """Return a sentence about the equilibrium in which two sides choose players."""
    held = ratings["nash"][ratings["nash"] >= 0.01].sort_values(ascending=False)
    named = ", ".join(f"{name} ({share:.0%})" for name, share in held.items())
    return (
        f"If two sides choose players, the equilibrium of largest entropy chooses {named}. The Nash rating of the "
        "others is their loss against it in Elo points (Balduzzi et al. 2018). Copies of a player do not change it."
    )


def draw_history(report: LeagueReport) -> Figure:
    """Draw the rating of each learner over env steps, with its interval; others as horizontal lines."""
    figure = new_figure(7.2, 3.9)
    ax = figure.subplots()
    several = report.history["run"].nunique() > 1
    curves = list(report.history.dropna(subset="env_steps").groupby(["run", "learner"], sort=False))
    others = report.ratings[report.ratings["learner"] == ""]
    named = [f"{run}: {learner}" if several else str(learner) for (run, learner), _ in curves]
    names = labels([*named, *map(str, others.index)], inches=legend_room(ax))
    for i, (name, (_, rows)) in enumerate(zip(names, curves, strict=False)):
        curve = Curve(*(rows[column].to_numpy(float) for column in ("env_steps", "rating", "low", "high")))
        draw_curve(ax, curve, name, COLORS[i % len(COLORS)], line=LINES[i // len(COLORS) % len(LINES)])
    for i, (name, rating) in enumerate(zip(names[len(curves) :], others["rating"], strict=True)):
        ax.axhline(float(rating), color=INK, ls=LINES[1 + i % 3], lw=1, label=name)
    style(ax)
    name_axes(ax, "env steps", "rating (Elo points)")
    add_legend(ax)
    return figure


def draw_payoffs(report: LeagueReport) -> Figure:
    """Draw the shares of points of all pairs, the best players first, with their shares in the Nash equilibrium."""
    order, shares = list(report.ratings.index), report.ratings["nash"]
    names = {name: f"{name} ({share:.0%})" for name, share in shares.items()}
    cells = report.payoffs.loc[order, order].rename(index=names, columns=names)
    return draw_cells(cells, (0.0, 1.0), "{:.2f}".format, "share of the points")
