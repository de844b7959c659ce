"""Files that a run writes into its folder: agents and tables."""

from __future__ import annotations

import logging
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from marltrain.policies.agents.files import DESCRIPTION, ENV_STEPS, FILES, OPTIONAL, RUN_AGENTS, write_agents
from marltrain.storage.checks import counted
from marltrain.storage.files import replacing, writing
from marltrain.trainer.reporting.table_files import write_table as write_parquet
from marltrain.trainer.training.run import Run

LOGGER = logging.getLogger("marltrain")
BEST = RUN_AGENTS[0]
MEMBERS_FILE = "members.parquet"
"""Results of the members of pools, see `OpponentPool.results`."""


def save_agents(run: Run, name: str) -> Path | None:
    """Save the agents under a name in the run's folder; return the path, or None for a run without a folder."""
    if run.context.folder is None:
        return None
    path = run.context.folder.whole() / name
    write_agents(
        path, run.context.seating.agents, players=run.context.envs.spec.names, env_steps=run.counters.env_steps
    )
    return path


def remove_later_best(run: Run) -> None:
    """Remove best agents of a test after the checkpoint from which a run is resumed.

    The restored table of tests does not have this test. The resumed run plays it again, and saves its agents again if
    it still is the best one.
    """
    if run.context.folder is None or not (best := run.context.folder.whole() / BEST / DESCRIPTION).is_file():
        return
    steps = FILES.read_alone(best.parent, {"agents", "seats"}, OPTIONAL).get(ENV_STEPS)
    if steps is not None and counted(f'{best}: "{ENV_STEPS}"', steps) > run.counters.env_steps:
        LOGGER.warning("%s is of env step %d, after the checkpoint, and is removed", best.parent, steps)
        with writing(best.parent):
            shutil.rmtree(best.parent)


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
