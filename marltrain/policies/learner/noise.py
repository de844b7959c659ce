"""Noise: the random numbers of a learner's acts, drawn ahead."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from marltrain.core.layout import Array

Rngs = Sequence[np.random.Generator]
ROWS, ACTS = 2048, 32
"""Limits up to which a draw of noise grows, in rows per agent and in acts; the larger draw of both counts."""
NUMBERS, NUMBERS_OF_ACTS = 2**20, 2**16
"""Maximum number of random numbers in one draw of several acts: for compiled code, which makes many acts at once, and
for single acts, in which they stay in the processor's cache."""
Draw = Callable[[Rngs, int], dict[str, Array]]
"""(K generators, B rows) -> arrays [K, B, ...]."""


class Noise:
    """Noise of a learner's acts, drawn ahead in blocks; the numbers are equal to those of drawing per act.

    Each block is twice as long as the last, up to `ROWS` or `ACTS`. The generators are therefore ahead of the used
    noise. Call `settle` before any other use of them and before saving them.

    ahead: whether noise may be drawn ahead; if not, each act draws its own.
    """

    def __init__(self, draw: Draw, *, ahead: bool = True, by_rows: bool = True) -> None:
        """Store the draw function, without drawing.

        by_rows: whether the noise of a + b rows is the noise of a rows followed by that of b rows. The noise of several
            acts is then drawn by one call.
        """
        self._draw, self.ahead, self._by_rows = draw, ahead, by_rows
        self._rngs: Sequence[np.random.Generator] | None = None
        self._rows = self._acts = self._given = self._numbers = 0
        self._before: list[dict[str, object]] = []
        self._drawn: dict[str, Array] = {}

    def by(self, draw: Draw) -> Noise:
        """Return noise that another function draws, in the same way."""
        return Noise(draw, ahead=self.ahead, by_rows=self._by_rows)

    def next(self, rngs: Sequence[np.random.Generator], rows: int) -> dict[str, Array]:
        """Return the noise of one act, arrays [K, rows, ...]."""
        drawn, at, _ = self.prepared(rngs, rows, numbers=NUMBERS_OF_ACTS)
        self.skip(1)
        return {name: values[:, at] for name, values in drawn.items()}

    def prepared(
        self, rngs: Sequence[np.random.Generator], rows: int, least: int = 1, numbers: int | None = None
    ) -> tuple[dict[str, Array], int, int]:
        """Return (noise of several acts [K, acts, rows, ...], index of the next act, number of acts left).

        The caller counts used acts with `skip`.
        least: number of acts for which it suffices.  numbers: most numbers drawn for further ones; None: `NUMBERS`.
        """
        if rngs is not self._rngs or rows != self._rows:
            self.settle()
            self._rngs, self._rows = rngs, rows
        if self._acts - self._given < least:
            self._rewind(rngs)
            self._draw_ahead(rngs, rows, least, NUMBERS if numbers is None else numbers)
        return self._drawn, self._given, self._acts - self._given

    def skip(self, acts: int) -> None:
        """Count `acts` acts as used; -1: the last one was not used after all."""
        self._given += acts

    def settle(self) -> None:
        """Reset the generators to the position after the used noise, as if drawn per act."""
        if self._rngs is not None:
            self._rewind(self._rngs)
        self._rngs, self._acts, self._given = None, 0, 0

    def _rewind(self, rngs: Sequence[np.random.Generator]) -> None:
        if self._given < self._acts:
            for rng, state in zip(rngs, self._before, strict=True):
                rng.bit_generator.state = state
            self._acts_of(rngs, self._given, self._rows)

    def _draw_ahead(self, rngs: Sequence[np.random.Generator], rows: int, least: int, numbers: int) -> None:
        most = min(max(ROWS // rows, ACTS), numbers * self._acts // max(1, self._numbers)) if self._acts else 1
        acts = self._acts = max(least, min(2 * self._acts, most)) if self.ahead else least
        self._before = [dict(rng.bit_generator.state) for rng in rngs]
        self._drawn = self._acts_of(rngs, acts, rows)
        self._numbers = sum(values.size for values in self._drawn.values())
        self._given = 0

    def _acts_of(self, rngs: Sequence[np.random.Generator], acts: int, rows: int) -> dict[str, Array]:
        """Draw the noise of several acts, arrays [K, acts, rows, ...]."""
        if self._by_rows:
            drawn = self._draw(rngs, acts * rows)
            return {name: v.reshape(len(v), acts, rows, *v.shape[2:]) for name, v in drawn.items()}
        each = [self._draw(rngs, rows) for _ in range(acts)]
        return {name: np.stack([one[name] for one in each], 1) for name in each[0]} if each else {}
