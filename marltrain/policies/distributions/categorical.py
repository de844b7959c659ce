"""Categorical distributions: Discrete and MultiDiscrete actions, with masks of legal actions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from gymnasium import spaces

from marltrain.core.layout import Array
from marltrain.policies.distributions.draws import Sampling, gumbel_from, gumbel_of, uniforms
from marltrain.policies.networks.specs import Head
from marltrain.policies.ops import Ops

ILLEGAL = -1e9
"""Logit of illegal actions; its exp() is exactly 0 in float32."""


def masked(ops: Ops, logits: Any, legal: Any) -> Any:
    """Return the logits with -1e9 at illegal actions, so that their probability is exactly 0 in float32.

    logits: [..., A] float32, or Q-values whose largest is sought.  legal: [..., A] bool, as `Batch.legal` and the
    argument of `Algorithm.act`; None: all actions are legal, and the logits are returned unchanged.
    """
    return logits if legal is None else ops.where(legal, logits, ops.zeros_like(logits) + ILLEGAL)


def gumbel(rngs: Sequence[np.random.Generator], shape: tuple[int, ...]) -> Array:
    """Draw Gumbel(0, 1) noise [K, *shape] float32: argmax(logits + noise) is a sample of the softmax."""
    return gumbel_of(uniforms(rngs, shape))


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

    @property
    def sampling(self) -> Sampling:
        """The noise of `sample` from uniform numbers."""
        return Sampling(self.choices, gumbel_from)

    def probabilities(self, ops: Ops, out: Any, legal: Any) -> Any:
        """Return the probabilities of the actions, [K, B, A]."""
        return ops.softmax(masked(ops, out, legal), -1)

    def sample(self, ops: Ops, out: Any, legal: Any, noise: Any, explore: Any) -> tuple[Any, Any, Any]:
        """Return (action, raw action, its log-probability): sampled where `explore` [K, B], else the mode."""
        logits = masked(ops, out, legal)
        raw = ops.argmax(logits + ops.only(noise, explore), -1)
        return raw, raw, ops.take(logits, raw) - ops.logsumexp(logits, -1)

    def evaluate(self, ops: Ops, out: Any, legal: Any, raw: Any) -> tuple[Any, Any]:
        """Return (log-probability of `raw`, entropy), each [K, B]."""
        log_probs = ops.log_softmax(masked(ops, out, legal), -1)
        return ops.take(log_probs, raw), -ops.sum(ops.exp(log_probs) * log_probs, -1)

    def kl(self, ops: Ops, old_out: Any, new_out: Any, legal: Any) -> Any:
        """Return KL(old, new) of two outputs with the same legal actions, [K, B]."""
        return _kl(ops, masked(ops, old_out, legal), masked(ops, new_out, legal))


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

    @property
    def sampling(self) -> Sampling:
        """The noise of `sample` from uniform numbers."""
        return Sampling(sum(self.sizes), gumbel_from)

    def probabilities(self, ops: Ops, out: Any, legal: Any) -> Any:
        """Return the probabilities of each of the D choices side by side, [K, B, sum of sizes]."""
        return ops.concat([ops.softmax(piece, -1) for piece in self._pieces(ops, out, legal)], -1)

    def sample(self, ops: Ops, out: Any, legal: Any, noise: Any, explore: Any) -> tuple[Any, Any, Any]:
        """Return (action, raw action, its log-probability); see `Categorical.sample`."""
        nudged = masked(ops, out, legal) + ops.only(noise, explore)
        raw = ops.stack([ops.argmax(piece, -1) for piece in ops.split(nudged, self.sizes)], -1)
        return raw, raw, self.evaluate(ops, out, legal, raw)[0]

    def evaluate(self, ops: Ops, out: Any, legal: Any, raw: Any) -> tuple[Any, Any]:
        """Return (log-probability of `raw`, entropy), each [K, B]: sums over the D choices."""
        log_prob: Any = 0.0
        entropy: Any = 0.0
        for d, piece in enumerate(self._pieces(ops, out, legal)):
            log_probs = ops.log_softmax(piece, -1)
            log_prob = log_prob + ops.take(log_probs, raw[..., d])
            entropy = entropy - ops.sum(ops.exp(log_probs) * log_probs, -1)
        return log_prob, entropy

    def kl(self, ops: Ops, old_out: Any, new_out: Any, legal: Any) -> Any:
        """Return KL(old, new) of two outputs with the same legal actions, [K, B]: the sum over the D choices."""
        pairs = zip(self._pieces(ops, old_out, legal), self._pieces(ops, new_out, legal), strict=True)
        total: Any = 0.0
        for old, new in pairs:
            total = total + _kl(ops, old, new)
        return total

    def _pieces(self, ops: Ops, out: Any, legal: Any) -> Any:
        """Return the masked logits of each choice, [K, B, size]; legal: [K, B, sum of sizes], side by side."""
        return ops.split(masked(ops, out, legal), self.sizes)


def _kl(ops: Ops, old: Any, new: Any) -> Any:
    """Return KL(old, new) of two softmax distributions with logits [..., A]."""
    old_log, new_log = ops.log_softmax(old, -1), ops.log_softmax(new, -1)
    return ops.sum(ops.exp(old_log) * (old_log - new_log), -1)
