"""The runs of a comparison: their scores and curves, their groups, and the checks that they may be compared."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from marltrain.core.errors import ConfigError, SaveError, did_you_mean
from marltrain.core.layout import Array
from marltrain.storage.files import path_of
from marltrain.trainer.reporting.curves import read_tests
from marltrain.trainer.reporting.history import TESTS_FILE
from marltrain.trainer.reporting.run_groups import config_of, found, kinds

METRIC = "metric"
SCORES: dict[str, Callable[[Array], Any]] = {"last": lambda values: values[-1], "best": np.max, "mean": np.mean}
"""The score of a run -> the function of the values of its tests."""
FEWEST = 3
"""Least number of runs of a group: fewer give no interval that says anything."""


@dataclass(frozen=True, eq=False)
class ComparedRun:
    """A run and the values of its tests.

    task: the environment and its arguments.
    measured: what the values are, in words.  measure: text that is equal for runs with equal measures.
    steps, values: [tests] float64, rising env steps; tests without a value are left out.
    """

    folder: Path
    env: str
    task: str
    seed: Any
    measured: str
    measure: str
    steps: Array
    values: Array


def read_run(folder: Path, metric: str) -> ComparedRun:
    """Read the config and the tests of a run; raises SaveError for other files, ConfigError for a wrong metric."""
    config, tests = config_of(folder), read_tests(folder)
    env, env_args = config.get("env"), config.get("env_args")
    if not isinstance(env, str) or not isinstance(env_args, dict):
        raise SaveError(f"{folder / 'config.json'}: names no environment")
    if metric not in tests.columns:
        names = [name for name in tests.columns if tests[name].dtype.kind in "iuf"]
        raise ConfigError(f"metric: {folder / TESTS_FILE} has no column {metric!r}.{did_you_mean(metric, names)} "
                          f"It has: {', '.join(names)}")  # fmt: skip
    if tests[metric].dtype.kind not in "iuf":
        raise ConfigError(f"metric: column {metric!r} of {folder / TESTS_FILE} holds no numbers")
    kept = tests[tests[metric].notna()]
    if not len(kept):
        raise ConfigError(f"{folder}: no test has a value of {metric!r}, so the run has no score: leave the run out, "
                          "or let it play tests")  # fmt: skip
    arguments = ", ".join(f"{name}={json.dumps(value)}" for name, value in sorted(env_args.items()))
    measured, measure = _measured(kept, metric, config.get("reward_metric"))
    return ComparedRun(
        folder, env, f"{env} ({arguments})" if arguments else env, config.get("seed"), measured, measure,
        kept["env_steps"].to_numpy(float), kept[metric].to_numpy(float),
    )  # fmt: skip


def _measured(tests: Any, metric: str, own: Any) -> tuple[str, str]:
    """Return what the values of a column are, as `measured` and `measure` of a `ComparedRun`.

    The default metric is the mean return of the players that are judged.  own: the `reward_metric` in config.json.
    """
    if metric != METRIC:
        return metric, metric
    if isinstance(own, dict) and {"name", "code"} <= own.keys():
        return f"reward_metric {own['name']} (code {own['code'][:8]})", own["code"]
    if tests["interval_low"].isna().all():
        return "a reward_metric", "a reward_metric"
    mean = f"mean return of {tests['judged'].iloc[-1]}"
    return mean, mean


def groups_of(
    runs: Sequence[str | Path] | Mapping[str, Sequence[str | Path]], metric: str
) -> dict[str, dict[str, list[ComparedRun]]]:
    """Return the runs of each group and task, in order of their seeds: {group: {task: runs}}; see `compare`.

    Raises ConfigError for runs that cannot be compared.
    """
    if not runs or isinstance(runs, str | Path):
        raise ConfigError("compare takes a list of runs, or a mapping from group to runs; got none")
    if isinstance(runs, Mapping):
        named = {name: _runs(folders, metric) for name, folders in runs.items()}
        read = [run for held in named.values() for run in held]
        _check_apart(named)
    else:
        read, named = _runs(runs, metric), {}
    _check_measured(read)
    members = named or _by_label(read)
    grouped = {name: _by_task(held) for name, held in members.items()}
    tasks = list(dict.fromkeys(run.task for run in read))
    for name, group in grouped.items():
        _check_group(name, group, tasks)
    return {name: {task: group[task] for task in tasks} for name, group in grouped.items()}


def _runs(folders: Sequence[str | Path], metric: str) -> list[ComparedRun]:
    """Read runs; a folder that is no run stands for the runs in it."""
    return [read_run(folder, metric) for folder in found([path_of(run, "runs", ConfigError) for run in folders])]


def _check_apart(named: Mapping[str, Sequence[ComparedRun]]) -> None:
    """Raise ConfigError for an empty group and for a run in two groups."""
    taken: dict[Path, str] = {}
    for name, runs in named.items():
        if not runs:
            raise ConfigError(f"group {name!r} names no run")
        for run in runs:
            if run.folder in taken:
                raise ConfigError(
                    f"{run.folder} is in two groups, {taken[run.folder]!r} and {name!r}: a run belongs to one"
                )
            taken[run.folder] = name


def _by_label(runs: Sequence[ComparedRun]) -> dict[str, list[ComparedRun]]:
    """Group runs by algorithm and by the settings that differ on one task; groups of equal label are joined."""
    members: dict[str, list[ComparedRun]] = {}
    for held in _by_task(runs).values():
        by_folder = {run.folder: run for run in held}
        for kind in kinds(list(by_folder)):
            name = f"{kind.algo}{f' ({kind.told})' if kind.told else ''}"
            members.setdefault(name, []).extend(by_folder[folder] for folder in kind.runs)
    return members


def _by_task(runs: Sequence[ComparedRun]) -> dict[str, list[ComparedRun]]:
    tasks: dict[str, list[ComparedRun]] = {}
    for run in runs:
        tasks.setdefault(run.task, []).append(run)
    return {task: sorted(held, key=lambda run: str(run.seed).rjust(20)) for task, held in tasks.items()}


def _check_measured(runs: Sequence[ComparedRun]) -> None:
    """Raise ConfigError if the values of runs on one task are of different things."""
    first: dict[str, ComparedRun] = {}
    for run in runs:
        other = first.setdefault(run.task, run)
        if run.measure != other.measure:
            raise ConfigError(
                f"runs of different metrics cannot be compared: {other.folder} measures {other.measured}, {run.folder} "
                f"measures {run.measured}. Name a column that both tables of tests hold, such as "
                "metric='return/<player>' (--metric)"
            )


def _check_group(name: str, group: Mapping[str, Sequence[ComparedRun]], tasks: Sequence[str]) -> None:
    """Raise ConfigError unless the group has enough runs, of different seeds, and as many of each task."""
    for task in tasks:
        if task not in group:
            raise ConfigError(f"group {name!r} has no run of {task}, and other groups have. Groups are compared on the "
                              f"same environments: it has {', '.join(group)}")  # fmt: skip
    counts = {task: len(held) for task, held in group.items()}
    for task, held in group.items():
        if counts[task] < FEWEST:
            raise ConfigError(f"group {name!r} has {counts[task]} run(s) of {task}, and a comparison needs at least "
                              f"{FEWEST} seeds of each group: train more seeds, or leave the group out")  # fmt: skip
        seeds: dict[Any, Path] = {}
        for run in held:
            if run.seed in seeds:
                raise ConfigError(f"group {name!r} holds seed {run.seed} twice, in {seeds[run.seed]} and {run.folder}: "
                                  "runs of equal seeds are no independent samples. Leave one out, or name the groups "
                                  "(--group NAME=RUN,RUN)")  # fmt: skip
            seeds[run.seed] = run.folder
    if len(set(counts.values())) > 1:
        text = ", ".join(f"{count} of {task}" for task, count in counts.items())
        raise ConfigError(f"group {name!r} has {text}: it needs equal numbers of seeds on all environments")
