"""Runs of one plot: found in folders, grouped where only seeds differ, and named."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from marltrain.errors import SaveError
from marltrain.files import read_json
from marltrain.trainer.reporting.history import TESTS_FILE

LOGGER = logging.getLogger("marltrain")
LEARNING = ("num_train_envs", "batch_size", "update_freq", "shared_memory", "team_reward")
"""The trainer's settings that change what is learned."""
MOST_TOLD = 3
"""Differences that a curve's name shows."""


def found(folders: Sequence[Path]) -> list[Path]:
    """Return the folders of runs: those given, and in place of one that is none the runs inside, two levels deep.

    Raises SaveError for a folder that is no run and holds none.
    """
    runs: list[Path] = []
    for folder in folders:
        inside = [folder / TESTS_FILE] if (folder / TESTS_FILE).is_file() else []
        inside = inside or sorted([*folder.glob(f"*/{TESTS_FILE}"), *folder.glob(f"*/*/{TESTS_FILE}")])
        if not inside:
            raise SaveError(f"{folder}: is not a run's folder: {TESTS_FILE} is not there, nor in the folders inside")
        runs += [file.parent for file in inside]
    return list(dict.fromkeys(runs))


def with_tests(runs: Sequence[Path]) -> list[Path]:
    """Return the runs whose table holds a test; the others are logged. Raises SaveError where none does."""
    import pyarrow.parquet as pq

    kept = []
    for run in runs:
        try:
            empty = pq.ParquetFile(run / TESTS_FILE).metadata.num_rows == 0
        except (OSError, ValueError) as error:
            raise SaveError(f"{run / TESTS_FILE}: not a table of tests, or damaged: {error}") from error
        if empty:
            LOGGER.warning("%s holds no test: it is left out of the picture", run)
        else:
            kept.append(run)
    if not kept:
        raise SaveError(f"{runs[0] / TESTS_FILE}: holds no test, so there is nothing to plot")
    return kept


def kinds(runs: Sequence[Path]) -> dict[str, list[Path]]:
    """Return name -> the runs that differ only in their seeds. Kinds of one name are told apart by their settings."""
    made: dict[tuple[str, str], list[Path]] = {}
    facts: dict[tuple[str, str], dict[str, Any]] = {}
    for run in runs:
        config = config_of(run)
        told = dict(_facts(config))
        key = name_of(run, config), json.dumps(told, sort_keys=True, default=str)
        made.setdefault(key, []).append(run)
        facts[key] = told
    names: dict[str, list[Path]] = {}
    for (name, text), members in made.items():
        others = [facts[key] for key in made if key[0] == name]
        names[f"{name}{_differences(facts[name, text], others)}"] = members
    return names


def config_of(run: Path) -> Mapping[str, Any]:
    """Return what a run's config.json holds; empty where there is none."""
    file = run / "config.json"
    config: Any = read_json(file) if file.is_file() else {}
    return config if isinstance(config, dict) else {}


def name_of(run: Path, config: Mapping[str, Any]) -> str:
    """Return the run's algorithm and environment, or its folder's name without time and seed."""
    if {"algo", "env"} <= config.keys():
        return f"{config['algo']} on {config['env']}"
    return re.sub(r"[-_](seed)?[-_]?\d[\d\-_T]*$", "", run.resolve().name) or run.name


def _facts(config: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield the settings of a run that change what is learned: the environment's, the trainer's, the agents'."""
    for name, value in _mapping(config.get("env_args")).items():
        yield name, value
    trainer = _mapping(config.get("trainer"))
    for name in LEARNING:
        if name in trainer:
            yield name, trainer[name]
    seats = config.get("seats")
    for seat in map(_mapping, seats if isinstance(seats, list) else ()):
        player = seat.get("player")
        yield f"{player} learns", seat.get("learns")
        for name, value in _mapping(_mapping(seat.get("agent")).get("settings")).items():
            yield f"{player}.{name}", value


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _differences(facts: Mapping[str, Any], others: Sequence[Mapping[str, Any]]) -> str:
    """Return what sets a kind apart from others of its name, such as " (learning_rate=0.001)", or ""."""
    told: dict[str, None] = {}
    for name in facts:
        values = {json.dumps(other.get(name), sort_keys=True, default=str) for other in others}
        if len(values) > 1:
            told[f"{name.rpartition('.')[2]}={facts[name]}"] = None  # one entry for all players of equal settings
    listed = list(told)
    more = ["..."] if len(listed) > MOST_TOLD else []
    return f" ({', '.join([*listed[:MOST_TOLD], *more])})" if listed else ""
