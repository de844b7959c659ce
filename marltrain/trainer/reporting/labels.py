"""Labels of pictures: names as texts that matplotlib draws as they are, no wider than there is room."""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from functools import lru_cache

from marltrain.core.errors import in_line

LONGEST_LABEL = 60
"""Maximum number of letters of a name in a picture."""
SIZE = 9.0
"""Size of the letters of tick labels and legends, in points."""
WIDEST = 1.3
"""Width that no letter exceeds, in sizes: short texts need not be measured."""
POINTS = 72.0
"""Points of an inch."""


def label(name: object, longest: int = LONGEST_LABEL, *, inches: float | None = None, size: float = SIZE) -> str:
    """Return a name as the text of a label, which matplotlib draws as it is, in one line of at most `longest` letters.

    inches: room for the text at `size` points; None: no limit. A longer text loses its middle.
    Dollar signs begin no formula, a leading underscore hides no entry of a legend, and a name of spaces is seen.
    """
    text = in_line(name)
    text = _shortened(text, longest)
    if inches is not None and not _fits(text, inches, size):
        low, high = 1, len(text)  # most letters that fit; one letter is drawn in any case
        while low < high:
            middle = (low + high + 1) // 2
            low, high = (middle, high) if _fits(_shortened(text, middle), inches, size) else (low, middle - 1)
        text = _shortened(text, low)
    text = text if text.strip() else repr(text)
    return f"{' ' if text.startswith('_') else ''}{text}".replace("$", r"\$")


def labels(names: Iterable[object], *, inches: float | None = None, size: float = SIZE) -> list[str]:
    """Return the labels of different names, which differ, too: a number tells shortened ones apart; see `label`."""
    result: dict[str, int] = {}
    """Label -> the last number that tells further ones like it apart."""
    for name in names:
        first = short = label(name, inches=inches, size=size)
        while short in result:
            result[first] += 1
            end = f" ({result[first]})"
            room = None if inches is None else inches - width_of(end, size)
            short = label(name, LONGEST_LABEL - len(end), inches=room, size=size) + end
        result[short] = 1
    return list(result)


def unescaped(text: str) -> str:
    """Return the text that is drawn of a label."""
    return text.replace(r"\$", "$")


@lru_cache(maxsize=4096)
def width_of(text: str, size: float = SIZE) -> float:
    """Return the width of a text in inches, in the font of the pictures."""
    from matplotlib.font_manager import FontProperties
    from matplotlib.textpath import text_to_path

    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing from")
        width, _, _ = text_to_path.get_text_width_height_descent(text, FontProperties(size=size), ismath=False)
    return float(width) / POINTS


def _fits(text: str, inches: float, size: float) -> bool:
    return len(text) * WIDEST * size / POINTS <= inches or width_of(text, size) <= inches


def _shortened(text: str, longest: int) -> str:
    """Return a text of at most `longest` letters, the middle of a longer one replaced by an ellipsis."""
    if len(text) <= longest:
        return text
    half = (longest - 1) // 2
    return f"{text[: longest - 1 - half]}…{text[len(text) - half :]}"
