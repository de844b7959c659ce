"""ActPart: the decisions in a part of a run's environments, on parts of its arrays."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from marltrain.core.layout import Array
from marltrain.core.spec import Step
from marltrain.trainer.collecting.carries import each_array, joined
from marltrain.trainer.collecting.rollout import Actors, Begun, Noises, Recorder


class ActPart:
    """The decisions in the environments `low` to `high`.

    A row of a learner is (seat, environment): the rows of a part are those of its environments, for all seats.
    """

    def __init__(self, whole: Recorder, low: int, high: int) -> None:
        """Take parts of the arrays of actions and extras, into which the decisions are written."""
        actors, self.low, self.high = whole.actors, low, high
        self._num_envs, self._seats = actors.num_envs, [view.seats for view in actors.views]
        self._actors = Actors(actors.spec, actors.learners, high - low, "act", actors.cast)
        self._actors.actions = tuple(actions[:, low:high] for actions in actors.actions)
        extras = {group: {name: column[:, low:high] for name, column in kept.items()}
                  for group, kept in whole.extras.items()}  # fmt: skip
        self._recorder = Recorder(self._actors, whole.streams, extras)
        self._begun: list[Begun] | None = None
        self._seen: tuple[Step, Step] | None = None

    def follow(self, actors: Actors) -> None:
        """Take the carries and the exploring rows of the run."""
        self._actors.exploring = [self._rows(i, rows) for i, rows in enumerate(actors.exploring)]
        self._actors.carries = [each_array(carry, partial(self._rows, i)) for i, carry in enumerate(actors.carries)]

    @property
    def carries(self) -> list[Any]:
        """The carries of each learner, [K, S * part, ...]."""
        return self._actors.carries

    def start(self, step: Step, noises: Sequence[Noises]) -> None:
        """Start the decisions.  step, noises: of all environments."""
        own = [{name: self._rows(i, noise) for name, noise in noises[i].items()} for i in range(len(noises))]
        if self._seen is None or self._seen[0] is not step:  # environments return the same arrays each time
            self._seen = step, step.part(self.low, self.high)
        self._begun = self._actors.start(self._seen[1], own)

    def finish(self) -> None:
        """Write the decisions that were started."""
        begun, self._begun = self._begun, None
        if begun is not None:
            self._recorder.finish(begun)

    def drop(self) -> None:
        """Wait for the decisions that were started, if there are any, and forget them."""
        for act, _ in self._begun or ():
            act.result()
        self._begun = None

    def _rows(self, i: int, array: Array) -> Array:
        """Return the rows of this part from all rows of learner i, [K, S * E, ...]."""
        seats = self._seats[i]
        if seats == 1:
            return array[:, self.low : self.high]
        by_seat = array.reshape(len(array), seats, self._num_envs, *array.shape[2:])[:, :, self.low : self.high]
        return by_seat.reshape(len(array), -1, *array.shape[2:])


def give_back(parts: Sequence[ActPart], actors: Actors) -> None:
    """Give the carries of all parts, in the order of their environments, back to the run."""
    seats = [view.seats for view in actors.views]

    def in_order(i: int, arrays: Sequence[Array]) -> Array:
        split = [array.reshape(len(array), seats[i], -1, *array.shape[2:]) for array in arrays]
        return np.concatenate(split, 2).reshape(len(arrays[0]), -1, *arrays[0].shape[2:])

    for i in range(len(seats)):
        actors.carries[i] = joined([part.carries[i] for part in parts], partial(in_order, i))
