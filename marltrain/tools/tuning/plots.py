"""Pictures of a study: its history, slices and importances of its parameters; of a population over env steps."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from marltrain.tools.search.axes import is_logarithmic, make_logarithmic
from marltrain.trainer.reporting.figures import (
    COLORS,
    name_axes,
    name_columns,
    name_rows,
    new_figure,
    style,
    write_figure,
)
from marltrain.trainer.reporting.legends import add_legend

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

NO_PARAMETERS = ("trial", "state", "metric", "error")
NOT_SHOWN = ("member", "env_steps", "copied")
"""Columns of the table of a population that have no curve."""
LEAST, LEAST_COMPARED = 3, 10
"""Numbers of complete trials from which slices, and importances of several parameters, are drawn."""
COLUMNS = 3


def draw_study(study: Any, table: pd.DataFrame, folder: Path) -> list[Path]:
    """Draw the pictures of `TuneResult.plot`."""
    folder.mkdir(parents=True, exist_ok=True)
    drawn = [_history(table, folder / "history.png")]
    complete = table[table["state"] == "complete"]
    parameters = [name for name in table.columns if name not in NO_PARAMETERS]
    varied = [name for name in parameters if complete[name].nunique() > 1]
    if len(complete) >= LEAST and varied:
        drawn.append(_slices(complete, varied, folder / "slices.png"))
    if len(complete) >= LEAST_COMPARED and len(varied) > 1:
        drawn.append(_importances(study, folder / "importances.png"))
    return drawn


def _history(table: pd.DataFrame, path: Path) -> Path:
    figure = new_figure(7.2, 4.0)
    ax = figure.subplots()
    complete = table[table["state"] == "complete"]
    ax.plot(complete["trial"], complete["metric"], "o", color=COLORS[0], ms=4, label="complete")
    pruned = table[(table["state"] == "pruned") & table["metric"].notna()]
    ax.plot(pruned["trial"], pruned["metric"], "x", color="#999999", ms=5, label="pruned, at its end")
    ax.plot(
        complete["trial"], complete["metric"].cummax(), color=COLORS[1], drawstyle="steps-post", label="best so far"
    )
    name_axes(ax, "trial", "metric")
    style(ax)
    add_legend(ax)
    write_figure(figure, path)
    return path


def _slices(complete: pd.DataFrame, parameters: list[str], path: Path) -> Path:
    from matplotlib.ticker import MaxNLocator

    rows = -(-len(parameters) // COLUMNS)
    columns = min(COLUMNS, len(parameters))
    figure = new_figure(2.9 * columns + 0.6, 2.6 * rows)
    axes = figure.subplots(rows, columns, squeeze=False, sharey=True)
    for ax, name in zip(axes.ravel(), parameters, strict=False):
        values = complete[name]
        shown = ax.scatter(_numbers(values), complete["metric"], c=complete["trial"], cmap="viridis", s=16)
        style(ax)
        _name_values(ax, values)
        name_axes(ax, name)
    for ax in axes.ravel()[len(parameters) :]:
        ax.set_visible(False)
    for ax in axes[:, 0]:
        name_axes(ax, y="metric")
    figure.colorbar(shown, ax=axes, label="trial", ticks=MaxNLocator(5, integer=True))
    write_figure(figure, path)
    return path


def _name_values(ax: Axes, values: pd.Series) -> None:
    """Write the values of a parameter at its axis: choices by name, numbers that do not touch each other."""
    from matplotlib.ticker import MaxNLocator, ScalarFormatter

    if values.dtype == object:
        names = sorted(map(str, values.unique()))
        name_columns(ax, range(len(names)), names)
        ax.set_xlim(-0.5, len(names) - 0.5)
    elif is_logarithmic(values):
        make_logarithmic(ax)
    else:
        ax.xaxis.set_major_locator(MaxNLocator(3, integer=values.dtype.kind in "iu"))
        ax.xaxis.set_major_formatter(ScalarFormatter())


def _numbers(values: pd.Series) -> Any:
    """Return values as numbers: choices by their place in order."""
    if values.dtype != object:
        return values
    places = {text: i for i, text in enumerate(sorted(map(str, values.unique())))}
    return np.array([places[str(value)] for value in values])


def _importances(study: Any, path: Path) -> Path:
    import optuna

    found = optuna.importance.get_param_importances(study)
    figure = new_figure(6.4, 1.2 + 0.35 * len(found))
    ax = figure.subplots()
    names = list(found)[::-1]
    ax.barh(range(len(names)), [found[name] for name in names], color=COLORS[0])
    style(ax, counts=False)
    name_rows(ax, range(len(names)), names)
    name_axes(ax, "importance for the metric")
    write_figure(figure, path)
    return path


def draw_population(table: pd.DataFrame, best: int, path: Path) -> Path:
    """Draw the picture of `PBTResult.plot`; best: number of the best member, which is drawn in color."""
    shown = [name for name in table.columns if name not in NOT_SHOWN]
    figure = new_figure(7.2, 1.0 + 2.0 * len(shown))
    axes = figure.subplots(len(shown), 1, squeeze=False, sharex=True)[:, 0]
    for ax, name in zip(axes, shown, strict=True):
        for member, rows in table.groupby("member"):
            own = {"color": COLORS[1], "lw": 1.8, "zorder": 3} if member == best else {"color": "#bbbbbb", "lw": 0.8}
            ax.plot(rows["env_steps"], rows[name], **own)
        if name != "metric" and is_logarithmic(table[name]):
            ax.set_yscale("log")
        style(ax)
        name_axes(ax, y=name)
    name_axes(axes[-1], f"env steps (in color: member {best}, the best at the end)")
    path.parent.mkdir(parents=True, exist_ok=True)
    write_figure(figure, path)
    return path
