"""The texts of the progress display: all of it in a line, or as much as a terminal of some width has room for."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from marltrain.trainer.reporting.run_view import clock

WIDE, NARROW = 20, 8
"""Columns of the bar, and in a narrow terminal."""
BESIDE = len("100%|") + len("| ")
"""Columns beside the bar and the text."""
UNITS = ((1e9, "B"), (1e6, "M"), (1e3, "k"))


@dataclass(frozen=True)
class State:
    """What the display shows of a run.

    rate: env steps a second.  metric, best: of the last and the best test.  testing: finished and all episodes of the
    test that is played.  passed, left: seconds.  None: not known, or not shown.
    bar: columns of the bar.  short: whether counts are short, and episodes are left out.
    """

    episodes: int
    env_steps: int | None
    rate: float | None
    metric: float | None
    best: float | None
    loss: float | None
    testing: tuple[int, int] | None
    passed: float
    left: float | None
    bar: int = WIDE
    short: bool = False


SHORTER: tuple[dict[str, Any], ...] = (
    {"bar": NARROW}, {"short": True}, {"loss": None}, {"best": None}, {"rate": None}, {"bar": 0}, {"env_steps": None},
)  # fmt: skip
"""What is changed, one after another, until the display fits. Metric, a running test and the times stay."""


def line(state: State) -> str:
    """Return all of it in one line."""
    left = "" if state.left is None else f" < {clock(state.left)}"
    return f"{', '.join(_parts(state))}  {clock(state.passed)}{left}"


def beside_bar(state: State, columns: int) -> tuple[str, int]:
    """Return the text beside a bar and the width of the bar, which take at most `columns` together if they can."""
    for change in ({}, *SHORTER):
        state = replace(state, **change)
        left = "?" if state.left is None else clock(state.left)
        text = " ".join([*filter(None, [", ".join(_parts(state))]), f"[{clock(state.passed)}<{left}]"])
        if BESIDE + state.bar + len(text) <= columns:
            break
    return text, state.bar


def _parts(state: State) -> list[str]:
    parts = [] if state.short else [f"{state.episodes:,} episodes"]
    if state.env_steps is not None:
        parts.append(f"{_count(state.env_steps)} steps" if state.short else f"{state.env_steps:,} env steps")
    if state.rate is not None:
        parts.append(f"{_count(state.rate) if state.short else f'{state.rate:,.0f}'}/s")
    if state.metric is not None:
        parts.append(f"metric {state.metric:.4g}" + ("" if state.best is None else f" (best {state.best:.4g})"))
    if state.loss is not None:
        parts.append(f"loss {state.loss:.3g}")
    if state.testing is not None:
        finished, episodes = state.testing
        parts.append(f"test {finished}/{episodes}" if state.short
                     else f"testing {finished:,}/{episodes:,} episodes")  # fmt: skip
    return parts


def _count(number: float) -> str:
    """Return a number in at most five letters: 950, 12.3k, 4.56M."""
    for size, unit in UNITS:
        if number >= 0.9995 * size:
            digits = f"{number / size:.3g}"
            return f"{float(digits):g}{unit}"
    return f"{number:.0f}"
