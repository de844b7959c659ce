"""Runs of one plot: search in folders, grouping of runs that differ only in seeds, and names of the groups."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from marltrain.errors import SaveError
from marltrain.trainer.reporting.config_file import CONFIG, read_config
from marltrain.trainer.reporting.history import TESTS_FILE

LOGGER = logging.getLogger("marltrain")
LEARNING = ("num_train_envs", "batch_size", "update_freq", "shared_memory", "team_reward")
"""Trainer settings that affect learning."""
MOST_TOLD = 3
"""Maximum number of differing settings in the name of a curve."""


def found(folders: Sequence[Path]) -> list[Path]:
    """Return the folders of runs; a folder that is not a run is replaced by the runs inside it, up to two levels deep.

    Raises SaveError for a folder that is not a run and contains none.
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
    """Return the runs with at least one test; other runs are logged. Raises SaveError if no run has a test."""
    import pyarrow.parquet as pq

    kept = []
    for run in runs:
        try:
            empty = pq.ParquetFile(run / TESTS_FILE).metadata.num_rows == 0
        except (OSError, ValueError) as error:
            raise SaveError(f"{run / TESTS_FILE}: not a table of tests, or damaged: {error}") from error
        if empty:
            LOGGER.warning("%s holds no test: it is not plotted", run)
        else:
            kept.append(run)
    if not kept:
        raise SaveError(f"{runs[0] / TESTS_FILE}: holds no test, so there is nothing to plot")
    return kept


def kinds(runs: Sequence[Path]) -> dict[str, list[Path]]:
    """Return groups of runs that differ only in their seeds, by name.

    Groups of the same algorithm and environment get their differing settings appended to the name.
    """
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
    """Return the content of a run's config.json, or an empty mapping without this file."""
    file = run / CONFIG
    return read_config(file) if file.is_file() else {}


def name_of(run: Path, config: Mapping[str, Any]) -> str:
    """Return the algorithm and environment of a run, or else the name of its folder without time and seed."""
    if {"algo", "env"} <= config.keys():
        return f"{config['algo']} on {config['env']}"
    return re.sub(r"[-_](seed)?[-_]?\d[\d\-_T]*$", "", run.resolve().name) or run.name


def _facts(config: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield the settings of a run that affect learning: of the environment, the trainer and the agents."""
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


def _in_words(value: Any) -> str:
    """Return a setting of a config.json as it is written in a file of a run: "linear(0.001, 0, 500)" for a schedule."""
    if isinstance(value, dict):
        inner = {name: _in_words(held) for name, held in value.items()}
        kind = inner.pop("kind", inner.pop("type", None))
        if kind is None:
            return f"({', '.join(f'{name}={held}' for name, held in inner.items())})"
        return f"{kind}({', '.join(inner.values())})"
    if isinstance(value, list):
        return f"({', '.join(map(_in_words, value))})"
    return str(value)


def _differences(facts: Mapping[str, Any], others: Sequence[Mapping[str, Any]]) -> str:
    """Return the settings that differ from other groups of the name, such as " (learning_rate=0.001)", or ""."""
    told: dict[str, None] = {}
    for name in facts:
        values = {json.dumps(other.get(name), sort_keys=True, default=str) for other in others}
        if len(values) > 1:
            shown = f"{name.rpartition('.')[2]}={_in_words(facts[name])}"
            told[shown] = None  # one entry for all players of equal settings
    listed = list(told)
    more = ["..."] if len(listed) > MOST_TOLD else []
    return f" ({', '.join([*listed[:MOST_TOLD], *more])})" if listed else ""
