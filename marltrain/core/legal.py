"""Masks of legal actions: truth values for each choice.

The mask of a Discrete action has an entry for each of its choices. That of a MultiDiscrete action has the entries of
its numbers side by side (flattened), as in sb3-contrib's MaskablePPO: 2 + 3 entries for MultiDiscrete([2, 3]). Each
number needs a legal choice. Other actions have no masks.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

Array = NDArray[Any]


class Legal:
    """Masks of the legal actions of one space, [..., A] bool. Actions are those of the loop, from 0 on.

    sizes: number of choices of each number of an action.  width: A, their sum; 0 for actions without masks.
    """

    def __init__(self, space: Any) -> None:
        """Read the choices of a Discrete or a MultiDiscrete space."""
        self._single = isinstance(space, spaces.Discrete)
        choices = space.nvec.reshape(-1).tolist() if isinstance(space, spaces.MultiDiscrete) else []
        self.sizes: tuple[int, ...] = (int(space.n),) if isinstance(space, spaces.Discrete) else tuple(choices)
        self.width = sum(self.sizes)
        self._starts = np.cumsum((0, *self.sizes))[:-1]

    def joined(self, given: Any) -> Array:
        """Return masks [..., A]; those of several numbers may be a list of D masks, or an array [..., D, choices].

        Raises ValueError for lists of different lengths.
        """
        count = len(self.sizes)
        if isinstance(given, list | tuple) and count == len(given) > 1:
            shapes = [np.shape(mask) for mask in given]
            if [shape[-1:] for shape in shapes] == [(size,) for size in self.sizes]:
                return np.concatenate([np.asarray(mask) for mask in given], -1)
        masks = np.asarray(given)
        if count > 1 and masks.shape[-2:] == (count, self.sizes[0]) and len(set(self.sizes)) == 1:
            return masks.reshape(*masks.shape[:-2], self.width)
        return masks

    def playable(self, legal: Array) -> Array:
        """Return whether each number of an action has a legal choice, [...] bool."""
        if self._single:
            return np.asarray(legal.any(-1))
        return np.asarray(np.logical_or.reduceat(legal, self._starts, -1).all(-1))

    def permits(self, legal: Array, action: Array) -> Array:
        """Return whether actions in the space are legal, [...] bool."""
        chosen = action[..., None] if self._single else action + self._starts
        return np.asarray(np.take_along_axis(legal, chosen, -1).all(-1))

    def best(self, scores: Array) -> Array:
        """Return the actions of the highest scores [..., A]."""
        if self._single:
            return np.asarray(scores.argmax(-1))
        return np.stack([piece.argmax(-1) for piece in np.split(scores, self._starts[1:], -1)], -1)

    def listed(self, legal: Array) -> str:
        """Return the legal choices of one mask [A] in words, such as "[0, 2]", or "[1] and [0, 2]" for two numbers."""
        return " and ".join(str(np.flatnonzero(piece).tolist()) for piece in np.split(legal, self._starts[1:]))

    def without_choice(self, legal: Array) -> str:
        """Return what one mask [A] does not allow, in words: "action", or "choice of number 1"."""
        empty = [i for i, piece in enumerate(np.split(legal, self._starts[1:])) if not piece.any()]
        return "action" if self._single or len(empty) == len(self.sizes) else f"choice of number {empty[0]}"
