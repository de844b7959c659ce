"""`Comparison`: the numbers of a comparison of runs."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from marltrain.core.errors import in_line
from marltrain.core.layout import Array

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, eq=False)
class Comparison:
    """Result of `compare`. Intervals (`low`, `high`) are 95 % stratified bootstrap intervals over runs.

    groups: {group: {environment: folders of its runs}}.  scores: {group: [runs, environments] float64}.
    table: a row for each group and environment, and for all environments if there are several: `runs`, `env_steps` (the
      median of the last tests), `iqm`, `low`, `high`, `median` (of the runs; for all environments, of the environments'
      means), `mean`; with ranges also `optimality_gap`, the mean distance of scores below 1 from 1.
    pairs: a row for two groups: `probability`, that a run of `first` scores more than one of `second`, and
      `difference` of their interquartile means, with intervals (`..._low`, `..._high`) and a `verdict` about `first`.
    profiles: `group`, `threshold`, `share` of the scores above it, `low`, `high`.
    curves: `group`, `env_steps`, `iqm` over runs and environments, `low`, `high`.
    metric: what the scores are of.  score: "last", "best" or "mean".  normalized: whether ranges were given.
    """

    groups: dict[str, dict[str, list[Path]]]
    scores: dict[str, Array]
    table: pd.DataFrame
    pairs: pd.DataFrame
    profiles: pd.DataFrame
    curves: pd.DataFrame
    metric: str
    score: str
    normalized: bool

    def __repr__(self) -> str:
        """Return the groups and the numbers of their runs in one line."""
        counts = ", ".join(f"{in_line(name)}: {len(scores)} runs" for name, scores in self.scores.items())
        return f"Comparison({in_line(self.metric)}, {counts})"
