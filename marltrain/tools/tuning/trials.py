"""Trials: their trainings, reports to the study, pruning and failures."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from marltrain.core.errors import MarlTrainError, error_text, warn
from marltrain.policies.agents.agent import Agent
from marltrain.tools.search.candidates import new_agents
from marltrain.tools.search.train_all import train_all
from marltrain.tools.search.training import Plan, Training, score_of
from marltrain.tools.tuning.space import Space
from marltrain.tools.tuning.study import SLOT, Study

Tell = Callable[[str], None]


@dataclass(frozen=True, eq=False)
class Subject:
    """What is tuned: the algorithm, its environment, how it is trained, and the space of its settings.

    seeds: the seeds of a trial.  final: share of the tests, the last ones, whose mean is the metric of a training.
    """

    algo: Any
    env: Any
    env_args: Mapping[str, Any] | None
    plan: Plan
    space: Space
    seeds: Sequence[int]
    final: float

    def make(self, settings: Mapping[str, Any], seed: int) -> list[Agent]:
        """Return agents with some settings."""
        return new_agents(self.algo, self.env, self.env_args, {}, settings, seed)

    def metric(self, training: Training) -> float:
        """Return the metric of a training: the mean over its last tests."""
        return score_of(training, self.final)


@dataclass(eq=False)
class _Trial:
    """A trial of the study with its trainings; steps: env steps at which it was reported."""

    trial: Any
    trainings: list[Training]
    pruned: bool = False
    steps: set[int] = field(default_factory=set)


def run_trials(study: Study, subject: Subject, population: int, tell: Tell = lambda line: None) -> None:
    """Claim and make trials until no slot is free, `population` at once.

    tell: called with a line about each finished trial.
    """
    while claimed := study.claim(population, subject.space.suggest):
        try:
            _run(study, subject, claimed, tell)
        except BaseException:
            for trial in _unfinished(study, [trial for trial, _ in claimed]):
                study.interrupted(trial)
            raise


def _unfinished(study: Study, trials: Sequence[Any]) -> list[Any]:
    done = {trial.number for trial in study.finished()}
    return [trial for trial in trials if trial.number not in done]


def _run(study: Study, subject: Subject, claimed: Sequence[tuple[Any, dict[str, Any]]], tell: Tell) -> None:
    """Make claimed trials."""
    running: list[_Trial] = []
    for trial, settings in claimed:
        make = partial(subject.make, settings)
        try:
            make(subject.seeds[0])
        except MarlTrainError as error:  # settings that do not go together
            study.failed(trial, error_text(error))
            tell(_line(trial, f"failed: {error_text(error)}"))
            continue
        trainings = [Training(len(running), seed, partial(make, seed)) for seed in subject.seeds]
        running.append(_Trial(trial, trainings))
    train_all(subject.plan, [t for one in running for t in one.trainings], lambda going: _report(study, running))
    for one in running:
        errors = [training.error for training in one.trainings if training.error]
        if errors:
            study.failed(one.trial, errors[0])
            tell(_line(one.trial, f"failed: {errors[0]}"))
        elif one.pruned:
            study.pruned(one.trial)
            tell(_line(one.trial, f"pruned after {max(one.steps):,} env steps"))
        else:
            metric = float(np.mean([subject.metric(training) for training in one.trainings]))
            study.complete(one.trial, metric)
            tell(_line(one.trial, f"metric {metric:.6g}"))


def _line(trial: Any, outcome: str) -> str:
    chosen = ", ".join(f"{name}={value:.4g}" if isinstance(value, float) else f"{name}={value}"
                       for name, value in trial.params.items())  # fmt: skip
    return f"trial {trial.user_attrs[SLOT]}: {outcome} ({chosen})"


def _report(study: Study, running: Sequence[_Trial]) -> None:
    """Report the tests that all trainings of a trial have played, and prune trials."""
    for one in running:
        if one.pruned or any(training.error for training in one.trainings):
            continue
        played, before = min(len(training.readings) for training in one.trainings), len(one.steps)
        for i in range(played):
            step = one.trainings[0].readings[i].env_steps
            if step in one.steps:
                continue
            one.steps.add(step)
            one.trial.report(float(np.mean([training.readings[i].metric for training in one.trainings])), step)
        if len(one.steps) > before and study.prunes(one.trial):  # not while others are trained after it
            one.pruned = True
            for training in one.trainings:
                training.stopped = True


def evaluate(subject: Subject, settings: Mapping[str, Any], seeds: Sequence[int]) -> list[float]:
    """Train settings with other seeds; return the metric of each training that did not fail, and warn of the others."""
    trainings = [Training(0, seed, partial(subject.make, settings, seed)) for seed in seeds]
    train_all(subject.plan, trainings)
    if failed := [training for training in trainings if training.error]:
        warn(
            f"tune: {len(failed)} of {len(seeds)} trainings with fresh seeds failed; the first one, of seed "
            f"{failed[0].seed}: {failed[0].error}"
        )
    return [subject.metric(training) for training in trainings if not training.error]
