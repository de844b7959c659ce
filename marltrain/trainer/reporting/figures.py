"""Figures without a window: size, style, colors, curves, files."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from marltrain.core.errors import ConfigError, error_text, warn
from marltrain.core.layout import Array
from marltrain.storage.files import path_of, replacing
from marltrain.trainer.reporting.curves import Curve
from marltrain.trainer.reporting.labels import label, labels, unescaped, width_of

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLORS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#7f6a55", "#333333")
"""Colors of Okabe and Ito, which color-blind readers can distinguish, darkest first."""
INK, GRID = "#333333", "#e4e4e4"
LINES = ("-", "--", ":", "-.")
"""Line styles, which distinguish curves if there are more curves than colors."""
TITLE, LONGEST_TITLE, TITLE_MARGIN = 11.0, 80, 1.3
"""Size of a title in points, its maximum number of letters, and inches of the picture's width beside it."""
NAME = 10.0
"""Size of the names of axes, in points."""
GROWTH = 1.15
"""Factor by which the layout makes axes larger than they are at first."""
ROW_NAMES, COLUMN_NAMES = 0.45, 1.5
"""Widest names of rows, as a fraction of a picture's width, and of columns, in inches."""
COLUMN, GAP = 0.2, 0.1
"""Least width of a named column, and of the room between names beside each other, in inches."""
MARKED = 30
"""Maximum number of points of a curve with markers."""


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


def add_title(ax: Axes, title: str) -> None:
    """Write a title over axes, no wider than they are, or than the picture if it has no others beside them."""
    figure: Any = ax.figure
    width, of_axes = float(figure.get_figwidth()), ax.get_position().width
    room = width - TITLE_MARGIN if of_axes > 0.5 else width * of_axes
    ax.set_title(label(title, LONGEST_TITLE, inches=room, size=TITLE), loc="left", color=INK, fontsize=TITLE)


def name_axes(ax: Axes, x: object = None, y: object = None) -> None:
    """Name the axes, in texts no longer than they are; None: no name."""
    figure: Any = ax.figure
    place = ax.get_position()
    width, height = GROWTH * place.width * figure.get_figwidth(), GROWTH * place.height * figure.get_figheight()
    if x is not None:
        ax.set_xlabel(label(x, LONGEST_TITLE, inches=width, size=NAME), color=INK)
    if y is not None:
        ax.set_ylabel(label(y, LONGEST_TITLE, inches=height, size=NAME), color=INK)


def name_rows(ax: Axes, places: Sequence[float] | Array, names: Iterable[object]) -> None:
    """Name places of the vertical axis; the names take at most a share of the width."""
    figure: Any = ax.figure
    ax.set_yticks(places, labels(names, inches=ROW_NAMES * figure.get_figwidth()))


def name_columns(ax: Axes, places: Sequence[float] | Array, names: Iterable[object]) -> None:
    """Name places of the horizontal axis, evenly spaced; names that do not fit beside each other are inclined.

    Of more names than there is room for, some are left out.
    """
    figure: Any = ax.figure
    room = ax.get_position().width * figure.get_figwidth()
    shown = labels(names, inches=COLUMN_NAMES)
    every = -(-len(shown) // max(1, int(room / COLUMN)))
    shown, places = shown[::every], list(places)[::every]
    wide = len(shown) * (max(map(width_of, map(unescaped, shown)), default=0.0) + GAP) > room
    how: dict[str, Any] = {"rotation": 35, "ha": "right", "rotation_mode": "anchor"} if wide else {}
    ax.set_xticks(places, shown, **how)


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
    """Save a figure with plain texts; clear it."""
    with plain_texts(figure):
        figure.savefig(target, **how)
    figure.clear()


@contextmanager
def plain_texts(artist: Artist) -> Iterator[None]:
    """Let the texts of an artist be drawn or measured without TeX, and without a warning for letters of other fonts."""
    import matplotlib as mpl
    from matplotlib.text import Text

    with mpl.rc_context({"text.usetex": False}), warnings.catch_warnings():
        for text in artist.findobj(Text):
            text.set_usetex(False)
        warnings.filterwarnings("ignore", "Glyph .* missing from")
        yield


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
