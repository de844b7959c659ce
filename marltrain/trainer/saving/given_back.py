"""Folders that runs give back: the run's own files are removed, if nothing else is in the folder."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

from marltrain.policies.agents.files import DESCRIPTION, RUN_AGENTS, WEIGHTS
from marltrain.trainer.saving.checkpoint import FOLDER

OWN_FOLDERS = (*RUN_AGENTS, FOLDER)
OWN_FILES = (
    "config.json", "episodes.parquet", "history.parquet", "members.parquet", "metrics.png", "payoffs.parquet",
    "ratings.parquet",
    *[f"{name}/{file}" for name in RUN_AGENTS for file in (DESCRIPTION, WEIGHTS)],
)  # fmt: skip
"""Files that any run makes. Checkpoints, a report of faults and films are not among them: their folder stays."""


def emptied(folder: Path, own: Collection[str], *, but: str) -> bool:
    """Remove a run's own files from its folder; return False, and remove nothing, if anything else is in it.

    own: names of further files of the run.  but: name of a file that may be in the folder, and stays.
    Links are never a run's own. Raises OSError if a file cannot be removed.
    """
    found = [path for path in sorted(folder.rglob("*"), reverse=True) if path != folder / but]  # files, then folders
    for path in found:
        own_names = OWN_FOLDERS if path.is_dir() else (*OWN_FILES, *own)
        if path.is_symlink() or path.relative_to(folder).as_posix() not in own_names:
            return False
    for path in found:
        if path.is_dir():
            path.rmdir()
        else:
            path.unlink()
    return True
