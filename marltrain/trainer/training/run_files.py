"""Files that a run writes into its folder: agents and tables."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from marltrain.policies.agents.saving import save
from marltrain.storage.files import replacing
from marltrain.trainer.reporting.table_files import write_table as write_parquet
from marltrain.trainer.training.run import Run

MEMBERS_FILE = "members.parquet"
"""Results of the members of pools, see `OpponentPool.results`."""


def save_agents(run: Run, name: str) -> Path | None:
    """Save the agents under a name in the run's folder; return the path, or None for a run without a folder."""
    if run.context.folder is None:
        return None
    path = run.context.folder.whole() / name
    save(path, run.context.seating.agents, players=run.context.envs.spec.names)
    return path


def write_members(run: Run) -> None:
    """Write the results of the members of all sets of policies that keep results into members.parquet."""
    import pandas as pd

    records = run.actors.cast.records
    tables = {name: table for name, record in records.items() if (table := record.results()) is not None}
    if tables and run.context.folder is not None:
        frames = [table.assign(player=name) for name, table in tables.items()]
        frame = pd.concat(frames, ignore_index=True)
        with replacing(run.context.folder.path / MEMBERS_FILE) as beside:
            write_parquet(frame[["player", *frame.columns.drop("player")]], beside)


def write_table(run: Run, write: Callable[[], Any]) -> None:
    """Call a function that writes into the run's folder; do nothing for a run without a folder."""
    if run.context.folder is not None:
        run.context.folder.whole()
        write()
