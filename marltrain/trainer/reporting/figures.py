"""Figures without a window: size, style, colours, curves, legend, files."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from marltrain.errors import ConfigError, error_text, in_line, warn
from marltrain.files import path_of, replacing
from marltrain.layout import Array
from marltrain.trainer.reporting.curves import Curve

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLORS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#7f6a55", "#333333")
"""Colours of Okabe and Ito, which colour-blind readers can distinguish, darkest first."""
INK, GRID = "#333333", "#e4e4e4"
LINES = ("-", "--", ":", "-.")
"""Line styles, which distinguish curves if there are more curves than colours."""
MARKED = 30
"""Maximum number of points of a curve with markers."""
NAMED = 12
"""Maximum number of entries of a legend; more would hide the curves."""


LONGEST_LABEL = 60
"""Maximum number of letters of a name in a picture."""


def new_figure(width: float, height: float) -> Figure:
    """Return a figure of this size in inches that draws without a window."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), dpi=130, layout="constrained", facecolor="white")
    FigureCanvasAgg(figure)
    return figure


def style(ax: Axes, *, counts: bool = True) -> None:
    """Give a plot the grid, spines and tick labels of all pictures; counts: write 20k for 20,000 on x."""
    from matplotlib.ticker import EngFormatter

    ax.grid(color=GRID, lw=0.8)
    ax.set_axisbelow(True)
    ax.spines[["top", "right"]].set_visible(False)
    ax.spines[["left", "bottom"]].set_color("#999999")
    ax.tick_params(colors=INK, labelsize=9)
    if counts:
        ax.xaxis.set_major_formatter(EngFormatter(sep=""))
    ax.margins(x=0.02)


def draw_curve(ax: Axes, curve: Curve, shown: str | None, color: str, *, line: str = "-") -> None:
    """Draw a curve and its band; shown: its label, see `label`."""
    ax.plot(curve.x, curve.middle, color=color, ls=line, lw=1.8, label=shown, zorder=3, **marks(curve.middle))
    bounded = np.isfinite(curve.low) & np.isfinite(curve.high)
    ax.fill_between(curve.x, curve.low, curve.high, where=bounded.tolist(), color=color, alpha=0.18, lw=0, zorder=2)
    if len(curve.x) == 1 and bounded.all():  # a band of one point has no width
        ax.vlines(curve.x, curve.low, curve.high, color=color, alpha=0.4, lw=3, zorder=2)


def marks(values: Array) -> dict[str, Any]:
    """Return arguments for markers if a curve has few points; a line alone does not show a single point."""
    return {"marker": "o", "ms": 3.5} if np.isfinite(values).sum() <= MARKED else {}


def add_legend(ax: Axes) -> None:
    """Add the legend; if it has too many entries, show the first ones and the number of the others."""
    from matplotlib.lines import Line2D

    handles, labels = ax.get_legend_handles_labels()
    if len(labels) > NAMED:
        blank = Line2D([], [], lw=0)
        more = len(labels) - NAMED + 1
        handles, labels = [*handles[: NAMED - 1], blank], [*labels[: NAMED - 1], f"and {more} more"]
    if labels:
        ax.legend(handles, labels, frameon=False, fontsize=9, ncols=1 + (len(labels) > 4), labelcolor=INK)


def label(name: object, longest: int = LONGEST_LABEL) -> str:
    """Return a name as the text of a label, which matplotlib draws as it is, in one line of at most `longest` letters.

    Dollar signs begin no formula, a leading underscore hides no entry of a legend, and a name of spaces is seen.
    """
    text = in_line(name)
    if len(text) > longest:
        half = (longest - 1) // 2
        text = f"{text[: longest - 1 - half]}…{text[len(text) - half :]}"
    text = text if text.strip() else repr(text)
    return f"{' ' if text.startswith('_') else ''}{text}".replace("$", r"\$")


def labels(names: Iterable[object]) -> list[str]:
    """Return the labels of different names, which differ, too: a number tells shortened ones apart."""
    made: list[str] = []
    for name in names:
        short, number = label(name), 1
        while short in made:
            number += 1
            short = f"{label(name, LONGEST_LABEL - 6)} ({number})"
        made.append(short)
    return made


def write_figure(figure: Figure, path: str | Path) -> None:
    """Write a figure into a file, .png, .svg or .pdf, and clear it; raises ConfigError for another name."""
    path = path_of(path, "the picture", ConfigError)
    with replacing(path) as beside:
        _save(figure, beside, format=kind_of_picture(path))


@contextmanager
def not_worth_a_run(path: str | Path) -> Iterator[None]:
    """Turn an error of drawing a picture into a warning, where the results that are not yet returned matter more."""
    try:
        yield
    except Exception as error:
        warn(f"{path}: the picture cannot be drawn: {error_text(error)}. No result is lost")


def _save(figure: Figure, target: Any, **how: Any) -> None:
    """Save a figure without TeX, and without a warning for letters that the font lacks; clear it."""
    import matplotlib as mpl
    from matplotlib.text import Text

    for text in figure.findobj(Text):
        text.set_usetex(False)
    with mpl.rc_context({"text.usetex": False}), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing from")
        figure.savefig(target, **how)
    figure.clear()


def kind_of_picture(path: str | Path) -> str:
    """Return the kind of a picture by its name; raises ConfigError for a name of another kind."""
    from matplotlib.backend_bases import FigureCanvasBase

    kinds = FigureCanvasBase.get_supported_filetypes()
    kind = path_of(path, "the picture", ConfigError).suffix.lower().removeprefix(".")
    if kind not in kinds:
        raise ConfigError(f"a picture's name must end in one of {', '.join(sorted(kinds))}, got {str(path)!r}")
    return kind


def png_of(figure: Figure) -> bytes:
    """Return a figure as a PNG, and clear it."""
    data = BytesIO()
    _save(figure, data, format="png", metadata={"Software": None})
    return data.getvalue()
