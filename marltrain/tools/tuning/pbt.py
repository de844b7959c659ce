"""Population-based training (Jaderberg et al. 2017, arXiv:1711.09846) within one learner.

All members are trained at once. After every test, members of the worst fifth copy the weights and settings of members
of the best fifth, and change the settings. The weights move from row to row of a learner.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from marltrain.core.errors import AgentError, ConfigError, SaveError
from marltrain.core.remedies import written
from marltrain.core.seeds import child_seed, generator, restored, state_of
from marltrain.core.settings import Range, checked_arguments, setting, validate
from marltrain.envs import probe
from marltrain.policies.agents.agent import Agent
from marltrain.policies.agents.algorithm_agent import LearningAgent
from marltrain.policies.batches.batch import AgentState
from marltrain.storage.checks import counted, of_type
from marltrain.tools.search.candidates import Candidate, described, new_agents
from marltrain.tools.search.saved_search import search_in
from marltrain.tools.search.train_all import fits_population, train_all
from marltrain.tools.search.training import Plan, Training, failed_of
from marltrain.tools.tuning.space import Space
from marltrain.trainer.settings import RewardMetric

if TYPE_CHECKING:
    import pandas as pd

FACTORS = (0.8, 1.25)
"""Factors by which a setting changes (that of 1 - value, on the scale "complement")."""
ROUNDING = 1e-9
"""Share of a range's limits by which rounded values may exceed them."""


@dataclass(frozen=True, kw_only=True)
class PBTSettings:
    """Settings of `population_based_training`, which explains them."""

    members: int = setting(16, doc="agents that are trained at once", low=4)
    steps: int = setting(50_000, doc="env steps of each member", low=1)
    every: int | None = setting(None, doc="env steps between tests", low=1)
    share: float = setting(0.2, doc="share of the members that copy others", above=0, high=0.5)
    seed: int = setting(0, doc="seed", low=0)


@dataclass(frozen=True, eq=False)
class PBTResult:
    """Result of `population_based_training`.

    member: number of the best member.  agents: its agents, one per player.
    metric: that of its last test, the largest of all members.  settings: its settings at the end.
    table: a row for each member and test: `member`, `env_steps`, `metric`, its settings until then, and `copied`, the
      member whose weights and settings it then took over; -1: none.
    """

    member: int
    agents: list[Agent]
    metric: float
    settings: dict[str, float]
    table: pd.DataFrame

    def plot(self, path: str | Path) -> Path:
        """Draw the metric and the settings of all members over env steps; return the path of the picture."""
        from marltrain.tools.tuning.plots import draw_population  # loads matplotlib

        return draw_population(self.table, self.member, Path(path))

    def __repr__(self) -> str:
        """Return the number of members, and the metric and settings of the best one, in a few lines."""
        settings = ", ".join(f"{name}={value:.4g}" for name, value in self.settings.items())
        return (
            f"{self.table['member'].nunique()} members, {int((self.table['copied'] >= 0).sum())} copies\n"
            f"best member: {self.member}, metric {self.metric:.6g} in its last test, the largest of all members\n"
            f"its settings at the end: {settings}"
        )


@checked_arguments
def population_based_training(
    name: Any,
    env: Any,
    space: Mapping[str, Any] | None = None,
    *,
    members: int = 16,
    steps: int = 50_000,
    every: int | None = None,
    share: float = 0.2,
    seed: int = 0,
    env_args: Mapping[str, Any] | None = None,
    reward_metric: RewardMetric = None,
    trainer: Mapping[str, Any] | None = None,
    resume: str | Path | None = None,
) -> PBTResult:
    """Train a population whose settings change in the course of training; return its best agents.

    space: setting -> a value (fixed), or (low, high) or a `Range` of a number that agents of one learner may hold
      differently; by default those of the algorithm, see `tune`. The members begin with random settings.
    members: their number.  steps: env steps of each.  every: env steps between tests; None: a tenth.
    share: after each test but the last, this share of the members, the worst ones, copies weights, optimizer state and
      settings from as many of the best ones. The settings are then multiplied by 0.8 or 1.25, within their ranges.
      Decisions that a member made before it copied another are in no later rollout.
    name: see `tune`; settings that it holds are fixed, unless `space` holds a range for them.
    env, env_args, reward_metric, trainer: see `tune`.  seed: equal seeds give equal results.
    resume: a folder in which the population is saved after every test. The same call goes on with it after an interrupt
      or the end of the process, with equal results; one that is finished is not trained again. None: it is not saved.

    The metric is the largest of many: test the agents again, as with `DecentralizedTrainer.test`.
    Raises ConfigError for a wrong argument, and AgentError for agents that cannot be trained on copies of the
    environment or if all members fail. An error of the environment or of an agent ends the population, and is raised.
    Raises ConfigError for a folder with a population of other settings, and SaveError for a damaged one.
    """
    options = PBTSettings(members=members, steps=steps, every=every, share=share, seed=seed)
    validate(options, "population_based_training")
    found = Space.of(name, space or {}, per_row=True)
    if found.choices or found.whole:
        raise ConfigError("population_based_training: settings are searched in ranges of numbers that are not whole")
    tool = "population_based_training"
    plan = Plan.of(tool, env, env_args, options.steps, reward_metric, trainer, options.every)
    if (between := plan.settings["test_freq_steps"]) >= options.steps:
        raise ConfigError(
            f"{tool}: {between} env steps between tests, of {options.steps}: no member would copy another, which needs "
            f"a test before the last one. Give a smaller number: {written('every=...', '--test-freq-steps INT')}"
        )
    population, players = _Population(found, options), probe(plan.source).names
    candidates = [
        Candidate(_member(m, own), own, partial(new_agents, name, env, env_args, {}, {**found.fixed, **own}))
        for m, own in enumerate(population.settings)
    ]
    seeds = [child_seed(options.seed, "member", m) for m in range(options.members)]
    trainings = [
        Training(m, seeds[m], partial(candidate.agents, seeds[m], players)) for m, candidate in enumerate(candidates)
    ]
    first = trainings[0].make()
    population.check_changes(first)
    if not fits_population(first):
        raise AgentError(
            "population_based_training: agents of a team, that learn from each other's rows, or with global states, "
            "have no copies"
        )
    if plan.settings.get("shared_memory"):
        raise ConfigError(
            "population_based_training: trainer={'shared_memory': True} would mix the rows of all members: leave it out"
        )
    about = {
        "tool": tool, "algorithm": described(name), "space": found.described(),
        "order": list(found.ranges), **plan.about(), "members": options.members, "share": options.share,
        "seed": options.seed,
    }  # fmt: skip
    with search_in(resume, about, agents=True) as search:
        train_all(plan, trainings, population.after_test, alone=False, search=search, memory=population)
    failed_of(tool, trainings, [candidate.name for candidate in candidates])
    best = max((t for t in trainings if not t.error), key=lambda training: training.readings[-1].metric)
    last = best.readings[-1].metric
    chosen = population.settings[best.candidate]
    return PBTResult(best.candidate, best.agents, last, chosen, population.table())


def _member(number: int, settings: Mapping[str, float]) -> str:
    return f"member {number} ({', '.join(f'{name}={value:.4g}' for name, value in settings.items())})"


class _Population:
    """The settings of all members, and their changes.

    settings: of each member.  rows: what `table` shows.
    """

    def __init__(self, space: Space, options: PBTSettings) -> None:
        self.ranges = space.ranges
        self.options, self.rng = options, generator(options.seed, "pbt")
        self.settings = [{name: self._drawn(own) for name, own in self.ranges.items()} for _ in range(options.members)]
        self.rows: list[dict[str, Any]] = []

    def check_changes(self, agents: Sequence[Agent]) -> None:
        """Raise ConfigError if a setting that is searched cannot change in training."""
        for agent in agents:
            if isinstance(agent, LearningAgent):
                for name, value in self.settings[0].items():
                    try:
                        setattr(agent.hyper, name, value)
                    except ConfigError as error:
                        raise ConfigError(f"population_based_training: {name} cannot be searched: {error}") from error

    def after_test(self, going: Sequence[Training]) -> None:
        """Record a test; let the worst members copy the best ones, unless it is the last test."""
        rows = {}
        for training in going:
            m, test = training.candidate, training.readings[-1]
            rows[m] = {"member": m, "env_steps": test.env_steps, "metric": test.metric, **self.settings[m]}
            rows[m]["copied"] = -1
        self.rows += rows.values()
        step = going[0].readings[-1].env_steps if going else 0
        if not going or step == 0 or step >= self.options.steps:
            return
        order = sorted(going, key=lambda training: training.readings[-1].metric)
        count = min(len(order) // 2, max(1, round(self.options.share * len(order))))
        for worst in order[:count]:
            donor = order[len(order) - 1 - int(self.rng.integers(count))]
            rows[worst.candidate]["copied"] = donor.candidate
            self.settings[worst.candidate] = {
                name: self._changed(self.ranges[name], value) for name, value in self.settings[donor.candidate].items()
            }
            copy_rows(donor.agents, worst.agents, self.settings[worst.candidate])
            worst.replaced = True

    def state_dict(self) -> dict[str, Any]:
        """Return the settings of all members now, the rows of the table, and the state of the generator."""
        return {"settings": self.settings, "rows": self.rows, "rng": state_of(self.rng)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore what `state_dict` returned; raises SaveError for other members or settings out of their ranges."""
        settings = of_type("settings", state["settings"], list)
        if len(settings) != self.options.members:
            raise SaveError(f"settings of {len(settings)} members are saved, and there are {self.options.members}")
        self.settings = [self._checked(own) for own in settings]
        self.rows = [self._row(row) for row in of_type("rows", state["rows"], list)]
        self.rng = restored(state["rng"])

    def _row(self, row: Any) -> dict[str, Any]:
        """Return a row of the table from a state."""
        most = self.options.members - 1
        names = ("member", "env_steps", "metric", *self.ranges, "copied")
        if tuple(of_type("a row", row, dict)) != names:
            raise SaveError(f"a row must hold {', '.join(names)}, got {', '.join(row):.80}")
        self._checked({name: row[name] for name in self.ranges})
        counted("member", row["member"], high=most)
        counted("copied", row["copied"], -1, most)
        counted("env_steps", row["env_steps"])
        if math.isnan(of_type("metric", row["metric"], float)):
            raise SaveError("metric of a row must be a number, got nan")
        return dict(row)

    def _checked(self, settings: Any) -> dict[str, float]:
        """Return the settings of a member from a state."""
        if tuple(of_type("settings", settings, dict)) != tuple(self.ranges):
            raise SaveError(f"a member must have the settings {', '.join(self.ranges)}, got {', '.join(settings):.80}")
        for name, own in self.ranges.items():
            room = ROUNDING * max(abs(own.low), abs(own.high))
            if not own.low - room <= of_type(name, settings[name], float) <= own.high + room:
                raise SaveError(f"{name} must be from {own.low:g} to {own.high:g}, got {settings[name]!r}")
        return dict(settings)

    def table(self) -> Any:
        """Return the table of `PBTResult`."""
        import pandas as pd

        return pd.DataFrame(self.rows)

    def _drawn(self, own: Range) -> float:
        if own.scale == "linear":
            return float(self.rng.uniform(own.low, own.high))
        if own.scale == "log":
            return float(np.exp(self.rng.uniform(np.log(own.low), np.log(own.high))))
        return float(1 - np.exp(self.rng.uniform(np.log(1 - own.high), np.log(1 - own.low))))

    def _changed(self, own: Range, value: float) -> float:
        """Return a value multiplied by one of `FACTORS`, within its range."""
        factor = FACTORS[int(self.rng.integers(len(FACTORS)))]
        changed = 1 - (1 - value) * factor if own.scale == "complement" else value * factor
        return float(np.clip(changed, own.low, own.high))


def copy_rows(donors: Sequence[Agent], agents: Sequence[Agent], settings: Mapping[str, float]) -> None:
    """Give agents the weights and optimizer state of others, and settings; random numbers continue as before."""
    for donor, agent in zip(donors, agents, strict=True):
        if not (isinstance(donor, LearningAgent) and isinstance(agent, LearningAgent)):
            continue
        own, theirs = agent.learner_.export(agent.row), donor.learner_.export(donor.row)
        agent.learner_.load(agent.row, AgentState(own.info, theirs.arrays))
        for name, value in settings.items():
            setattr(agent.hyper, name, value)
