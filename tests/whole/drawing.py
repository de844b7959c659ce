"""What is wrong with a picture: axes that collapse, texts beyond its edges or over each other."""

import itertools
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from marltrain.trainer.reporting import figures

BAR = "<colorbar>"
"""Label of the axes of a color bar."""
LEAST_WIDTH, LEAST_HEIGHT = 0.5, 100
"""Least width of axes, as a fraction of their share of the picture, and height in pixels."""
EDGE = 2
"""Pixels by which texts may reach beyond the picture."""


@contextmanager
def watched() -> Iterator[list[str]]:
    """Yield a list that gets the faults of all pictures drawn inside.

    With SHOTS in the environment, a folder, the pictures are written there, too.
    """
    found: list[str] = []
    save = Figure.savefig

    def saved(figure: Figure, target: object, **how: object) -> None:
        save(figure, target, **how)  # type: ignore[arg-type]
        found.extend(faults_of(figure))
        if shots := os.environ.get("SHOTS"):
            name = os.environ["PYTEST_CURRENT_TEST"].rpartition("::")[2].partition(" ")[0].replace("/", "-")
            number = sum(path.name.startswith(name) for path in Path(shots).iterdir())
            save(figure, Path(shots, f"{name}{number}.png"))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Figure, "savefig", saved)
        yield found


def faults_of(figure: Figure) -> list[str]:
    """Return what is wrong with a drawn picture."""
    with figures.plain_texts(figure):
        axes = [ax for ax in figure.axes if ax.get_visible() and ax.get_label() != BAR]
        return [*_collapsed(figure, axes), *_outside(figure), *_touching(axes), *_covered(axes)]


def _collapsed(figure: Figure, axes: list[Axes]) -> Iterator[str]:
    for ax in axes:
        spec = ax.get_subplotspec()
        columns = 1 if spec is None else spec.get_gridspec().ncols
        width, height = ax.bbox.width * columns / figure.bbox.width, ax.bbox.height
        if width < LEAST_WIDTH:
            yield f"axes take {width:.2f} of their share of the width, at least {LEAST_WIDTH} are right"
        if height < min(LEAST_HEIGHT, 20 * len(ax.get_yticks())):
            yield f"axes are {height:.0f} pixels high, at least {LEAST_HEIGHT} are right"


def _outside(figure: Figure) -> Iterator[str]:
    from matplotlib.text import Text

    hidden = _hidden(figure)
    for text in figure.findobj(Text):
        assert isinstance(text, Text)
        if not text.get_text() or not text.get_visible() or id(text) in hidden:
            continue
        box = text.get_window_extent()
        if box.width and (
            box.x0 < -EDGE or box.y0 < -EDGE or box.x1 > figure.bbox.width + EDGE or box.y1 > figure.bbox.height + EDGE
        ):
            yield f"{text.get_text()!r} reaches beyond the picture: {box.extents} of {figure.bbox.extents}"


def _hidden(figure: Figure) -> set[int]:
    """Return the identities of texts that are not drawn: of hidden axes, and of ticks beyond their limits."""
    from matplotlib.text import Text

    hidden: set[int] = set()
    for ax in figure.axes:
        if not ax.get_visible():
            hidden |= {id(text) for text in ax.findobj(Text)}
        for axis in (ax.xaxis, ax.yaxis):
            drawn = {id(tick) for tick in axis._update_ticks()}  # type: ignore[union-attr]
            others = [tick for tick in (*axis.majorTicks, *axis.minorTicks) if id(tick) not in drawn]
            hidden |= {id(text) for tick in others for text in (tick.label1, tick.label2)}
    return hidden


def _touching(axes: list[Axes]) -> Iterator[str]:
    for ax in axes:
        ticks = ax.xaxis._update_ticks()  # type: ignore[attr-defined]
        shown = [tick.label1 for tick in ticks if tick.label1.get_visible() and tick.label1.get_text()]
        shown.sort(key=lambda text: text.get_window_extent().x0)
        for one, other in itertools.pairwise(shown):
            if not one.get_rotation() and one.get_window_extent().overlaps(other.get_window_extent()):
                yield f"tick labels {one.get_text()!r} and {other.get_text()!r} touch each other"


def _covered(axes: list[Axes]) -> Iterator[str]:
    for ax in axes:
        legend = ax.get_legend()
        if legend is None:
            continue
        box = legend.get_window_extent()
        for other in axes:
            if box.y1 > other.bbox.y0 + 1 and box.y0 < other.bbox.y1 - 1 and box.x1 > other.bbox.x0:
                yield f"a legend covers axes: {box} and {other.bbox}"
