"""Quantities that drive numbers of agents: smoothed values of the metrics of updates."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from marltrain.core.errors import ConfigError, did_you_mean
from marltrain.policies.interface.algorithm import MOST_ROWS
from marltrain.policies.learner.gradient_noise import GRADIENT_NOISE, GRADIENT_ROWS, GRADIENT_SIGNAL
from marltrain.policies.learner.measurements import EFFECTIVE, noise_scale
from marltrain.storage.checks import of_type

TD_ERROR, PLATEAU = "td_error", "plateau"
MEASURED = (GRADIENT_NOISE, EFFECTIVE)
"""Quantities that learners measure when they are asked to."""
USUAL_TARGET = {GRADIENT_NOISE: 1.0, EFFECTIVE: 0.5, TD_ERROR: 1.0}
LOSSES = ("loss/critic", "loss/total")
"""Metrics of the size of temporal-difference errors; the first one that an update has counts."""
SLOWER = 10
"""How many times as many updates the long mean of "td_error" covers as the short one."""
GRACE = 100
"""Updates after which a missing metric is an error; delayed phases do not report in every update."""


def drive(by: str, value: float, target: float) -> float:
    """Return how far a quantity is above its target, in [-1, 1]: the difference of logarithms, of log-odds for shares.

    A value at or below 0 gives -1.
    """
    if value <= 0:
        return -1.0
    excess = math.log(value / target)
    if by == EFFECTIVE:
        excess = excess + math.log(1 - target) - math.log(1 - value) if value < 1 else 1.0
    return min(max(excess, -1.0), 1.0)


class Average:
    """Exponential moving average of values, corrected for its start as in Adam (Kingma and Ba 2015)."""

    def __init__(self, smoothing: float) -> None:
        """Start without values; smoothing: weight of the past, in [0, 1)."""
        self.smoothing, self.total, self.weight = smoothing, 0.0, 0.0

    def add(self, value: float) -> None:
        """Add a value."""
        self.total = self.smoothing * self.total + (1 - self.smoothing) * value
        self.weight = self.smoothing * self.weight + (1 - self.smoothing)

    @property
    def value(self) -> float | None:
        """The average; None without values."""
        return self.total / self.weight if self.weight else None


class Quantity:
    """One smoothed quantity of some agents, from the metrics of their updates.

    "gradient_noise": the gradient noise scale in batches, B_simple / B: averages of noise and signal are divided.
    "effective_sample_size": the average.  "td_error": the short average of the critic's loss, divided by the long one.
    Any other name: the average of the metric of this name.
    missed: updates without the metric, since the last one that had it.
    """

    def __init__(self, by: str, smoothing: float, network: str | None) -> None:
        """Start without values.  network: the network whose gradient counts; None: all of them."""
        self.by, self.network = by, network
        self._averages: dict[str, Average] = {}
        names = {GRADIENT_NOISE: (GRADIENT_NOISE, GRADIENT_SIGNAL, GRADIENT_ROWS), TD_ERROR: ("short", "long")}
        for name in names.get(by, (by,)):
            slow = name == "long"
            self._averages[name] = Average(1 - (1 - smoothing) / SLOWER if slow else smoothing)
        self.missed = 0

    def add(self, metrics: Sequence[Mapping[str, float]], who: str) -> None:
        """Add the metrics of one update of each agent.

        who: the callback, for errors.  Raises ConfigError if the metric is missing in `GRACE` updates.
        """
        found = [values for one in metrics if (values := self._values(one)) is not None]
        if not found:
            self.missed += 1
            if self.missed >= GRACE:
                known = sorted({name for one in metrics for name in one})
                raise ConfigError(
                    f"{who}: the updates report no {self.by!r}.{did_you_mean(self.by, known)} They report: "
                    f"{', '.join(known)}"
                )
            return
        self.missed = 0
        for i, average in enumerate(self._averages.values()):
            average.add(sum(values[i] for values in found) / len(found))

    @property
    def value(self) -> float | None:
        """The smoothed quantity; None without values."""
        averages = [average.value for average in self._averages.values()]
        if None in averages:
            return None
        first, *others = (average or 0.0 for average in averages)
        if self.by == GRADIENT_NOISE:
            signal, rows = others
            return noise_scale(first, signal, MOST_ROWS) / rows
        if self.by == TD_ERROR:
            return first / others[0] if others[0] > 0 else 1.0
        return first

    def state(self) -> list[list[float]]:
        """Return the averages as JSON values."""
        return [[average.total, average.weight] for average in self._averages.values()]

    def restore(self, state: Any) -> None:
        """Restore what `state` returned; raises SaveError for anything else."""
        for average, saved in zip(self._averages.values(), of_type("averages", state, list), strict=True):
            total, weight = of_type("average", saved, list)
            average.total, average.weight = of_type("total", total, float), of_type("weight", weight, float)

    def _values(self, metrics: Mapping[str, float]) -> tuple[float, ...] | None:
        """Return the value of each average in an update's metrics; None if one of them is missing."""
        if self.by == GRADIENT_NOISE:
            sums = (self._sum(metrics, GRADIENT_NOISE), self._sum(metrics, GRADIENT_SIGNAL))
            values: tuple[float, ...] = (*sums, metrics.get(GRADIENT_ROWS, math.nan))
        elif self.by == TD_ERROR:
            loss = next((metrics[name] for name in LOSSES if name in metrics), math.nan)
            values = loss, loss
        else:
            values = (metrics.get(self.by, math.nan),)
        return values if all(map(math.isfinite, values)) else None

    def _sum(self, metrics: Mapping[str, float], what: str) -> float:
        """Return the sum of a metric over the networks whose gradient counts; NaN without one."""
        names = [f"{what}/{self.network}"] if self.network else [n for n in metrics if n.startswith(f"{what}/")]
        found = [metrics[name] for name in names if not math.isnan(metrics.get(name, math.nan))]
        return sum(found) if found else math.nan
