"""Comparison: trained candidates and their scores, which pictures show."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, eq=False)
class Comparison:
    """The data of a `FindResult`, which describes them."""

    what: str
    by: str
    final: float
    numeric: bool
    best: Any
    interval: tuple[float, float] | None
    table: pd.DataFrame
    curves: pd.DataFrame
    errors: pd.DataFrame
