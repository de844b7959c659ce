"""`EvaluationResult`: the matches of an evaluation, and their tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from marltrain.core.errors import ConfigError, did_you_mean
from marltrain.envs.registry import Source
from marltrain.trainer.evaluating.episode_log import EpisodeLog
from marltrain.trainer.evaluating.evaluation import TestResult

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, eq=False)
class Match:
    """One line-up in one cell of the grid.

    cell: the values of the grid's arguments.  agents: the competitor in each player's seat.
    log: the episodes' seeds and actions; cut episodes are missing.
    """

    cell: Mapping[str, Any]
    source: Source
    agents: tuple[str, ...]
    result: TestResult
    log: EpisodeLog


@dataclass(frozen=True, eq=False)
class EvaluationResult:
    """Result of `evaluate`.

    grid: the arguments of the grid.  players: the players' names.  competitors: the run, then its opponents.
    sides: the players of each side.
    table: a row for each match (cell of the grid and line-up) and player: `match`, the grid's arguments, `player`,
      `agent` (the competitor), `against` (the others), `episodes`, `length` (mean env steps), `return`, `low`, `high`
      (mean and its 95 % bootstrap interval over episodes), the shares `won`, `drawn` and `lost` (nan for games without
      winners), `unfinished`, and `record/<name>` as in the table of tests.
    episodes: a row for each episode: `match`, the grid's arguments, `agent/<player>`, `episode`, `seed` of the reset
      (-1 for an episode that was cut), `length`, `return/<player>`, `outcome/<player>` (1: won, 0: drawn, -1: lost),
      `unfinished` and `record/<name>`.
    sampled: whether the agents explored.
    """

    grid: tuple[str, ...]
    players: tuple[str, ...]
    competitors: tuple[str, ...]
    sides: tuple[tuple[str, ...], ...]
    table: pd.DataFrame
    episodes: pd.DataFrame
    matches: Sequence[Match]
    seed: int
    sampled: bool = False

    def matrix(self, value: str = "return") -> pd.DataFrame:
        """Return the cross-play matrix: the value of the row's agents on a side, with the column's in all other seats.

        value: "return", the mean return of the side's players; or "won", the share of episodes that one of them won.
        The means are over the sides, and over all cells of the grid.
        Raises ConfigError for another value, for "won" in a game without winners, and without opponents.
        """
        import pandas as pd

        if value not in ("return", "won"):
            raise ConfigError(f"value must be return or won, got {value!r}.{did_you_mean(value, ('return', 'won'))}")
        if len(self.competitors) < 2:
            raise ConfigError("there are no opponents, so there is no cross-play matrix: give against=[...]")
        if value == "won" and not self.has_winners:
            raise ConfigError(
                "value='won': the game has no winners, since its returns do not sum to 0; give value='return'"
            )
        rows = [[self._mean(one, other, value) for other in self.competitors] for one in self.competitors]
        return pd.DataFrame(rows, pd.Index(self.competitors, name="agent"), pd.Index(self.competitors, name="against"))

    @property
    def has_winners(self) -> bool:
        """Whether every match is of a game with winners."""
        return bool(self.table["won"].notna().all())

    def __repr__(self) -> str:
        """Return the size in one line."""
        return f"EvaluationResult({len(self.matches)} matches, {len(self.episodes)} episodes)"

    def _mean(self, one: str, other: str, value: str) -> float:
        """Return an entry of the matrix."""
        means = []
        for side in self.sides:
            held = {player: one if player in side else other for player in self.players}
            chosen = np.logical_and.reduce([self.episodes[f"agent/{p}"] == name for p, name in held.items()])
            kind = "return" if value == "return" else "outcome"
            values = self.episodes.loc[chosen, [f"{kind}/{player}" for player in side]].to_numpy(float)
            means.append(values.mean() if value == "return" else (values == 1).any(1).mean())
        return float(np.mean(means))
