"""Normal distributions: log standard deviations that are free or outputs of the network, and squashed by tanh."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from gymnasium import spaces

from marltrain.core.errors import ConfigError, shown
from marltrain.core.layout import Array
from marltrain.policies.distributions.continuous import Continuous
from marltrain.policies.distributions.draws import Sampling, normal_from, normals
from marltrain.policies.distributions.normal_mixture import mean_log_slope
from marltrain.policies.networks.specs import Head
from marltrain.policies.ops import Ops

LOG_STD_BOUNDS = (-20.0, 2.0)
"""Default bounds of log standard deviations that depend on the observation (Haarnoja et al. 2018, published code)."""


class Gaussian(Continuous):
    """Diagonal normal distribution; the outputs are A means and A log standard deviations.

    The log standard deviations do not depend on the observation. `raw` is the sample of the normal distribution. In a
    bounded dimension, raw -1 and 1 map to the bounds, and the action is clipped to them. In an unbounded dimension, the
    action is raw. Action [K, B, A] float32.
    """

    def __init__(self, space: spaces.Box, log_std: float = 0.0) -> None:
        """Read the bounds from the space; `log_std` is the initial value of the log standard deviations."""
        super().__init__(space)
        self.log_std = log_std

    def head(self, gain: float) -> Head:
        """Return the head that a policy network needs."""
        return Head(self.dims, gain, free=self.dims, free_start=self.log_std)

    def noise(self, rngs: Sequence[np.random.Generator], rows: int) -> Array:
        """Draw the noise of one `sample` call, [K, rows, A]."""
        return normals(rngs, rows, self.dims)

    @property
    def sampling(self) -> Sampling:
        """The noise of `sample` from uniform numbers."""
        return Sampling(2 * self.dims, lambda ops, uniform: normal_from(ops, uniform)[..., : self.dims])

    def sample(self, ops: Ops, out: Any, legal: Any, noise: Any, explore: Any) -> tuple[Any, Any, Any]:
        """Return (raw action, raw action, its log-density); `to_units` converts the raw action.

        Gradients flow through the sample: raw = mean + std * noise where `explore` [K, B], the mean elsewhere; None
        samples every row.
        """
        raw = self._raw(ops, out, noise, explore)
        return raw, raw, self.log_density(ops, out, raw)

    def evaluate(self, ops: Ops, out: Any, legal: Any, raw: Any) -> tuple[Any, Any]:
        """Return (log-density of `raw`, entropy), each [K, B]: sums over the dimensions."""
        _, log_std = self.parameters(ops, out)
        entropy = ops.sum(log_std + 0.5 * (1.0 + math.log(2 * math.pi)), -1)
        return self.log_density(ops, out, raw), entropy

    def kl(self, ops: Ops, old_out: Any, new_out: Any, legal: Any) -> Any:
        """Return KL(old, new) of two outputs, [K, B]: the sum over the dimensions."""
        old_mean, old_log_std = self.parameters(ops, old_out)
        mean, log_std = self.parameters(ops, new_out)
        ratio = ops.exp(2.0 * (old_log_std - log_std))
        distance = ops.square((old_mean - mean) * ops.exp(-log_std))
        return ops.sum(log_std - old_log_std + 0.5 * (ratio + distance - 1.0), -1)

    def parameters(self, ops: Ops, out: Any) -> tuple[Any, Any]:
        """Return (means, log standard deviations), each [K, B, A]."""
        mean, log_std = ops.split(out, [self.dims, self.dims])
        return mean, log_std

    def log_density(self, ops: Ops, out: Any, raw: Any) -> Any:
        """Return the log-density of the action of `raw`, [K, B]."""
        mean, log_std = self.parameters(ops, out)
        z = (raw - mean) * ops.exp(-log_std)
        return ops.sum(-0.5 * ops.square(z) - log_std - 0.5 * math.log(2 * math.pi), -1)

    def _raw(self, ops: Ops, out: Any, noise: Any, explore: Any) -> Any:
        mean, log_std = self.parameters(ops, out)
        spread = ops.exp(log_std) * noise
        return mean + (spread if explore is None else ops.only(spread, explore))


class StateGaussian(Gaussian):
    """Diagonal normal distribution whose log standard deviations depend on the observation.

    The head has 2A outputs: means, and log standard deviations minus `log_std`. These are clipped to `log_std_bounds`;
    beyond a bound they have no gradient.
    """

    def __init__(
        self, space: spaces.Box, log_std: float = 0.0, log_std_bounds: tuple[float, float] = LOG_STD_BOUNDS
    ) -> None:
        """Read the bounds of actions from the space; raises ConfigError unless low < high in `log_std_bounds`."""
        super().__init__(space, log_std)
        low, high = log_std_bounds
        if not low < high:
            raise ConfigError(f"log_std_bounds must be (low, high) with low < high, got {shown(log_std_bounds)}")
        self.log_std_bounds = float(low), float(high)

    def head(self, gain: float) -> Head:
        """Return the head that a policy network needs."""
        return Head(2 * self.dims, gain)

    def parameters(self, ops: Ops, out: Any) -> tuple[Any, Any]:
        """Return (means, clipped log standard deviations), each [K, B, A]."""
        mean, log_std = ops.split(out, [self.dims, self.dims])
        return mean, ops.clip(log_std + self.log_std, *self.log_std_bounds)


class SquashedGaussian(StateGaussian):
    """tanh of a diagonal normal distribution: Haarnoja et al. 2018 (arXiv:1812.05905), appendix C.

    `raw` is the sample before tanh, the action tanh(raw) is in [-1, 1]. Densities are those of the action in these
    units. The mode that `sample` returns without exploration is tanh(mean).
    """

    def __init__(
        self, space: spaces.Box, log_std: float = 0.0, log_std_bounds: tuple[float, float] = LOG_STD_BOUNDS
    ) -> None:
        """Read the bounds from the space; raises SpecError if a dimension is not bounded."""
        super().__init__(space, log_std, log_std_bounds)
        self.check_bounded("a squashed Gaussian")

    def sample(self, ops: Ops, out: Any, legal: Any, noise: Any, explore: Any) -> tuple[Any, Any, Any]:
        """Return (action tanh(raw), raw, log-density of the action); gradients flow through the sample."""
        raw = self._raw(ops, out, noise, explore)
        return ops.tanh(raw), raw, self.log_density(ops, out, raw)

    def action(self, ops: Ops, out: Any, noise: Any, explore: Any) -> Any:
        """Return the action of `sample` without its log-density, which acting does not need."""
        return ops.tanh(self._raw(ops, out, noise, explore))

    def evaluate(self, ops: Ops, out: Any, legal: Any, raw: Any) -> tuple[Any, Any]:
        """Return (log-density of the action of `raw`, entropy), each [K, B].

        The entropy is that of the normal distribution plus the mean of log(1 - tanh^2), see `mean_log_slope`.
        """
        mean, log_std = self.parameters(ops, out)
        entropy = log_std + 0.5 * (1.0 + math.log(2 * math.pi)) + mean_log_slope(ops, mean, log_std)
        return self.log_density(ops, out, raw), ops.sum(entropy, -1)

    def log_density(self, ops: Ops, out: Any, raw: Any) -> Any:
        """Return the log-density of the action tanh(raw), [K, B]."""
        return super().log_density(ops, out, raw) - ops.sum(_log_slope(ops, raw), -1)


def _log_slope(ops: Ops, raw: Any) -> Any:
    """Return log(1 - tanh(raw)^2), exact for large values too."""
    return 2.0 * (math.log(2.0) - raw - ops.softplus(-2.0 * raw))
