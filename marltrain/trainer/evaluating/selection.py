"""The metric of a test: the returns that count, and the comparison with the best test so far."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from marltrain.core.errors import ConfigError, warn
from marltrain.core.layout import Array
from marltrain.core.settings import python_number
from marltrain.policies.agents.agent import Agent
from marltrain.storage.checks import within
from marltrain.storage.state import State
from marltrain.trainer.evaluating.evaluation import bootstrap
from marltrain.trainer.settings import RewardMetric

TOLERANCE = 1e-6
"""Fraction of the largest return by which the default metric must change to count as changed: sums are rounded."""


class Selected(NamedTuple):
    """Outcome of a test.

    metric: the metric of the test.
    interval: 95 % bootstrap interval of the metric over episodes; nan for a `reward_metric`.
    best: whether the agents are the best so far.  judged: names of the columns of returns that count.
    """

    metric: float
    interval: tuple[float, float]
    best: bool
    judged: tuple[str, ...]


class ModelSelection:
    """Computes the metrics of the tests of a run, and finds the best test.

    metrics: the metrics so far, one per test.

    The default metric is the mean return over the columns whose agents learn at that test. When these columns change,
    the comparison restarts. As long as the metric equals the first one, the last test counts as the best.
    """

    def __init__(
        self,
        reward_metric: RewardMetric,
        names: Sequence[str],
        agents: Sequence[Agent],
        line_up: Sequence[Agent] | None,
    ) -> None:
        """Take the players' names and agents; line_up: the agents of `test_agents`, None without a line-up."""
        self.metrics: list[float] = []
        self._reward_metric, self._names = reward_metric, tuple(names)
        self._agents, self._line_up = agents, line_up
        self._judged: tuple[str, ...] = ()
        self._best = math.nan  # no test yet
        self._moved = self._warned = False

    def add(self, returns: Array, learning: Array) -> Selected:
        """Add a test by its returns [episodes, P]; learning: the seats that learn now, [P] bool."""
        columns = self._columns(learning)
        judged = tuple(name for name, counts in zip(self._names, columns, strict=True) if counts)
        if judged != self._judged:
            self._judged, self._best, self._moved = judged, math.nan, False
        if self._reward_metric is not None:
            metric, interval, tolerance = measured(self._reward_metric, returns), (math.nan, math.nan), 0.0
        else:
            counted = _counted(returns, columns)
            metric, interval = float(counted.mean()), bootstrap(counted.mean(1))
            tolerance = TOLERANCE * float(np.abs(counted).max())
            self._warn_if_zero_sum(counted, tolerance)
        self.metrics.append(metric)
        return Selected(metric, interval, self._is_best(metric, tolerance), judged)

    def metric_of(self, returns: Array, learning: Array) -> float:
        """Return the metric of returns as in `add`, without a comparison."""
        if self._reward_metric is not None:
            return measured(self._reward_metric, returns)
        return float(_counted(returns, self._columns(learning)).mean())

    def state(self) -> State:
        """Return all metrics and the values that the next metric is compared with."""
        info = {"judged": list(self._judged), "moved": self._moved}
        return State(info, {"metrics": np.array(self.metrics, np.float64), "best": np.array(self._best)})

    def restore(self, state: State) -> None:
        """Restore what `state` returned; raises SaveError for invalid values."""
        tests = state.any_array("metrics").size
        metrics = within(state.place("metrics"), state.array("metrics", np.float64, (tests,)), -math.inf, math.inf)
        self._judged, self._moved = tuple(state.values("judged", str)), state.value("moved", bool)
        self.metrics, self._best = metrics.tolist(), float(state.array("best", np.float64, ()))

    def follow(self, state: State, *, comparable: bool) -> None:
        """Continue from the state of an earlier run.

        comparable: whether the next test may be compared with the earlier tests; else the comparison restarts.
        """
        self.restore(state)
        if not comparable:
            self._judged = ()

    def _columns(self, learning: Array) -> Array:
        """Return the columns of the returns that count, [P] bool: all of them for a `reward_metric`."""
        everyone = np.ones(len(self._names), bool)
        if self._reward_metric is not None or self._line_up is None:
            return learning if self._reward_metric is None else everyone
        learners = {id(agent) for agent, learns in zip(self._agents, learning, strict=True) if learns}
        columns = np.array([id(agent) in learners for agent in self._line_up])
        return columns if columns.any() else everyone

    def _is_best(self, metric: float, tolerance: float) -> bool:
        """Compare a metric with the best so far; return whether it is the new best."""
        self._moved = self._moved or abs(metric - self._best) > tolerance
        if self._moved and metric <= self._best:
            return False
        self._best = metric
        return True

    def _warn_if_zero_sum(self, counted: Array, tolerance: float) -> None:
        """Warn once if the returns that count, [episodes, n], sum to zero in each episode: their mean is constant."""
        if self._warned or not tolerance or np.abs(counted.sum(1)).max() > tolerance:
            return
        self._warned = True
        warn(
            f"the metric is 0 whatever is learned: the returns of the players that learn ({', '.join(self._judged)}) "
            "sum to zero in every test episode. Give train() a line-up for tests in which agents that learn play "
            "others, such as test_agents=[agent, RandomAgent()] (--test-against random), or give the trainer a "
            "reward_metric. Until the metric moves, best/ holds the agents of the last test, and save_best_fn is "
            "called after every test"
        )


def _counted(returns: Array, columns: Array) -> Array:
    """Return the returns that count, [episodes, n]."""
    return returns if columns.all() else returns[:, columns]


def measured(reward_metric: Callable[[Array], float], returns: Array) -> float:
    """Return the value of `reward_metric` for returns [episodes, players]; raises ConfigError unless it is a number."""
    value = reward_metric(returns.copy())
    value = python_number(value.item() if isinstance(value, np.ndarray) and value.ndim == 0 else value)
    if not isinstance(value, int | float) or isinstance(value, bool):
        shape = f" of shape {value.shape}" if hasattr(value, "shape") else ""
        raise ConfigError(
            f"reward_metric must return one number for rewards [episodes, players], got {type(value).__name__}{shape}. "
            "The default is their mean over the players that learn"
        )
    if np.isnan(value):
        raise ConfigError("reward_metric returned nan")
    return float(value)
