"""Noise drawn for many acts at once, because a call costs much more than its numbers."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from marltrain.layout import Array

ROWS = 2048
"""Maximum number of rows per agent in one draw."""
Draw = Callable[[Sequence[np.random.Generator], int], dict[str, Array]]
"""(K generators, B rows) -> arrays [K, B, ...]."""


class Noise:
    """Noise of a learner's acts, drawn ahead in blocks; the numbers are equal to those of drawing per act.

    `draw` must be sequential: noise of a + b rows is the noise of a rows followed by that of b rows. Each block is
    twice as long as the last, up to `ROWS`. The generators are therefore ahead of the used noise. Call `settle` before
    any other use of them and before saving them.
    """

    def __init__(self, draw: Draw) -> None:
        """Store the draw function, without drawing."""
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
        """Return (noise of several acts [K, acts, rows, ...], index of the next act, number of acts left).

        The caller counts used acts with `skip`.
        """
        if rngs is not self._rngs or rows != self._rows:
            self.settle()
            self._rngs, self._rows = rngs, rows
        if self._given == self._acts:
            self._draw_ahead(rngs, rows)
        return self._drawn, self._given, self._acts - self._given

    def skip(self, acts: int) -> None:
        """Count `acts` acts as used; -1 makes the last act's noise available again."""
        self._given += acts

    def settle(self) -> None:
        """Reset the generators to the position after the used noise, as if drawn per act."""
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
