"""Action distributions of policy networks, written with `ops` for all frameworks.

A distribution converts the network's output [K, B, size] to actions, log-probabilities and entropies. Random numbers
are arguments (`noise`), drawn with numpy from each agent's own stream.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from gymnasium import spaces

from marltrain.errors import SpecError
from marltrain.layout import Array, Space
from marltrain.policies.networks import Head
from marltrain.spaces import action_bounds

ILLEGAL = -1e9
"""Logit of illegal actions; its exp() is exactly 0 in float32."""


def masked(ops: Any, logits: Any, legal: Any) -> Any:
    """Return the logits with `ILLEGAL` where legal [..., A] is False."""
    return logits if legal is None else ops.where(legal, logits, ops.zeros_like(logits) + ILLEGAL)


def gumbel(rngs: Sequence[np.random.Generator], shape: tuple[int, ...]) -> Array:
    """Draw Gumbel(0, 1) noise [K, *shape] float32: argmax(logits + noise) is a sample of the softmax."""
    # 1 - U lies in (0, 1]; the floor keeps log(0) out after rounding to float32
    uniform = np.stack([rng.random(shape, np.float32) for rng in rngs])
    return -np.log(-np.log(np.clip(uniform, 1e-12, 1.0 - 1e-7)))


class Categorical:
    """Categorical distribution over A actions; the outputs are logits. Action [K, B] int64."""

    def __init__(self, space: spaces.Discrete) -> None:
        """Read the number of actions from the space."""
        self.choices = int(space.n)

    def head(self, gain: float) -> Head:
        """Return the head that a policy network needs."""
        return Head(self.choices, gain)

    def noise(self, rngs: Sequence[np.random.Generator], rows: int) -> Array:
        """Draw the noise of one `sample` call, [K, rows, A]."""
        return gumbel(rngs, (rows, self.choices))

    def sample(self, ops: Any, out: Any, legal: Any, noise: Any, explore: Any) -> tuple[Any, Any, Any]:
        """Return (action, raw action, its log-probability): sampled where `explore` [K, B], else the mode."""
        logits = masked(ops, out, legal)
        raw = ops.argmax(logits + ops.only(noise, explore), -1)
        return raw, raw, ops.take(logits, raw) - ops.logsumexp(logits, -1)

    def evaluate(self, ops: Any, out: Any, legal: Any, raw: Any) -> tuple[Any, Any]:
        """Return (log-probability of `raw`, entropy), each [K, B]."""
        log_probs = ops.log_softmax(masked(ops, out, legal), -1)
        return ops.take(log_probs, raw), -ops.sum(ops.exp(log_probs) * log_probs, -1)


class MultiCategorical:
    """D independent categorical distributions; the outputs are their concatenated logits. Action [K, B, D] int64."""

    def __init__(self, space: spaces.MultiDiscrete) -> None:
        """Read the numbers of choices from the space (flattened)."""
        self.sizes = [int(n) for n in space.nvec.reshape(-1)]

    def head(self, gain: float) -> Head:
        """Return the head that a policy network needs."""
        return Head(sum(self.sizes), gain)

    def noise(self, rngs: Sequence[np.random.Generator], rows: int) -> Array:
        """Draw the noise of one `sample` call, [K, rows, sum of sizes]."""
        return gumbel(rngs, (rows, sum(self.sizes)))

    def sample(self, ops: Any, out: Any, legal: Any, noise: Any, explore: Any) -> tuple[Any, Any, Any]:
        """Return (action, raw action, its log-probability); see `Categorical.sample`."""
        nudged = out + ops.only(noise, explore)
        raw = ops.stack([ops.argmax(piece, -1) for piece in ops.split(nudged, self.sizes)], -1)
        return raw, raw, self.evaluate(ops, out, legal, raw)[0]

    def evaluate(self, ops: Any, out: Any, legal: Any, raw: Any) -> tuple[Any, Any]:
        """Return (log-probability of `raw`, entropy), each [K, B]: sums over the D choices."""
        log_prob: Any = 0.0
        entropy: Any = 0.0
        for d, piece in enumerate(ops.split(out, self.sizes)):
            log_probs = ops.log_softmax(piece, -1)
            log_prob = log_prob + ops.take(log_probs, raw[..., d])
            entropy = entropy - ops.sum(ops.exp(log_probs) * log_probs, -1)
        return log_prob, entropy


class Gaussian:
    """Diagonal normal distribution; the outputs are A means and A log standard deviations.

    The log standard deviations do not depend on the observation. `raw` is the sample of the normal distribution. In a
    bounded dimension, raw -1 and 1 map to the bounds, and the action is clipped to them. In an unbounded dimension, the
    action is raw. Action [K, B, A] float32.
    """

    def __init__(self, space: spaces.Box, log_std: float = 0.0) -> None:
        """Read the bounds from the space; `log_std` is the initial value of the log standard deviations."""
        low, high = space.low.reshape(-1).astype(np.float64), space.high.reshape(-1).astype(np.float64)
        bounded = np.isfinite(low) & np.isfinite(high)
        self.dims, self.log_std = len(low), log_std
        self.centre = np.where(bounded, (np.where(bounded, low, 0) + np.where(bounded, high, 0)) / 2, 0.0)
        self.reach = np.where(bounded, (np.where(bounded, high, 1) - np.where(bounded, low, -1)) / 2, 1.0)
        self.low, self.high = action_bounds(space)

    def head(self, gain: float) -> Head:
        """Return the head that a policy network needs."""
        return Head(self.dims, gain, free=self.dims, free_start=self.log_std)

    def noise(self, rngs: Sequence[np.random.Generator], rows: int) -> Array:
        """Draw the noise of one `sample` call, [K, rows, A]."""
        return np.stack([rng.standard_normal((rows, self.dims), np.float32) for rng in rngs])

    def sample(self, ops: Any, out: Any, legal: Any, noise: Any, explore: Any) -> tuple[Any, Any, Any]:
        """Return (raw action, raw action, its log-density); `to_units` converts the raw action."""
        mean, log_std = ops.split(out, [self.dims, self.dims])
        raw = mean + ops.only(ops.exp(log_std) * noise, explore)
        return raw, raw, self.evaluate(ops, out, legal, raw)[0]

    def evaluate(self, ops: Any, out: Any, legal: Any, raw: Any) -> tuple[Any, Any]:
        """Return (log-density of `raw`, entropy), each [K, B]: sums over the dimensions."""
        mean, log_std = ops.split(out, [self.dims, self.dims])
        z = (raw - mean) * ops.exp(-log_std)
        log_prob = -0.5 * ops.square(z) - log_std - 0.5 * math.log(2 * math.pi)
        return ops.sum(log_prob, -1), ops.sum(log_std + 0.5 * (1.0 + math.log(2 * math.pi)), -1)

    def to_units(self, raw: Array) -> Array:
        """Scale raw actions to the environment's units and clip them to its bounds."""
        scaled = (self.centre + self.reach * raw).astype(np.float32)
        return np.clip(scaled, self.low, self.high)


Distribution = Categorical | MultiCategorical | Gaussian


def distribution_of(space: Space, log_std: float = 0.0) -> Distribution:
    """Return the distribution for a Discrete, MultiDiscrete or Box space; raises SpecError for another space."""
    if isinstance(space, spaces.Discrete):
        return Categorical(space)
    if isinstance(space, spaces.MultiDiscrete):
        return MultiCategorical(space)
    if isinstance(space, spaces.Box):
        return Gaussian(space, log_std)
    raise SpecError(f"action space {space} has no distribution; marltrain takes Discrete, MultiDiscrete and Box")
