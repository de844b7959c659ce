"""The committed results: one JSON file for each row and seed."""

from __future__ import annotations

import json
import os
import platform
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from fnmatch import fnmatch
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from benchmarks.learn.rows import Row
from benchmarks.learn.tasks import Task
from marltrain.core.errors import SaveError
from marltrain.core.layout import Array
from marltrain.storage.files import replacing
from marltrain.storage.json_files import read_json, to_json

ROOT = Path(__file__).parents[2]
RESULTS = Path(__file__).parent / "results"
EPISODES = 100
"""Unseen episodes that the final agents play."""
KEYS = (
    "row", "seed", "command", "versions", "machine", "settings", "env_steps", "gradient_steps", "seconds", "curve",
    "returns",
)  # fmt: skip
SAMPLED, PROCESSOR = "sampled_returns", "processor_seconds"
FURTHER = (SAMPLED, PROCESSOR)
"""Further keys, which results of earlier versions lack; the second one is missing in results of interrupted runs."""
LIBRARIES = ("gymnasium", "marltrain", "numpy", "torch")


class Result(NamedTuple):
    """What the table reads of a file.

    returns: [episodes, players] of the final, greedy agents that count (`Task.scored`), times `Task.players`.
    curve: [tests, 2]: env steps, mean return of such a player times `Task.players`.
    seconds: time of training, with its tests.
    sampled: returns of the same agents when they explore; None where it was not measured.
    processor: processor time of training, with its tests; None where it was not measured.
    """

    returns: Array
    curve: Array
    seconds: float
    sampled: Array | None = None
    processor: float | None = None

    @property
    def score(self) -> float:
        """Mean return of a player and episode, or of an episode, see `Task.players`."""
        return float(self.returns.mean())

    @property
    def best(self) -> float:
        """The largest mean return in a test of the curve; nan without tests."""
        return float(self.curve[:, 1].max()) if len(self.curve) else float("nan")


def path_of(row: Row, seed: int, folder: Path = RESULTS) -> Path:
    """Return the file of a row and seed."""
    return folder / row.name / f"{seed}.json"


def write(path: Path, content: Mapping[str, Any]) -> None:
    """Write a result, a line for each key."""
    lines = (
        f"  {json.dumps(key)}: {json.dumps(to_json(content[key]), allow_nan=False)}"
        for key in (*KEYS, *FURTHER)
        if key in content
    )
    with replacing(path) as beside:
        beside.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")


def read(row: Row, seed: int, folder: Path = RESULTS) -> Result:
    """Read and check a result; raises SaveError, naming the file, if it is not a result of this row and seed."""
    path = path_of(row, seed, folder)
    found = read_json(path)
    if not isinstance(found, dict) or tuple(key for key in found if key not in FURTHER) != KEYS:
        raise SaveError(f"{path}: must hold the keys {', '.join(KEYS)}, and may hold {', '.join(FURTHER)}")
    for key, expected in (("row", row.name), ("seed", seed)):
        if found[key] != expected:
            raise SaveError(f"{path}: {key} is {found[key]!r}, its place says {expected!r}")
    if not row.steps <= found["env_steps"] < 1.1 * row.steps + 1:
        raise SaveError(f"{path}: {found['env_steps']:,} env steps, its row has {row.steps:,}")
    try:
        returns = returns_of(row.task, found["returns"])
        sampled = returns_of(row.task, found[SAMPLED]) if SAMPLED in found else None
        curve = np.array(found["curve"], float).reshape(-1, 2) * (1, row.task.players)
    except (AttributeError, TypeError, ValueError) as error:
        raise SaveError(f"{path}: returns or curve are not numbers: {error}") from error
    for array in (returns,) if sampled is None else (returns, sampled):
        if array.ndim != 2 or len(array) != EPISODES:
            raise SaveError(f"{path}: returns must list {EPISODES} episodes for each player, got shape {array.shape}")
    return Result(returns, curve, float(found["seconds"]), sampled, found.get(PROCESSOR))


def returns_of(task: Task, returns: Mapping[str, Sequence[float]]) -> Array:
    """Return the returns of the players that count, [episodes, players], times `Task.players`."""
    return np.array([found for name, found in returns.items() if fnmatch(name, task.scored)], float).T * task.players


def read_all(row: Row, folder: Path = RESULTS) -> list[Result]:
    """Return the results of the seeds that the table shows, as far as there are any."""
    return [read(row, seed, folder) for seed in row.seeds if path_of(row, seed, folder).exists()]


def missing_of(rows: Iterable[Row], folder: Path = RESULTS) -> list[tuple[Row, int]]:
    """Return the rows and seeds without a result that can be trained, the cheapest first."""
    found = [(row, seed) for row in rows for seed in row.seeds if not path_of(row, seed, folder).exists()]
    return sorted(((row, seed) for row, seed in found if not row.missing), key=lambda job: job[0].minutes)


def versions() -> dict[str, str]:
    """Return the versions of the libraries that a result depends on, and the commit."""
    described = subprocess.run(
        ["git", "describe", "--always", "--dirty"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    commit = described.stdout.strip() or "unknown"
    return {"python": platform.python_version(), "commit": commit, **{name: version(name) for name in LIBRARIES}}


def machine() -> dict[str, Any]:
    """Return the processor and the number of threads."""
    info = Path("/proc/cpuinfo")
    names = [line for line in info.read_text().splitlines() if "model name" in line] if info.exists() else []
    cpu = names[0].partition(":")[2].strip() if names else platform.processor()
    return {"cpu": cpu, "threads": int(os.environ.get("OMP_NUM_THREADS", os.cpu_count() or 1))}
