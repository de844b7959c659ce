"""compare: groups of runs, by interquartile means, performance profiles and probabilities of improvement."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from marltrain.core.errors import ConfigError, did_you_mean, shown, warn
from marltrain.core.layout import Array
from marltrain.storage.files import made_folder, path_of
from marltrain.tools.comparing.report import write_report
from marltrain.tools.comparing.result import Comparison
from marltrain.tools.comparing.runs import METRIC, SCORES, ComparedRun, groups_of
from marltrain.tools.statistics import RESAMPLES, difference, estimate, improvement, profile, verdict
from marltrain.trainer.reporting.curves import common_points

if TYPE_CHECKING:
    import pandas as pd

Range = tuple[float, float]
Grouped = Mapping[str, Mapping[str, Sequence[ComparedRun]]]
ALL = "all"
"""Name in the table of the scores on all environments."""
THRESHOLDS, POINTS = 101, 50
"""Number of thresholds of a profile, and maximum number of points of a curve."""
SHORTEST = 0.9
"""Least number of env steps of a run, as a fraction of the longest one; below, a warning is given."""


def compare(
    runs: Sequence[str | Path] | Mapping[str, Sequence[str | Path]],
    *,
    metric: str = METRIC,
    score: str = "last",
    ranges: Range | Mapping[str, Range] | None = None,
    resamples: int = RESAMPLES,
    out: str | Path | None = None,
) -> Comparison:
    """Compare groups of runs by the scores of their seeds, as Agarwal et al. (2021, arXiv:2108.13264) recommend.

    runs: folders of runs, or {group: folders}; a folder that is no run is replaced by the runs in it. In a list, runs
        form groups by algorithm, and by the settings that differ.
    metric: column of the runs' tables of tests.
    score: of a run: "last", the value of its last test; "best", the largest value, which favors noisy runs; "mean",
        the mean of all tests.
    ranges: (low, high), or {environment: (low, high)}: scores become (score - low) / (high - low). Without it they are
        not normalized; several environments need it.
    resamples: of the bootstrap.  out: the report, one HTML file with its pictures in it; None: no report.

    Raises ConfigError for groups on different environments, runs of different metrics, fewer than 3 seeds, equal seeds
    in a group, or if `rliable` is not installed (`pip install "marltrain[compare]"`); SaveError for a folder that is no
    run.
    """
    if score not in SCORES:
        raise ConfigError(f"score must be one of {', '.join(SCORES)}, got {shown(score)}.{did_you_mean(score, SCORES)}")
    if type(resamples) is not int or resamples < 1:
        raise ConfigError(f"resamples must be an integer of at least 1, got {shown(resamples)}")
    groups = groups_of(runs, metric)
    tasks = list(next(iter(groups.values())))
    scales = _scales(groups, tasks, ranges)
    if out is not None:
        made_folder(path_of(out, "out").parent, "out")
    _warn_of_lengths(groups)
    scores = {name: _scores(group, score, scales) for name, group in groups.items()}
    measured = {run.measure: run.measured for group in groups.values() for held in group.values() for run in held}
    compared = Comparison(
        {name: {task: [run.folder for run in held] for task, held in group.items()} for name, group in groups.items()},
        scores, _table(groups, scores, resamples, normalized=ranges is not None), _pairs(scores, resamples),
        _profiles(scores, resamples), _curves(groups, scales, resamples), "; ".join(measured.values()), score,
        ranges is not None,
    )  # fmt: skip
    if out is not None:
        write_report(compared, out)
    return compared


def _scales(groups: Grouped, tasks: Sequence[str], ranges: Any) -> dict[str, Range]:
    """Return the range of each task, (0, 1) without ranges; raises ConfigError for wrong or missing ranges."""
    envs = {task: held[0].env for group in groups.values() for task, held in group.items()}
    if ranges is None:
        if len(tasks) > 1:
            raise ConfigError(f"runs of different environments, {', '.join(tasks)}: their scores have different units. "
                              "Compare one environment at a time, or give the range of each, such as "
                              f"ranges={{{tasks[0]!r}: (low, high), ...}} (--range {tasks[0]}=LOW,HIGH)")  # fmt: skip
        return dict.fromkeys(tasks, (0.0, 1.0))
    given = dict(ranges) if isinstance(ranges, Mapping) else dict.fromkeys(tasks, ranges)
    known = [*tasks, *envs.values()]
    for name, limits in given.items():
        if name not in known:
            raise ConfigError(f"ranges names {name!r}, and no run is of it.{did_you_mean(name, known)} "
                              f"There are {', '.join(tasks)}")  # fmt: skip
        pair = isinstance(limits, tuple | list) and len(limits) == 2
        if not (pair and np.isfinite(limits).all() and limits[0] < limits[1]):
            raise ConfigError(f"ranges: that of {name} must be (low, high) with low < high, got {shown(limits)}")
    scales = {task: given.get(task, given.get(envs[task])) for task in tasks}
    for task, scale in scales.items():
        if scale is None:
            raise ConfigError(f"ranges must name every environment, and {task} is missing")
    return {task: (float(scale[0]), float(scale[1])) for task, scale in scales.items() if scale is not None}


def _warn_of_lengths(groups: Grouped) -> None:
    """Warn if runs end long before others on the same task, since their scores are of less training."""
    for task in next(iter(groups.values())):
        ends = {run.folder: float(run.steps[-1]) for group in groups.values() for run in group[task]}
        shortest, longest = min(ends, key=lambda run: ends[run]), max(ends.values())
        if ends[shortest] < SHORTEST * longest:
            warn(f"the last tests of runs on {task} lie between {ends[shortest]:,.0f} ({shortest}) and {longest:,.0f} "
                 "env steps: scores of runs that trained for different times are compared")  # fmt: skip


def _scores(group: Mapping[str, Sequence[ComparedRun]], score: str, scales: Mapping[str, Range]) -> Array:
    """Return the scores of a group, [runs, tasks] float64."""
    columns = [[_scaled(SCORES[score](run.values), scales[task]) for run in held] for task, held in group.items()]
    return np.array(columns, float).T


def _scaled(values: Any, scale: Range) -> Any:
    low, high = scale
    return (values - low) / (high - low)


def _table(groups: Grouped, scores: Mapping[str, Array], resamples: int, *, normalized: bool) -> pd.DataFrame:
    import pandas as pd

    rows = []
    for name, group in groups.items():
        parts = {task: scores[name][:, [i]] for i, task in enumerate(group)}
        for task, part in (parts if len(parts) == 1 else {ALL: scores[name], **parts}).items():
            runs = [run for held in group.values() for run in held if task in (ALL, run.task)]
            iqm, low, high = (float(value[0]) for value in estimate(part[..., None], resamples))
            means = part.mean(0)
            rows.append({
                "group": name, "environment": task, "runs": len(runs),
                "env_steps": int(np.median([run.steps[-1] for run in runs])), "iqm": iqm, "low": low, "high": high,
                "median": float(np.median(means if task == ALL else part)), "mean": float(means.mean()),
                **({"optimality_gap": float(1 - np.minimum(part, 1).mean())} if normalized else {}),
            })  # fmt: skip
    return pd.DataFrame(rows)


def _pairs(scores: Mapping[str, Array], resamples: int) -> pd.DataFrame:
    import pandas as pd

    rows = []
    for first, second in itertools.combinations(scores, 2):
        found = {
            "probability": improvement(scores[first], scores[second], resamples),
            "difference": difference(scores[first], scores[second], resamples),
        }
        row: dict[str, Any] = {"first": first, "second": second}
        for name, (value, low, high) in found.items():
            row |= {name: float(value[0]), f"{name}_low": float(low[0]), f"{name}_high": float(high[0])}
        rows.append({**row, "verdict": verdict(row["difference_low"], row["difference_high"])})
    return pd.DataFrame(rows)


def _profiles(scores: Mapping[str, Array], resamples: int) -> pd.DataFrame:
    import pandas as pd

    values = np.concatenate([one.ravel() for one in scores.values()])
    margin = 0.02 * float(np.ptp(values)) or 0.5
    thresholds = np.linspace(values.min() - margin, values.max() + margin, THRESHOLDS)
    frames = []
    for name, one in scores.items():
        share, low, high = profile(one, thresholds, resamples)
        frames.append(pd.DataFrame(
            {"group": name, "threshold": thresholds, "share": share, "low": low, "high": high}))  # fmt: skip
    return pd.concat(frames, ignore_index=True)


def _curves(groups: Grouped, scales: Mapping[str, Range], resamples: int) -> pd.DataFrame:
    import pandas as pd

    frames = []
    for name, group in groups.items():
        steps = common_points([run.steps for held in group.values() for run in held], POINTS)
        values = np.array([
            [_scaled(np.interp(steps, run.steps, run.values), scales[task]) for run in held]
            for task, held in group.items()
        ])  # fmt: skip
        iqm, low, high = estimate(values.swapaxes(0, 1), resamples)
        frames.append(pd.DataFrame({"group": name, "env_steps": steps, "iqm": iqm, "low": low, "high": high}))
    return pd.concat(frames, ignore_index=True)
