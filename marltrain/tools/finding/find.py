"""Finders: learning rates, optimizers and agents compared by training all candidates at once."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from marltrain.core.errors import ConfigError, printable, shown, warn
from marltrain.core.seeds import MOST_SEED
from marltrain.core.settings import checked_arguments, python_number, setting, validate
from marltrain.envs import probe
from marltrain.tools.finding.comparison import Comparison
from marltrain.tools.finding.ranking import Ranking, interval_of_best, ranked
from marltrain.tools.search.candidates import (
    Candidate,
    check_different,
    described,
    maker_of,
    rate_names,
)
from marltrain.tools.search.saved_search import search_in
from marltrain.tools.search.train_all import train_all
from marltrain.tools.search.training import LOSS, METRIC, Plan, Training, failed_of, loss_of, score_of
from marltrain.trainer.settings import RewardMetric

RATES = tuple(10.0 ** (exponent / 2) for exponent in range(-10, -1))
"""Default learning rates: 1e-5 to 1e-1, two for each power of ten."""
OPTIMIZERS = ("adam", "adamw", "adamax", "rmsprop", "sgd")


@dataclass(frozen=True, kw_only=True)
class FindSettings:
    """What the finders have in common; `find_learning_rate` explains it."""

    steps: int = setting(20_000, doc="env steps of each training", low=1)
    seeds: int | Sequence[int] = setting(5, doc="number of seeds, or the seeds")
    by: str = setting("metric", doc="metric, loss, or a loss by its name such as loss/critic")
    final: float = setting(0.25, doc="share of the tests, the last ones, whose mean is a score", above=0, high=1)

    def __post_init__(self) -> None:
        """Check the values; raises ConfigError."""
        validate(self, "find")
        if self.by != METRIC and not self.by.startswith(LOSS):
            raise ConfigError(f"find: by must be 'metric', 'loss' or the name of a loss, got {self.by!r}")
        seeds = self.all_seeds
        if not seeds or len(set(seeds)) < len(seeds) or not all(_is_seed(seed) for seed in seeds):
            raise ConfigError(
                "find: seeds must be a number of at least 1, or different seeds from 0 to 2**63 - 1, got "
                f"{shown(self.seeds)}"
            )

    @property
    def all_seeds(self) -> list[int]:
        """The seeds."""
        return list(range(self.seeds)) if isinstance(self.seeds, int) else [python_number(seed) for seed in self.seeds]


@dataclass(frozen=True, eq=False)
class FindResult(Comparison):
    """Result of a finder.

    what: what the candidates differ in.  by, final: how they are scored.  numeric: whether their values are numbers.
    best: the value of the best candidate.  interval: where values are numbers, its 95 % interval: the range of the
      values that rank first when seeds are resampled; else, and for a single seed, None.
    table: a row for each candidate, the best first: `candidate`, `value`, `score` (interquartile mean over seeds; a
      loss is negated), `low`, `high` (its 95 % bootstrap interval), `first` (share of resamples in which it ranks
      first; nan for a single seed), `seeds`, `failed` (trainings that ended with an error).
    curves: a row for each test of each training: `candidate`, `seed`, `env_steps`, `metric`, and each loss, the mean
      since the test before.
    errors: `candidate`, `seed`, `error` of the trainings that failed.
    """

    def plot(
        self,
        path: str | Path,
        *,
        by: str | None = None,
        smooth: int = 1,
        skip_start: int = 0,
        skip_end: int = 0,
        limits: tuple[float, float] | None = None,
    ) -> Path:
        """Draw scores over candidates, their rate of change if values are numbers, and the learning curves.

        by: "metric", "loss" or the name of a loss; None: what the candidates are ranked by.
        smooth: number of neighboring candidates (tests, in the curves) that a mean covers.
        skip_start, skip_end: number of candidates left out at either end.  limits: of the axis of scores.
        Returns the path of the image, .png, .svg or .pdf. Raises ConfigError for a wrong argument.
        """
        from marltrain.tools.finding.plots import draw_result  # loads matplotlib

        return draw_result(self, path, by=by, smooth=smooth, skip=(skip_start, skip_end), limits=limits)

    def __repr__(self) -> str:
        """Return the best candidate and the table."""
        names = dict(zip(self.table["value"], self.table["candidate"], strict=True)) if self.numeric else {}
        found = f" (95 %: {names[self.interval[0]]} to {names[self.interval[1]]})" if self.interval else ""
        shown = self.table.drop(columns="value")
        table = shown.to_string(index=False, float_format=lambda value: f"{value:.4g}")
        return printable(
            f"best {self.what} by {self.by}: {names[self.best] if self.numeric else self.best}{found}\n{table}"
        )


@checked_arguments
def find_learning_rate(
    agents: Any,
    env: Any,
    rates: Sequence[float] = RATES,
    *,
    steps: int = 20_000,
    seeds: int | Sequence[int] = 5,
    by: str = "metric",
    final: float = 0.25,
    env_args: Mapping[str, Any] | None = None,
    reward_metric: RewardMetric = None,
    trainer: Mapping[str, Any] | None = None,
    resume: str | Path | None = None,
    **settings: Any,
) -> FindResult:
    """Compare learning rates: every rate is trained with every seed, all at once, and rates are ranked.

    Each training equals a run of its seed alone; agents that differ only in the rate are rows of one learner.

    agents: the first argument of `make_agents`, such as "ppo", or a list of agents, one per player. Agents are copied,
      with their weights, and stay unchanged; the copies of a seed draw their random numbers below it.
    rates: the learning rates; they replace a schedule.
    steps: env steps of each training.  seeds: number of seeds, or the seeds.
    by: "metric": the metric of tests; "loss": the total loss of the updates; or a loss by name, such as "loss/critic".
      Losses are comparable only where agents learn from equal data, such as with value-based algorithms.
    final: the score of a training is the mean of this share of its tests, the last ones; 1: all tests.
    env, env_args, reward_metric: as in `DecentralizedTrainer`.  trainer: its further arguments, such as
      {"num_train_envs": 8}; by default there are 10 tests of 20 episodes.
    resume: a folder in which the search is saved after every test. The same call goes on with it after an interrupt or
      the end of the process, with equal results; a search that is finished is not trained again. None: it is not saved.
    settings: settings of the agents, as in `make_agents`.

    The names of candidates are the rates with three digits, or with as many as tell them apart.

    A training whose loss or gradient is not finite fails, and has the worst score; the others go on.
    Raises ConfigError for a wrong argument and for a folder with a search of other settings, SaveError for a damaged
    one, and AgentError if all trainings fail; an error of a candidate names it.
    """
    wanted = _numbers(rates)
    find = FindSettings(steps=steps, seeds=seeds, by=by, final=final)
    make = maker_of(agents, env, env_args, settings)
    candidates = [
        Candidate(name, rate, partial(make, {"learning_rate": rate}))
        for name, rate in zip(rate_names(wanted), wanted, strict=True)
    ]
    plan = Plan.of("find", env, env_args, find.steps, reward_metric, trainer)
    about = {"agents": described(agents), "settings": settings, "rates": wanted}
    return _compared("learning_rate", candidates, find, plan, about, resume, numeric=True)


@checked_arguments
def find_optimizer(
    agents: Any,
    env: Any,
    optimizers: Sequence[str] | Mapping[str, Mapping[str, Any]] = OPTIMIZERS,
    *,
    steps: int = 20_000,
    seeds: int | Sequence[int] = 5,
    by: str = "metric",
    final: float = 0.25,
    env_args: Mapping[str, Any] | None = None,
    reward_metric: RewardMetric = None,
    trainer: Mapping[str, Any] | None = None,
    resume: str | Path | None = None,
    **settings: Any,
) -> FindResult:
    """Compare optimizers, trained side by side; see `find_learning_rate` for the other arguments.

    optimizers: names, or {name of the candidate: settings}, such as
      {"sgd 0.9": {"optimizer": "sgd", "momentum": 0.9, "learning_rate": 1e-2}}.
    """
    entries = _named("find_optimizer: optimizers", optimizers, lambda name: {"optimizer": name})
    for name, changes in entries:
        if not isinstance(changes, Mapping):
            raise ConfigError(f"find_optimizer: candidate {name!r} must be a mapping of settings, got {shown(changes)}")
    find = FindSettings(steps=steps, seeds=seeds, by=by, final=final)
    make = maker_of(agents, env, env_args, settings)
    candidates = [Candidate(name, dict(changes), partial(make, changes)) for name, changes in entries]
    plan = Plan.of("find", env, env_args, find.steps, reward_metric, trainer)
    about = {"agents": described(agents), "settings": settings, "optimizers": dict(entries)}
    return _compared("optimizer", candidates, find, plan, about, resume)


@checked_arguments
def find_agent(
    agents: Mapping[str, Any] | Sequence[str],
    env: Any,
    *,
    steps: int = 20_000,
    seeds: int | Sequence[int] = 5,
    by: str = "metric",
    final: float = 0.25,
    env_args: Mapping[str, Any] | None = None,
    reward_metric: RewardMetric = None,
    trainer: Mapping[str, Any] | None = None,
    resume: str | Path | None = None,
    **settings: Any,
) -> FindResult:
    """Compare agents: algorithms, networks, settings; see `find_learning_rate` for the other arguments.

    agents: names of algorithms, or {name of the candidate: the first argument of `make_agents` or a list of agents},
      such as {"dqn": "dqn", "wide": ("dqn", {"network": mt.MLP((256, 256))})}.
    settings: settings of all agents, as in `make_agents`.
    """
    named = _named("find_agent: agents", agents, lambda name: name)
    find = FindSettings(steps=steps, seeds=seeds, by=by, final=final)
    candidates = [Candidate(name, name, partial(maker_of(entry, env, env_args, settings), {})) for name, entry in named]
    plan = Plan.of("find", env, env_args, find.steps, reward_metric, trainer)
    return _compared("agent", candidates, find, plan, {"agents": described(dict(named)), "settings": settings}, resume)


def _named(what: str, entries: Any, meant: Callable[[str], Any]) -> list[tuple[str, Any]]:
    """Return each candidate's name with what it stands for; meant: returns this for a name of a list.

    Raises ConfigError for other values than names or a mapping; what: name of the argument, for the message.
    """
    if isinstance(entries, str) or not isinstance(entries, Iterable):
        raise ConfigError(f"{what} must be a list of names, or a mapping from names, got {shown(entries)}")
    pairs = list(entries.items()) if isinstance(entries, Mapping) else [(name, None) for name in entries]
    if wrong := [name for name, _ in pairs if not isinstance(name, str)]:
        raise ConfigError(
            f"{what}: names must be text, got {shown(wrong[0])}. Name candidates with a mapping: {{name: ...}}"
        )
    return pairs if isinstance(entries, Mapping) else [(name, meant(name)) for name, _ in pairs]


def _numbers(rates: Any) -> list[float]:
    """Return learning rates as numbers; raises ConfigError for anything else. -0.0 becomes 0.0."""
    if isinstance(rates, str | Mapping) or not isinstance(rates, Iterable):
        raise ConfigError(f"find_learning_rate: rates must be a list of numbers, got {shown(rates)}")
    numbers = [python_number(rate) for rate in rates]
    if wrong := [rate for rate in numbers if not isinstance(rate, int | float) or isinstance(rate, bool)]:
        raise ConfigError(f"find_learning_rate: rates must be numbers, got {shown(wrong[0])}")
    return [float(rate) + 0.0 for rate in numbers]


def _is_seed(seed: Any) -> bool:
    return isinstance(seed, int) and not isinstance(seed, bool) and 0 <= seed <= MOST_SEED


def _compared(
    what: str, candidates: Sequence[Candidate], find: FindSettings, plan: Plan, about: Mapping[str, Any],
    resume: str | Path | None, *, numeric: bool = False,
) -> FindResult:  # fmt: skip
    """Train all candidates with all seeds, and rank them; about: their definition, in `resume`."""
    names, players = [candidate.name for candidate in candidates], probe(plan.source).names
    check_different(names)
    trainings = [
        Training(c, seed, partial(candidate.agents, seed, players))
        for c, candidate in enumerate(candidates)
        for seed in find.all_seeds
    ]
    of_all = {"candidates": names, "seeds": find.all_seeds, "by": find.by, "final": find.final}
    with search_in(resume, {"tool": f"find_{what}", **plan.about(), **about, **of_all}) as search:
        train_all(plan, trainings, lambda going: _check_loss(going, find.by, names), search=search)
    failed = failed_of("find", trainings, names)
    seeds = len(find.all_seeds)
    all_scores = [_of_candidate(names[t.candidate], partial(score_of, t, find.final, find.by)) for t in trainings]
    scores = [all_scores[i : i + seeds] for i in range(0, len(trainings), seeds)]
    if len({score for own in scores for score in own}) == 1:
        warn(f"every training scores {scores[0][0]:g}: the candidates cannot be told apart. {_ADVICE}")
    ranking = ranked(scores)
    interval = interval_of_best(ranking, [candidate.value for candidate in candidates]) if numeric else None
    best = candidates[int(ranking.order[0])].value
    tables = _table(candidates, ranking, trainings, seeds), _curves(names, trainings), _errors(names, failed)
    return FindResult(what, find.by, find.final, numeric, best, interval, *tables)


def _check_loss(going: Sequence[Training], by: str, names: Sequence[str]) -> None:
    """Raise ConfigError at the first test after an update if a candidate has no loss of this name."""
    for training in going if by != METRIC else ():
        _of_candidate(names[training.candidate], partial(loss_of, training.readings[-1].losses, by))


def _of_candidate(name: str, measured: Callable[[], float]) -> float:
    """Return what is measured of a candidate; an error names it."""
    try:
        return measured()
    except ConfigError as error:
        raise ConfigError(f"candidate {name!r}: {error}") from error


_ADVICE = (
    "Train for more env steps, or play tests against other players: give agents by player, with 'random' for opponents"
)


def _table(candidates: Sequence[Candidate], ranking: Ranking, trainings: Sequence[Training], seeds: int) -> Any:
    import pandas as pd

    errors = [sum(bool(t.error) for t in trainings[c * seeds : (c + 1) * seeds]) for c in range(len(candidates))]
    rows = [
        {"candidate": candidates[c].name, "value": candidates[c].value, "score": ranking.score[c],
         "low": ranking.low[c], "high": ranking.high[c], "first": ranking.first[c], "seeds": seeds,
         "failed": errors[c]}
        for c in ranking.order.tolist()
    ]  # fmt: skip
    return pd.DataFrame(rows)


def _curves(names: Sequence[str], trainings: Sequence[Training]) -> Any:
    import pandas as pd

    rows = [
        {"candidate": names[training.candidate], "seed": training.seed, "env_steps": test.env_steps,
         "metric": test.metric, **test.losses}
        for training in trainings
        for test in training.readings
    ]  # fmt: skip
    return pd.DataFrame(rows)


def _errors(names: Sequence[str], failed: Sequence[Training]) -> Any:
    import pandas as pd

    rows = [{"candidate": names[each.candidate], "seed": each.seed, "error": each.error} for each in failed]
    return pd.DataFrame(rows, columns=["candidate", "seed", "error"])
