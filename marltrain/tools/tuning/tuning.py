"""`tune`: search settings with Optuna, and train the best ones again with fresh seeds."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from marltrain.core.errors import AgentError, ConfigError, WorkerError, error_text, printable, warn
from marltrain.core.seeds import child_seed
from marltrain.core.settings import checked_arguments, validate
from marltrain.processes.children import start, start_context
from marltrain.storage.json_files import to_json
from marltrain.tools.run_files.writing import write_settings
from marltrain.tools.search.candidates import is_pair, settings_of_entries
from marltrain.tools.search.training import Plan
from marltrain.tools.tuning.space import Space
from marltrain.tools.tuning.study import Study, TuneSettings
from marltrain.tools.tuning.trials import Subject, evaluate, run_trials
from marltrain.trainer.evaluating.evaluation import bootstrap
from marltrain.trainer.settings import RewardMetric
from marltrain.trainer.text_values import as_text

if TYPE_CHECKING:
    import pandas as pd

ADVICE = "use jobs=1"


@dataclass(frozen=True, eq=False)
class TuneResult:
    """Result of `tune`.

    settings: the best settings, {"trainer": {...}, "agents": {...}}, as `tuned` returns them.
    metric, interval: of the best settings trained again with fresh seeds: the mean over seeds and its 95 % bootstrap
      interval; nan without fresh seeds. The metric of the best trial is larger than what its settings reach on average,
      because it is the largest of many.
    metrics: the metric of each fresh seed.
    table: a row for each trial: `trial`, `state`, `metric`, its parameters, `error`.
    study: the study of Optuna.
    """

    settings: dict[str, dict[str, Any]]
    metric: float
    interval: tuple[float, float]
    metrics: tuple[float, ...]
    table: pd.DataFrame
    study: Any

    def save(self, path: str | Path) -> Path:
        """Write the settings into a file for `marltrain train --settings FILE`, with the metric of the fresh seeds.

        Raises ConfigError for a value that no file can hold; `tune` warns of it before the first trial.
        """
        low, high = self.interval
        comment = f"{len(self.table)} trials of study {self.study.study_name!r}\n"
        comment += f"trained again with {len(self.metrics)} fresh seeds: metric {self.metric:.6g}, "
        comment += f"95 % interval {low:.6g} to {high:.6g}"
        measured = {"metric": self.metric, "interval": [low, high], "seeds": len(self.metrics)}
        tables = {**self.settings, **({"evaluation": measured} if self.metrics else {})}
        return write_settings(path, tables, comment=comment if self.metrics else "not trained again with fresh seeds")

    def plot(self, folder: str | Path) -> list[Path]:
        """Draw history.png, slices.png and importances.png into a folder; return the paths of those that were drawn."""
        from marltrain.tools.tuning.plots import draw_study  # loads matplotlib

        return draw_study(self.study, self.table, Path(folder))

    def __repr__(self) -> str:
        """Return the number of trials, the metric of the fresh seeds and the best settings, in a few lines."""
        states = ", ".join(f"{count} {state}" for state, count in self.table["state"].value_counts().items())
        agents = ", ".join(f"{name}={value}" for name, value in self.settings["agents"].items())
        low, high = self.interval
        fresh = f"fresh seeds: metric {self.metric:.6g} (95 %: {low:.6g} to {high:.6g})"
        return f"{len(self.table)} trials: {states}\nbest settings: {agents}\n{fresh}"


@checked_arguments
def tune(
    name: Any,
    env: Any,
    space: Mapping[str, Any] | None = None,
    *,
    trials: int = 50,
    steps: int = 50_000,
    seeds: int = 1,
    population: int = 1,
    jobs: int = 1,
    storage: str | None = None,
    study: str = "tune",
    seed: int = 0,
    pruner: str = "median",
    warmup_trials: int = 5,
    warmup_steps: int | None = None,
    fresh_seeds: int = 10,
    final: float = 0.25,
    env_args: Mapping[str, Any] | None = None,
    reward_metric: RewardMetric = None,
    trainer: Mapping[str, Any] | None = None,
    progress: bool = True,
) -> TuneResult:
    """Search settings of agents with Optuna (TPE), and train the best ones again with fresh seeds.

    name: algorithm, as in `make_agents`. Settings that it holds, as a pair does, are fixed, unless `space` holds a
      range or choices for them. A mapping or list of entries, one per player, has no default ranges.
    env, env_args, reward_metric: as in `DecentralizedTrainer`; trainer: its further arguments.
    space: setting -> a value (fixed), (low, high) or a `Range`, or a list of choices. Settings that neither `space` nor
      `name` holds are searched in the default ranges of the algorithm, if they have one (`setting(search=)`); others
      keep their default.
    trials: number of finished trials of the study; failed and pruned ones count.
    steps, seeds: env steps of each training, and trainings of each trial. All trials have the same seeds.
    population: number of trials trained at once. Trials that differ only in numbers are rows of one learner, which is
      faster; then default ranges of other settings are left out. Trials of a population are suggested at the same time.
    jobs: number of processes; name, space, trainer and env must then be picklable.
    storage: database of the study, such as "sqlite:///tune.db"; None: memory. Several calls may share a study: it
      continues until it has `trials` finished trials. Trials of a process that was interrupted are made again. Calls
      that share a study must agree in all but trials, population, jobs and fresh_seeds.
    seed: equal seeds give equal trials with jobs=1, also if the study was interrupted, except with pruner="hyperband".
    pruner: "median" (ends a trial whose best test so far is below the median of the earlier trials at the same env
      step), "hyperband" or "none".
    warmup_trials: trials with random settings; none is pruned before so many are complete.
    warmup_steps: env steps before which none is pruned; None: a fifth of `steps`.
    fresh_seeds: trainings of the best settings with seeds that no trial had; their mean is the result's metric.
    final: the metric of a training is the mean of this share of its tests, the last ones.
    progress: print a line for each finished trial.

    A trial that fails is reported, and the study goes on.
    Raises ConfigError for a wrong argument, and AgentError if no trial is complete.
    """
    options = TuneSettings(
        trials=trials, steps=steps, seeds=seeds, population=population, jobs=jobs, storage=storage, study=study,
        seed=seed, pruner=pruner, warmup_trials=warmup_trials, warmup_steps=warmup_steps, fresh_seeds=fresh_seeds,
        final=final,
    )  # fmt: skip
    validate(options, "tune")
    subject = Subject(
        name, env, env_args, Plan.of("tune", env, env_args, options.steps, reward_metric, trainer),
        Space.of(name, space or {}, per_row=options.population > 1),
        [child_seed(options.seed, "trials", i) for i in range(options.seeds)], options.final,
    )  # fmt: skip
    _warn_of_unsaved(subject)
    with ExitStack() as stack:
        if options.jobs > 1 and storage is None:
            folder = stack.enter_context(tempfile.TemporaryDirectory())
            options = replace(options, storage=f"sqlite:///{folder}/study.db")
        opened = partial(Study, options, int(subject.plan.settings["test_freq_steps"]), _about(subject, options))
        result = opened()
        if options.jobs == 1:
            run_trials(result, subject, options.population, _tell if progress else _nothing)
        else:
            _in_processes(opened, subject, options, progress=progress)
        return _result(result, subject, options)


def _about(subject: Subject, options: TuneSettings) -> dict[str, Any]:
    """Return what a study searches; how many trials there are, and who makes them, may change."""
    plan, names = subject.plan, ("steps", "seeds", "seed", "final", "pruner", "warmup_trials")
    return {
        "env": plan.source.name, "env_args": to_json(dict(plan.source.arguments)), "algorithm": to_json(subject.algo),
        "reward_metric": to_json(plan.reward_metric), "warmup_steps": options.unpruned,
        **{name: getattr(options, name) for name in names},
        **{f"trainer {name}": to_json(value) for name, value in plan.settings.items()},
        **{f"setting {name}": value for name, value in subject.space.described().items()},
    }  # fmt: skip


def _warn_of_unsaved(subject: Subject) -> None:
    """Warn, before the first trial, of values that `TuneResult.save` cannot write."""
    space = subject.space
    own = settings_of_entries(subject.algo)
    values = [*subject.plan.settings.items(), *space.fixed.items()]
    values += [item for settings in own.values() for item in settings.items()]
    values += [(name, option) for name, options in space.choices.items() for option in options]
    for name, value in values:
        try:
            as_text(value, name)
        except ConfigError as error:
            warn(f"tune: the result cannot be saved into a file: {error}")


def _tell(line: str) -> None:
    print(printable(line), flush=True)


def _nothing(line: str) -> None:
    """Report no trials."""


def _result(study: Study, subject: Subject, options: TuneSettings) -> TuneResult:
    """Train the best settings again, and collect the tables."""
    finished, best = study.finished(), study.best()
    table = _table(finished)
    if best is None:
        errors = [error for error in table["error"] if error]
        raise AgentError(
            f"tune: none of {len(finished)} trials is complete. {errors[0] if errors else 'All are pruned'}"
        )
    chosen = subject.space.settings_of(best.params)
    metrics = evaluate(subject, chosen, [child_seed(options.seed, "fresh", i) for i in range(options.fresh_seeds)])
    known = bool(metrics)
    interval = bootstrap(np.array(metrics)) if known else (float("nan"), float("nan"))
    own = subject.algo[1] if is_pair(subject.algo) else {}
    settings = {"trainer": {"steps_per_train": options.steps, **subject.plan.settings}, "agents": {**own, **chosen}}
    return TuneResult(
        settings, float(np.mean(metrics)) if known else float("nan"), interval, tuple(metrics), table, study.study
    )


def _table(trials: list[Any]) -> Any:
    import pandas as pd

    rows = [
        {"trial": trial.user_attrs["slot"], "state": trial.state.name.lower(), "metric": trial.value, **trial.params,
         "error": trial.user_attrs.get("error", "")}
        for trial in trials
    ]  # fmt: skip
    return pd.DataFrame(rows)


def _in_processes(opened: Callable[[], Study], subject: Subject, options: TuneSettings, *, progress: bool) -> None:
    """Make trials in several processes, which share the storage; raise the error of the first one that fails."""
    context = start_context(ADVICE)
    children: dict[Connection, Any] = {}
    try:
        for _ in range(options.jobs):
            try:
                process, pipe = start(context, _job, opened, subject, options.population)
            except (AttributeError, TypeError) as error:  # what pickle raises
                raise ConfigError(
                    f"tune: jobs={options.jobs} sends its arguments to other processes: {error}. {ADVICE}"
                ) from error
            children[pipe] = process
        failure = _first_error(children, _tell if progress else _nothing)
    finally:
        for pipe, process in children.items():
            pipe.close()
            if process.is_alive():
                process.terminate()
            process.join()
    if failure:
        raise WorkerError(f"tune: a process failed: {failure}")


def _first_error(children: Mapping[Connection, Any], tell: Any) -> str:
    """Print the lines of processes as they come until all have ended; return the first error, or "" without one."""
    going = dict(children)
    while going:
        ready: list[Any] = wait(list(going))
        for pipe in ready:
            try:
                kind, text = pipe.recv()
            except EOFError:
                process = going.pop(pipe)
                process.join()
                if process.exitcode != 0:
                    return f"exit code {process.exitcode}"
                continue
            if kind == "error":
                return str(text)
            tell(text)
    return ""


def _job(pipe: Connection, opened: Callable[[], Study], subject: Subject, population: int) -> None:
    """Make trials in a process of its own."""
    try:
        run_trials(opened(), subject, population, lambda line: pipe.send(("line", line)))
    except Exception as error:
        pipe.send(("error", error_text(error)))
