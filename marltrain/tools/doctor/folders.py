"""The section about folders that training writes into."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from marltrain.tools.doctor.report import CORE, HERE, Fact, Finding, Section
from marltrain.tools.doctor.writing import LITTLE, free, in_bytes, obstacle

RUNS = "runs"
"""Folder of the working folder in which runs lie by default."""


def folders() -> Section:
    """Return the section of the folder of runs and of the temporary folder."""
    facts, findings = [], []
    remedy = "change to a folder that you may write, or name one with --run-dir (run_dir=)"
    for name, concerns, way in (("runs", HERE, remedy), ("temporary", CORE, "set TMPDIR to a folder to write to")):
        folder, barrier = _runs() if name == "runs" else _temporary()
        room = None if folder is None else free(folder)
        state = barrier or f"{folder}: can be written, {in_bytes(room)} free"
        facts.append(Fact(name, {"folder": None if folder is None else str(folder), "writable": not barrier,
                                 "free": room}, state))  # fmt: skip
        if barrier:
            findings.append(Finding(concerns, f"{name} folder", barrier, way))
        elif room is not None and room < LITTLE:
            findings.append(Finding(CORE, f"{name} folder", f"{folder} has {in_bytes(room)} free", "free space"))
    return Section("folders", facts, findings)


def _runs() -> tuple[Path | None, str]:
    """Return the folder of runs, and why it cannot be written."""
    try:
        folder = Path(os.getcwd()) / RUNS
    except OSError as error:  # it was removed
        return None, f"there is no working folder: {error.strerror or error}"
    return folder, obstacle(folder)


def _temporary() -> tuple[Path | None, str]:
    try:
        return Path(tempfile.gettempdir()), ""  # tried by tempfile
    except OSError as error:
        return None, f"there is none: {error.strerror or error}"
