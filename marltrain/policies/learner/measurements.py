"""Quantities that a learner measures in its updates when a callback asks for them: gradient noise, effective rows."""

from __future__ import annotations

import numpy as np

from marltrain.core.errors import ConfigError
from marltrain.core.layout import Array
from marltrain.policies.backends.base import Backend
from marltrain.policies.batches.batch import Transitions
from marltrain.policies.batches.tensor_batch import WholeBatch
from marltrain.policies.interface.algorithm import Algorithm, Networks
from marltrain.policies.interface.joint import JointAlgorithm
from marltrain.policies.learner.gradient_steps import GradientSteps
from marltrain.policies.memory.memory_numbers import MemoryNumbers

EFFECTIVE = "effective_sample_size"
MOST_LOG_RATIO = 20.0
"""Limit of the size of log-ratios; the square of their exponential is a finite float64."""


class Measurements:
    """The quantities that a learner adds to the metrics of its updates; none until `ask`.

    effective: whether the effective sample size is measured.  noise: whether the gradient noise is measured.
    """

    def __init__(
        self, steps: GradientSteps, backend: Backend, algorithm: Algorithm, memory: MemoryNumbers | None, *,
        custom: bool,
    ) -> None:  # fmt: skip
        """Take the gradient steps of a learner.

        memory: the numbers of its replay memory, or None.  custom: whether a network is a model of the user's own.
        """
        self._steps, self._backend, self._algorithm, self._memory = steps, backend, algorithm, memory
        self._who, self._custom = algorithm.name, custom
        self.effective = self.noise = False

    def clear(self) -> None:
        """Measure nothing."""
        self.measure(effective=False, noise=False)

    def measure(self, *, effective: bool, noise: bool) -> None:
        """Measure what the measurements of the same learner in another process do; see `ask`."""
        self.effective = effective
        if noise != self.noise:
            self.noise = noise
            self._steps.measure_noise(on=noise)

    def ask(self, quantity: str) -> None:
        """Measure "effective_sample_size" or "gradient_noise" in all later updates.

        Raises ConfigError if the learner cannot measure it, or if it cannot change.
        """
        if quantity == EFFECTIVE:
            if self._algorithm.log_ratio is None and (self._memory is None or self._memory.draws_uniformly):
                raise ConfigError(
                    f"{self._who}: the effective sample size of its draws is always that of all rows, because they are "
                    "uniform: nothing can follow it. Give the memory priorities (mt.Prioritized) or a half_life, or "
                    "take another quantity"
                )
            self.effective = True
        elif not self.noise:
            if self._algorithm.needs().block:
                raise ConfigError(
                    f"{self._who}: the gradient noise is measured by every second row of a minibatch, and a recurrent "
                    "network learns from sequences of rows: take another quantity, or MLP() or CNN()"
                )
            if isinstance(self._algorithm, JointAlgorithm):
                raise ConfigError(f"{self._who}: the gradient noise of agents that learn together is not measured")
            if self._backend.strategy is not None or self._custom:
                why = (
                    "a model of your own may keep what the two parts cannot share, such as statistics of the batch"
                    if self._custom
                    else f"{self._backend.strategy} splits it already: leave out strategy="
                )
                raise ConfigError(
                    f"{self._who}: the gradient noise is measured by two parts of each minibatch, and {why}"
                )
            self.measure(effective=self.effective, noise=True)

    def effective_share(self, nets: Networks, tensors: WholeBatch) -> Array:
        """Return the effective sample size of an update's rows as a share of their number, [K].

        With a policy that has log-ratios, it is that of the rows with their ratios, see `kish_share`; otherwise it is
        that of the law by which the rows were drawn, see `Chosen`.
        """
        batch, log_ratio = tensors.batch, self._algorithm.log_ratio
        if log_ratio is None:
            drawn = batch.effective if isinstance(batch, Transitions) else None
            return np.ones(len(batch.weight)) if drawn is None else drawn
        with self._backend.no_gradient():
            return kish_share(batch.weight, self._backend.numpy(log_ratio(self._backend.ops, nets, tensors)))


def kish_share(weight: Array, log_ratio: Array | None = None) -> Array:
    """Return the effective sample size of rows as a share of their number, [K] in (0, 1]; NaN without rows.

    It is (sum w)^2 / (n sum w^2) for n rows of positive weight (Kish 1965), with w = weight * exp(log_ratio).
    weight: [K, B], 0 for padding.  log_ratio: [K, B], of the policy to the one that acted; None: all 0.
    """
    rows = (weight > 0).sum(1)
    w = weight.astype(np.float64)
    if log_ratio is not None:
        w = w * np.exp(np.clip(log_ratio, -MOST_LOG_RATIO, MOST_LOG_RATIO))
    with np.errstate(invalid="ignore"):
        share: Array = np.square(w.sum(1)) / (rows * np.square(w).sum(1))
    return share


def noise_scale(noise: float, signal: float, most: float) -> float:
    """Return the simple gradient noise scale tr(S) / |G|^2, in rows, from estimates of both.

    McCandlish et al. 2018 (arXiv:1812.06162), eq. 2.9. It is at most `most`, also where noise hides the gradient (an
    estimate of |G|^2 that is not positive).
    """
    noise = max(noise, 0.0)
    return min(noise / signal, most) if signal > 0 else (most if noise > 0 else 0.0)
