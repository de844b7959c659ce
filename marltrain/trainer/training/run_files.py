"""Files that a run writes into its folder: agents and tables."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from marltrain.policies.agents.saving import save
from marltrain.trainer.training.run import Run


def save_agents(run: Run, name: str) -> Path | None:
    """Save the agents under a name in the run's folder; return the path, or None for a run without a folder."""
    if run.context.folder is None:
        return None
    path = run.context.folder.whole() / name
    save(path, run.context.seating.agents, players=run.context.envs.spec.names)
    return path


def write_table(run: Run, write: Callable[[], Any]) -> None:
    """Call a function that writes into the run's folder; do nothing for a run without a folder."""
    if run.context.folder is not None:
        run.context.folder.whole()
        write()
