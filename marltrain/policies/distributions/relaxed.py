"""Gumbel-softmax: samples of Discrete and MultiDiscrete actions, as one-hot vectors through which gradients flow.

Jang et al. 2017 (arXiv:1611.01144); Maddison et al. 2017 (arXiv:1611.00712).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from gymnasium import spaces

from marltrain.core.layout import Array
from marltrain.policies.distributions.categorical import gumbel, masked
from marltrain.policies.distributions.draws import Sampling, gumbel_from
from marltrain.policies.networks.specs import Head
from marltrain.policies.ops import Ops


class RelaxedCategorical:
    """D independent categorical distributions; the outputs of a network are their W logits side by side.

    Vectors of actions [K, B, W] hold the one-hot of each choice. Actions are [K, B] int64 for a Discrete space, and
    [K, B, D] int64 for a MultiDiscrete space.
    """

    def __init__(self, space: spaces.Discrete | spaces.MultiDiscrete) -> None:
        """Read the numbers of choices from the space (flattened)."""
        self.single = isinstance(space, spaces.Discrete)
        nvec = [space.n] if isinstance(space, spaces.Discrete) else space.nvec.reshape(-1)
        self.sizes = [int(n) for n in nvec]
        self.width = sum(self.sizes)

    def head(self, gain: float) -> Head:
        """Return the head that a policy network needs."""
        return Head(self.width, gain)

    def noise(self, rngs: Sequence[np.random.Generator], rows: int) -> Array:
        """Draw the Gumbel noise of one `sample` or `choose` call, [K, rows, W]."""
        return gumbel(rngs, (rows, self.width))

    @property
    def sampling(self) -> Sampling:
        """The noise that makes samples of the scores of `choose`, from uniform numbers."""
        return Sampling(self.width, gumbel_from, "gumbel")

    def probabilities(self, ops: Ops, logits: Any, legal: Any) -> Any:
        """Return the probabilities of each of the D choices side by side, [K, B, W]."""
        pieces = ops.split(masked(ops, logits, legal), self.sizes)
        return ops.concat([ops.softmax(piece, -1) for piece in pieces], -1)

    def sample(self, ops: Ops, logits: Any, legal: Any, noise: Any, temperature: Any, *, straight_through: bool) -> Any:
        """Return samples [K, B, W] of softmax((logits + noise) / temperature).

        temperature: [K, 1].  straight_through: samples are one-hot vectors, with the gradient of the relaxed ones.
        """
        scores = masked(ops, logits + noise, legal) / temperature[..., None]
        pieces = ops.split(scores, self.sizes)
        relaxed = ops.concat([ops.softmax(piece, -1) for piece in pieces], -1)
        if not straight_through:
            return relaxed
        hard = ops.concat([ops.one_hot(ops.argmax(piece, -1), piece.shape[-1]) for piece in pieces], -1)
        return relaxed + ops.stop_gradient(hard - relaxed)

    def choose(self, ops: Ops, scores: Any, legal: Any) -> Any:
        """Return the actions of the highest scores [K, B, W]; with logits plus noise, they are samples."""
        chosen = [ops.argmax(piece, -1) for piece in ops.split(masked(ops, scores, legal), self.sizes)]
        return chosen[0] if self.single else ops.stack(chosen, -1)

    def vectors(self, ops: Ops, action: Any) -> Any:
        """Return actions as one-hot vectors [K, B, W]."""
        if self.single:
            return ops.one_hot(action, self.width)
        return ops.concat([ops.one_hot(action[..., d], size) for d, size in enumerate(self.sizes)], -1)
