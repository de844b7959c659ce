"""The length of fragments, and how far runners work ahead of the updates."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from marltrain.trainer.updating.scheduler import UpdateScheduler

SHORT = 32
"""Batch steps of a fragment that are worth a message; shorter ones span several updates if the lag allows it."""


class Lookahead(Protocol):
    """Decides when the next fragment is ordered, and how long it is."""

    def steps(self, ahead: int, most: int) -> int:
        """Return the batch steps of the next fragment, or 0 if it must not be ordered now.

        ahead: batch steps that are ordered and not used yet.  most: batch steps until a test or the end of a budget.
        """


class InStep:
    """One fragment at a time, until the next update: all acts use the newest weights."""

    def __init__(self, schedulers: Sequence[UpdateScheduler], longest: int) -> None:
        """Take the schedulers of all learners; longest: maximum batch steps of a fragment."""
        self._schedulers, self._longest = schedulers, longest

    def steps(self, ahead: int, most: int) -> int:
        """See `Lookahead`."""
        if ahead:
            return 0
        return min([most, self._longest, *(scheduler.steps_left for scheduler in self._schedulers)])


class WorkAhead:
    """Every fragment is ordered as early as the lag of its last batch step allows.

    The lag of a batch step is the number of updates between the weights that it is acted with, which are those at the
    time of the order, and the update that reads it. It is counted for each learner, and the largest one counts. The
    lengths of fragments and their weights follow from counts alone, never from the time that runners take.
    """

    def __init__(
        self, schedulers: Sequence[UpdateScheduler], max_lag: int, most_ahead: int, most_fragments: int
    ) -> None:
        """Take the schedulers of all learners.

        most_ahead: maximum batch steps that are ordered and not used.  most_fragments: the same for fragments.
        """
        self._schedulers, self._max_lag = schedulers, max_lag
        shortest = min(scheduler.period for scheduler in schedulers)
        self._updates = max(1, min(-(-SHORT // shortest), (max_lag + 1) // 2))  # of a fragment
        self._most_ahead = min(most_ahead, most_fragments * self._updates * shortest)
        self._longest = max(1, most_ahead // 2)

    def steps(self, ahead: int, most: int) -> int:
        """See `Lookahead`. Tests and budgets end no fragment: `settle` returns to the batch step that was used."""
        ends = (_update_after(scheduler, ahead, self._updates) for scheduler in self._schedulers)
        end = min(ahead + self._longest, *ends)
        if ahead and end > self._most_ahead:
            return 0
        lag = max(_updates_before(scheduler, end - 1) for scheduler in self._schedulers)
        return end - ahead if lag <= self._max_lag else 0


def _update_after(scheduler: UpdateScheduler, steps: int, count: int) -> int:
    """Return the batch steps from now to the `count`-th update that is more than `steps` batch steps away."""
    left, period = scheduler.steps_left, scheduler.period
    first = left if steps < left else left + ((steps - left) // period + 1) * period
    return first + (count - 1) * period


def _updates_before(scheduler: UpdateScheduler, steps: int) -> int:
    """Return the number of updates in the next `steps` batch steps."""
    left, period = scheduler.steps_left, scheduler.period
    return 0 if steps < left else (steps - left) // period + 1
