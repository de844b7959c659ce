"""Returns of sides in tests, which a picture draws as one curve, the mean of the side's players."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from marltrain.core.layout import Array
from marltrain.trainer.seats.sides import sides_of

if TYPE_CHECKING:
    import pandas as pd

RETURN = "return/"
"""Beginning of the columns of players' returns."""
ZERO = 1e-6
"""Fraction of the largest return below which a metric counts as 0: sums are rounded."""


def sides_of_run(config: Mapping[str, Any], tests: pd.DataFrame) -> dict[str, list[str]]:
    """Return the sides of a run by its config.json, and its table of tests."""
    trainer, seats = config.get("trainer"), config.get("seats")
    reward = trainer.get("team_reward") if isinstance(trainer, Mapping) else None
    teams: dict[str, str] = {}
    for seat in seats if isinstance(seats, list) else ():
        agent = seat.get("agent") if isinstance(seat, Mapping) else None
        settings = agent.get("settings") if isinstance(agent, Mapping) else None
        if isinstance(settings, Mapping) and "team" in settings:
            teams[str(seat.get("player"))] = str(settings["team"])
    return sides_of(players_of(tests), reward, teams)


def players_of(tests: pd.DataFrame) -> list[str]:
    """Return the players of a table of tests."""
    columns = [name for name in tests.columns if name.startswith(RETURN) and tests[name].dtype.kind in "iuf"]
    return [name.removeprefix(RETURN) for name in columns]


def side_returns(tests: pd.DataFrame, side: Sequence[str]) -> Array:
    """Return the mean return of the players of a side in each test, [tests] float64."""
    return np.asarray(tests[[f"{RETURN}{player}" for player in side]].to_numpy(float).mean(1))


def is_zero_sum(tests: pd.DataFrame) -> bool:
    """Return whether the metric is 0 in every test though returns are not: it then says nothing."""
    returns = np.abs(tests[[f"{RETURN}{player}" for player in players_of(tests)]].to_numpy(float))
    largest = float(np.nanmax(returns)) if np.isfinite(returns).any() else 0.0
    return largest > 0 and bool((tests["metric"].abs() <= ZERO * largest).all())
