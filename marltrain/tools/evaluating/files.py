"""The files of an evaluation: tables as CSV and Parquet, pictures, and the episodes' seeds and actions."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from marltrain.storage.files import path_of, replacing
from marltrain.tools.csv_cells import write_csv
from marltrain.tools.evaluating.pictures import draw_matrix, draw_returns, draw_wins
from marltrain.tools.evaluating.replays import write_replays
from marltrain.tools.evaluating.result import EvaluationResult
from marltrain.trainer.reporting.figures import not_worth_a_run, write_figure
from marltrain.trainer.reporting.table_files import write_table

if TYPE_CHECKING:
    from matplotlib.figure import Figure

TABLE, EPISODES, MATRIX = "table", "episodes", "cross_play"
"""Names of the tables' files, without suffix."""


def write_evaluation(found: EvaluationResult, folder: str | Path) -> None:
    """Write an evaluation into a folder, which is created; files of an earlier one are replaced.

    table.csv, table.parquet, episodes.csv, episodes.parquet: see `EvaluationResult`.  returns.png, and wins.png for
    games with winners.  cross_play.csv, cross_play.png: with opponents.  replays/: see `read_replay`.
    """
    path = path_of(folder, "out")
    path.mkdir(parents=True, exist_ok=True)
    for optional in ("wins.png", f"{MATRIX}.csv", f"{MATRIX}.png"):
        (path / optional).unlink(missing_ok=True)
    for name, table in ((TABLE, found.table), (EPISODES, found.episodes)):
        write_csv(table, path / f"{name}.csv")
        with replacing(path / f"{name}.parquet") as beside:
            write_table(table, beside)
    if len(found.competitors) > 1:
        write_csv(found.matrix("won" if found.has_winners else "return"), path / f"{MATRIX}.csv", index=True)
    write_replays(found, path)
    _draw(draw_returns, found, path / "returns.png")
    if found.has_winners:
        _draw(draw_wins, found, path / "wins.png")
    if len(found.competitors) > 1:
        _draw(draw_matrix, found, path / f"{MATRIX}.png")


def _draw(draw: Callable[[EvaluationResult], Figure], found: EvaluationResult, path: Path) -> None:
    """Draw a picture; the tables are written, and stay without it."""
    with not_worth_a_run(path):
        write_figure(draw(found), path)
