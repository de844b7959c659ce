"""The report of a comparison: tables as text, pictures, and one HTML file with both."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from marltrain.core.version import __version__
from marltrain.tools import html_page
from marltrain.tools.comparing.result import Comparison
from marltrain.tools.text_table import interval, number, text_table
from marltrain.trainer.reporting.curves import Curve
from marltrain.trainer.reporting.figures import (
    COLORS,
    INK,
    LINES,
    draw_curve,
    name_axes,
    name_rows,
    new_figure,
    png_of,
    style,
)
from marltrain.trainer.reporting.labels import labels
from marltrain.trainer.reporting.legends import add_legend, legend_room

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


OF_SCORE = {"last": "the last test", "best": "the best test", "mean": "the mean of all tests"}


class Table(NamedTuple):
    """A table as texts; texts: number of first columns that are no numbers."""

    header: tuple[str, ...]
    rows: Sequence[tuple[str, ...]]
    texts: int


def write_report(compared: Comparison, path: str | Path) -> Path:
    """Write the report of a comparison into an HTML file; return its path."""
    shown, names = list(compared.groups), ", ".join(compared.groups)
    parts = [
        html_page.paragraph(subject(compared)),
        html_page.paragraph(
            "IQM: interquartile mean, the mean of the middle half of the scores. Intervals are 95 % stratified "
            "bootstrap intervals over runs (Agarwal et al. 2021, arXiv:2108.13264)."
        ),
        html_page.table(*scores_table(compared)),
        html_page.picture(png_of(draw_intervals(compared)), f"Interquartile means of {names} with intervals"),
    ]
    if len(shown) > 1:
        parts += [
            html_page.heading("Pairs"),
            html_page.paragraph(
                "Probability that a run of the first group scores more than a run of the second; difference of their "
                "interquartile means."
            ),
            html_page.table(*pairs_table(compared)),
            html_page.picture(png_of(draw_pairs(compared)), "Probabilities of improvement with intervals"),
        ]
    parts += [
        html_page.heading("Performance profiles"),
        html_page.paragraph("Share of the runs that score more than a threshold: the higher a curve, the better."),
        html_page.picture(png_of(draw_profiles(compared)), f"Performance profiles of {names}"),
        html_page.heading("Sample efficiency"),
        html_page.paragraph("Interquartile mean over the runs in tests during training."),
        html_page.picture(png_of(draw_curves(compared)), f"Curves of {names} over env steps"),
        html_page.heading("Runs"),
        html_page.listing(members(compared)),
        f"<footer>marltrain {__version__}</footer>",
    ]
    return html_page.write_page(path, f"Comparison of {names}", parts)


def subject(compared: Comparison) -> str:
    """Return what is compared, in one line."""
    normalized = ", normalized by the given ranges" if compared.normalized else ""
    tasks = list(next(iter(compared.groups.values())))
    score = f"{compared.metric} in {OF_SCORE[compared.score]}{normalized}"
    return f"Environment{'s' if len(tasks) > 1 else ''}: {', '.join(tasks)}. Score of a run: {score}."


def members(compared: Comparison) -> list[str]:
    """Return the runs of each group, a line for each group and environment."""
    several = len(next(iter(compared.groups.values()))) > 1
    return [
        f"{name}{f' on {task}' if several else ''}: {', '.join(map(_near, folders))}"
        for name, group in compared.groups.items()
        for task, folders in group.items()
    ]


def _near(folder: Path) -> str:
    """Return a folder relative to the working folder if it is inside."""
    return str(folder.relative_to(Path.cwd()) if folder.is_relative_to(Path.cwd()) else folder)


def scores_table(compared: Comparison) -> Table:
    """Return the table of scores."""
    header = ("group", "environment", "runs", "env steps", "IQM", "95 % interval", "median", "mean")
    gap = ("optimality gap",) if compared.normalized else ()
    rows = [
        (row["group"], row["environment"], str(row["runs"]), f"{row['env_steps']:,}", number(row["iqm"]),
         interval(row["low"], row["high"]), number(row["median"]), number(row["mean"]),
         *((number(row["optimality_gap"]),) if gap else ()))
        for row in compared.table.to_dict("records")
    ]  # fmt: skip
    return Table((*header, *gap), rows, 2)


def pairs_table(compared: Comparison) -> Table:
    """Return the table of pairs."""
    header = ("first", "second", "P(first > second)", "95 % interval", "difference", "95 % interval", "first is")
    rows = [
        (row["first"], row["second"], number(row["probability"]),
         interval(row["probability_low"], row["probability_high"]), number(row["difference"]),
         interval(row["difference_low"], row["difference_high"]), row["verdict"])
        for row in compared.pairs.to_dict("records")
    ]  # fmt: skip
    return Table(header, rows, 2)


def as_text(compared: Comparison) -> str:
    """Return groups, table and pairs as plain text."""
    parts = [subject(compared), "\n".join(members(compared)), text_table(*scores_table(compared))]
    if len(compared.pairs):
        parts.append(text_table(*pairs_table(compared)))
    return "\n\n".join(parts)


def draw_intervals(compared: Comparison) -> Figure:
    """Draw the interquartile mean of each group, over all environments, and its interval."""
    whole = compared.table.drop_duplicates("group")
    figure = new_figure(7.2, 1.1 + 0.4 * len(whole))
    ax = figure.subplots()
    values, names = whole[["iqm", "low", "high"]].to_numpy(float), list(whole["group"])
    _rows(ax, names, values, [_look(i)[0] for i in range(len(names))])
    ax.set_xlabel(f"interquartile mean of scores{' (normalized)' if compared.normalized else ''}", color=INK)
    return figure


def draw_pairs(compared: Comparison) -> Figure:
    """Draw the probability of improvement of each pair, and its interval."""
    pairs = compared.pairs
    figure = new_figure(7.2, 1.1 + 0.4 * len(pairs))
    ax = figure.subplots()
    names = [f"{first} > {second}" for first, second in zip(pairs["first"], pairs["second"], strict=True)]
    values = pairs[["probability", "probability_low", "probability_high"]].to_numpy(float)
    _rows(ax, names, values, [INK] * len(names))
    ax.axvline(0.5, color=INK, ls=":", lw=1)
    ax.set_xlim(-0.03, 1.03)
    ax.set_xlabel("probability of improvement", color=INK)
    return figure


def draw_profiles(compared: Comparison) -> Figure:
    """Draw the performance profiles."""
    figure = new_figure(7.2, 3.7)
    ax = figure.subplots()
    names = dict(zip(compared.groups, labels(compared.groups, inches=legend_room(ax)), strict=True))
    for i, (name, rows) in enumerate(compared.profiles.groupby("group", sort=False)):
        curve = Curve(*(rows[column].to_numpy(float) for column in ("threshold", "share", "low", "high")))
        color, line = _look(i)
        draw_curve(ax, curve, names[str(name)], color, line=line)
    style(ax, counts=False)
    ax.set_xlabel(f"score{' (normalized)' if compared.normalized else ''}", color=INK)
    ax.set_ylabel("share of runs that score more", color=INK)
    add_legend(ax)
    return figure


def draw_curves(compared: Comparison) -> Figure:
    """Draw the curves over env steps."""
    figure = new_figure(7.2, 3.7)
    ax = figure.subplots()
    counted = [f"{name} ({len(compared.scores[name])} runs)" for name in compared.groups]
    names = dict(zip(compared.groups, labels(counted, inches=legend_room(ax)), strict=True))
    for i, (name, rows) in enumerate(compared.curves.groupby("group", sort=False)):
        curve = Curve(*(rows[column].to_numpy(float) for column in ("env_steps", "iqm", "low", "high")))
        color, line = _look(i)
        draw_curve(ax, curve, names[str(name)], color, line=line)
    style(ax)
    name_axes(ax, "env steps", f"IQM of {'scores (normalized)' if compared.normalized else compared.metric}")
    add_legend(ax)
    return figure


def _rows(ax: Axes, names: Sequence[str], values: np.ndarray, colors: Sequence[str]) -> None:
    """Draw a value and its interval in a row for each name, the first at the top; values: [rows, 3]."""
    places = np.arange(len(names))[::-1]
    for place, (value, low, high), color in zip(places, values, colors, strict=True):
        ax.plot([low, high], [place, place], color=color, lw=7, alpha=0.3, solid_capstyle="butt")
        ax.plot([value], [place], "o", color=color, ms=6)
    style(ax, counts=False)
    name_rows(ax, places, names)
    ax.set_ylim(-0.6, len(names) - 0.4)
    ax.grid(visible=False, axis="y")


def _look(i: int) -> tuple[str, str]:
    """Return the color and the line style of group i."""
    return COLORS[i % len(COLORS)], LINES[i // len(COLORS) % len(LINES)]
