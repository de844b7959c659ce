"""Noise drawn for many acts at once: one call costs much more than the numbers."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from marltrain.layout import Array

ROWS = 2048
"""Rows of each agent that are drawn at once, at most."""
Draw = Callable[[Sequence[np.random.Generator], int], dict[str, Array]]
"""(K generators, B rows) -> arrays [K, B, ...]."""


class Noise:
    """The noise of a learner's acts, handed out act by act; the numbers are those of drawing it act by act.

    `draw` must go on where it was: noise of a + b rows is that of a rows, then that of b. The generators run ahead of
    what was handed out, twice as far each time; whoever else uses or saves them calls `settle` before.
    """

    def __init__(self, draw: Draw) -> None:
        """Nothing is drawn yet."""
        self._draw = draw
        self._rngs: Sequence[np.random.Generator] | None = None
        self._rows = self._acts = self._given = 0
        self._before: list[dict[str, object]] = []
        self._drawn: dict[str, Array] = {}

    def next(self, rngs: Sequence[np.random.Generator], rows: int) -> dict[str, Array]:
        """Return the noise of one act, arrays [K, rows, ...]."""
        drawn, at, _ = self.ahead(rngs, rows)
        self.skip(1)
        return {name: values[:, at] for name, values in drawn.items()}

    def ahead(self, rngs: Sequence[np.random.Generator], rows: int) -> tuple[dict[str, Array], int, int]:
        """Return the noise of several acts, arrays [K, acts, rows, ...], which of them is next, and how many are left.

        Whoever uses some of it says so by `skip`.
        """
        if rngs is not self._rngs or rows != self._rows:
            self.settle()
            self._rngs, self._rows = rngs, rows
        if self._given == self._acts:
            self._draw_ahead(rngs, rows)
        return self._drawn, self._given, self._acts - self._given

    def skip(self, acts: int) -> None:
        """Count acts whose noise has been used; -1 where the last one's is to be used again."""
        self._given += acts

    def settle(self) -> None:
        """Put the generators where drawing act by act would have left them."""
        if self._rngs is not None and self._given < self._acts:
            for rng, state in zip(self._rngs, self._before, strict=True):
                rng.bit_generator.state = state
            self._draw(self._rngs, self._given * self._rows)
        self._rngs, self._acts, self._given = None, 0, 0

    def _draw_ahead(self, rngs: Sequence[np.random.Generator], rows: int) -> None:
        acts = self._acts = min(max(1, 2 * self._acts), max(1, ROWS // rows))
        self._before = [dict(rng.bit_generator.state) for rng in rngs]
        drawn = self._draw(rngs, acts * rows)
        self._drawn = {name: v.reshape(len(v), acts, rows, *v.shape[2:]) for name, v in drawn.items()}
        self._given = 0
