"""The tables of an evaluation: a row for each episode, and a row for each match and player."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from marltrain.tools.evaluating.result import Match
from marltrain.trainer.evaluating.evaluation import bootstrap

if TYPE_CHECKING:
    import pandas as pd

OWN = (
    "match", "player", "agent", "against", "episode", "episodes", "length", "return", "low", "high", "won", "drawn",
    "lost", "unfinished", "seed",
)  # fmt: skip
"""Columns of the tables; an argument of the environment of such a name has the column "grid/<name>"."""


def tables_of(matches: Sequence[Match]) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return the tables of `EvaluationResult`: matches and players, and episodes."""
    import pandas as pd

    rows = [row for i, match in enumerate(matches) for row in _rows(i, match)]
    episodes = pd.concat([pd.DataFrame(_episodes(i, match)) for i, match in enumerate(matches)], ignore_index=True)
    return pd.DataFrame(rows), episodes


def _rows(number: int, match: Match) -> Iterator[dict[str, Any]]:
    result = match.result
    for p, player in enumerate(result.names):
        returns = result.returns[:, p]
        low, high = bootstrap(returns)
        outcomes = None if result.outcomes is None else result.outcomes[:, p]
        shares = {name: np.nan if outcomes is None else float((outcomes == outcome).mean())
                  for name, outcome in (("won", 1), ("drawn", 0), ("lost", -1))}  # fmt: skip
        others = dict.fromkeys(agent for q, agent in enumerate(match.agents) if q != p)
        yield {
            "match": number, **_cell(match.cell), "player": player, "agent": match.agents[p],
            "against": ", ".join(others), "episodes": len(returns), "length": float(result.lengths.mean()),
            "return": float(returns.mean()), "low": low, "high": high, **shares, "unfinished": result.num_unfinished,
            **result.record_means,
        }  # fmt: skip


def _episodes(number: int, match: Match) -> dict[str, Any]:
    result = match.result
    count, outcomes, log = len(result.lengths), result.outcomes, match.log
    seeds = [log.episodes[j].seed if j in log.episodes else -1 for j in log.numbers.tolist()]
    return {
        "match": np.full(count, number), **{name: [value] * count for name, value in _cell(match.cell).items()},
        **{f"agent/{player}": [agent] * count for player, agent in zip(result.names, match.agents, strict=True)},
        "episode": log.numbers, "seed": seeds,
        "length": result.lengths,
        **{f"return/{player}": result.returns[:, p] for p, player in enumerate(result.names)},
        **({} if outcomes is None else {f"outcome/{name}": outcomes[:, p] for p, name in enumerate(result.names)}),
        "unfinished": result.unfinished, **{f"record/{name}": values for name, values in result.records.items()},
    }  # fmt: skip


def _cell(cell: Mapping[str, Any]) -> dict[str, Any]:
    """Return the columns of a cell: values that are no numbers or texts as text."""
    plain = (bool, int, float, str, type(None))
    return {
        f"grid/{name}" if name in OWN else name: value if isinstance(value, plain) else repr(value)
        for name, value in cell.items()
    }
