"""PhaseDraws: the random numbers that the phases of updates draw from the generators of a learner's agents."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from marltrain.core.layout import Array
from marltrain.policies.batches.row_draws import drawn_rows
from marltrain.policies.interface.algorithm import Phase


class PhaseDraws:
    """Draws for the rows of one update after another, or ahead for several updates, with the same numbers.

    After `ahead`, the generators are ahead of the numbers that were used. Call `settle` before any other use of them,
    and before saving them.

    version: changes when `settle` gives back numbers: those that are left of the last `ahead` must be drawn again.
    """

    def __init__(self, phases: Sequence[Phase], rngs: Sequence[np.random.Generator]) -> None:
        """Take the phases of K agents and the agents' generators."""
        self._draws = {number: phase.draw for number, phase in enumerate(phases) if phase.draw is not None}
        self._rngs, self._before = rngs, list[dict[str, object]]()
        self._making, self._rows, self._used = np.zeros((0, len(phases), len(rngs)), bool), 0, 0
        self.version = 0

    def __bool__(self) -> bool:
        """Return whether any phase draws random numbers."""
        return bool(self._draws)

    def __contains__(self, number: int) -> bool:
        """Return whether a phase draws random numbers."""
        return number in self._draws

    def of_phase(self, number: int, rows: Array) -> dict[str, Any]:
        """Return the numbers of a phase, [K, B, ...] by name, for the agents' rows where `rows` [K, B] is True."""
        self.settle()
        return drawn_rows(self._draws[number], self._rngs, rows)

    def add(self, made: dict[int, dict[str, Any]], rows: Array, due: Array, place: int, places: int) -> None:
        """Add the numbers of a minibatch to arrays [places, K, B, ...] by the numbers of the phases.

        rows: [K, B] bool, see `of_phase`.  due: [F, K] bool, the agents that draw for each phase.
        """
        for number in self._draws:
            if np.count_nonzero(due[number]):
                drawn = self.of_phase(number, rows & due[number][:, None])
                _place(made.setdefault(number, {}), drawn, place, places)

    def example(self, rows: int) -> dict[int, dict[str, Any]]:
        """Return arrays as those of an update, by the numbers of the phases; the agents' generators do not change."""
        rngs = [np.random.default_rng(0) for _ in self._rngs]
        return {number: dict(draw(rngs, rows)) for number, draw in self._draws.items()}

    def ahead(self, making: Array, rows: int) -> dict[int, dict[str, Any]]:
        """Return the numbers of U updates, [U, K, rows, ...] by the numbers of the phases, as single updates draw them.

        making: [U, F, K] bool, the agents that draw for each of F phases; zeros stand for the others.
        The caller counts used updates with `use`.
        """
        self.settle()
        if not self:
            return {}
        self._before = [dict(rng.bit_generator.state) for rng in self._rngs]
        self._making, self._rows, self._used = making, rows, 0
        return self._drawn(making)

    def use(self, updates: int) -> None:
        """Count `updates` updates whose numbers have been used."""
        self._used += updates

    def settle(self) -> None:
        """Reset the generators to the position after the used numbers, as if they had been drawn for each update."""
        if self._used < len(self._making):
            for rng, state in zip(self._rngs, self._before, strict=True):
                rng.bit_generator.state = state
            self._drawn(self._making[: self._used])
            self.version += 1
        self._making, self._used = self._making[:0], 0

    def _drawn(self, making: Array) -> dict[int, dict[str, Any]]:
        made: dict[int, dict[str, Any]] = {}
        counts, rngs, rows = making.sum(-1).tolist(), self._rngs, self._rows
        for update, phases in enumerate(counts):
            for number, draw in self._draws.items():
                if phases[number] == len(rngs):
                    _place(made.setdefault(number, {}), draw(rngs, rows), update, len(making))
                elif phases[number]:
                    own = np.repeat(making[update, number, :, None], rows, 1)
                    _place(made.setdefault(number, {}), drawn_rows(draw, rngs, own), update, len(making))
        return made


def _place(made: dict[str, Any], drawn: Mapping[str, Any], update: int, updates: int) -> None:
    """Copy the arrays of an update into arrays [updates, ...], which are made if they are missing."""
    for name, values in drawn.items():
        if isinstance(values, Mapping):
            _place(made.setdefault(name, {}), values, update, updates)
        elif values is not None:
            if name not in made:
                made[name] = np.zeros((updates, *values.shape), values.dtype)
            made[name][update] = values
