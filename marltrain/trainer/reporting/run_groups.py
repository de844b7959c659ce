"""Runs of one plot: search in folders, grouping of runs that differ only in seeds, and names of the groups."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from marltrain.core.errors import SaveError
from marltrain.trainer.reporting.config_file import CONFIG, read_config
from marltrain.trainer.reporting.differences import PLAYERS, differences
from marltrain.trainer.reporting.history import TESTS_FILE

LOGGER = logging.getLogger("marltrain")
LEARNING = ("num_train_envs", "batch_size", "update_freq", "shared_memory", "team_reward")
"""Trainer settings that affect learning."""


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


@dataclass(frozen=True)
class Kind:
    """Runs that differ only in their seeds.

    algo: the algorithm, or the name of a folder without config.json.  env: the environment, "" without config.json.
    told: the settings in which the runs differ from others of the same algorithm and environment, in words; "" if in
    none.
    """

    algo: str
    env: str
    told: str
    runs: tuple[Path, ...]

    @property
    def subject(self) -> str:
        """Algorithm and environment."""
        return f"{self.algo} on {self.env}" if self.env else self.algo

    @property
    def name(self) -> str:
        """Algorithm, environment and settings."""
        return f"{self.subject}{f' ({self.told})' if self.told else ''}"


def kinds(runs: Sequence[Path]) -> list[Kind]:
    """Return groups of runs that differ only in their seeds; their names differ."""
    members: dict[tuple[str, str, str], list[Path]] = {}
    facts: dict[tuple[str, str, str], Mapping[str, Any]] = {}
    for run in runs:
        config = config_of(run)
        known = _facts(config)
        key = *name_of(run, config), json.dumps(known, sort_keys=True, default=str)
        members.setdefault(key, []).append(run)
        facts[key] = known
    data: dict[tuple[str, str, str], str] = {}
    for subject in dict.fromkeys(key[:2] for key in members):
        keys = [key for key in members if key[:2] == subject]
        texts = differences([facts[key] for key in keys])
        for i, (key, text) in enumerate(zip(keys, texts, strict=True)):
            same = texts[:i].count(text)  # players of different names in environments of equal arguments
            data[key] = f"{text} ({same + 1})".lstrip() if same else text
    return [Kind(key[0], key[1], data[key], tuple(members[key])) for key in members]


def shown_names(kinds: Sequence[Kind]) -> tuple[str, list[str]]:
    """Return what several groups have in common, in words, and the names that tell them apart.

    One group has nothing in common with others: its name is all.
    """
    algos, envs = {kind.algo for kind in kinds}, {kind.env for kind in kinds}
    if len(kinds) == 1 or "" in envs:
        return "", [kind.name for kind in kinds]
    if len(algos) == len(envs) == 1:
        return kinds[0].subject, [kind.told for kind in kinds]
    if len(envs) == 1:
        return kinds[0].env, [f"{kind.algo}{f', {kind.told}' if kind.told else ''}" for kind in kinds]
    if len(algos) == 1:
        return kinds[0].algo, [f"{kind.env}{f', {kind.told}' if kind.told else ''}" for kind in kinds]
    return "", [kind.name for kind in kinds]


def config_of(run: Path) -> Mapping[str, Any]:
    """Return the content of a run's config.json, or an empty mapping without this file."""
    file = run / CONFIG
    return read_config(file) if file.is_file() else {}


def name_of(run: Path, config: Mapping[str, Any]) -> tuple[str, str]:
    """Return algorithm and environment of a run, or else the name of its folder without time and seed, and ""."""
    if {"algo", "env"} <= config.keys():
        return str(config["algo"]), str(config["env"])
    return re.sub(r"[-_](seed)?[-_]?\d[\d\-_T]*$", "", run.resolve().name) or run.name, ""


def _facts(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of a run that affect learning and tests: of environment, trainer and players."""
    trainer, metric = _mapping(config.get("trainer")), _mapping(config.get("reward_metric"))
    listed = config.get("seats")
    seats = [_mapping(seat) for seat in listed] if isinstance(listed, list) else []
    players: dict[str, Any] = {}
    for seat in seats:
        agent = _mapping(seat.get("agent"))
        own = {"algo": agent.get("type"), "learns": seat.get("learns")}
        players[str(seat.get("player"))] = {**own, **_mapping(agent.get("settings"))}
    held = [str(seat.get("agent_index")) for seat in seats if "agent_index" in seat]
    return {
        "env_args": _mapping(config.get("env_args")),
        "trainer": {
            **{name: trainer[name] for name in LEARNING if name in trainer},
            "reward_metric": metric.get("name"), "share": len(set(held)) < len(held), "tests": _tests(config),
        },
        PLAYERS: players,
    }  # fmt: skip


def _tests(config: Mapping[str, Any]) -> str | None:
    """Return the line-up of a run's tests in words: "player_1+random" for its agent and a random one; None without."""
    tests, seats = _mapping(config.get("tests")), config.get("seats")
    entries, players = tests.get("agents"), seats if isinstance(seats, list) else []
    if not isinstance(entries, list):
        return None
    name_of_agent: dict[str, str] = {}
    for seat in map(_mapping, players):
        name_of_agent.setdefault(str(seat.get("agent_index")), str(seat.get("player")))
    words = [
        name_of_agent.get(str(entry.get("agent_index")), str(entry.get("type")).removesuffix("Agent").lower())
        for entry in map(_mapping, entries)
    ]
    return "+".join(words) + (", in turns" if tests.get("rotate") else "")


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}
