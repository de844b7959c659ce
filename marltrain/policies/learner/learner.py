"""Learner: K agents computed together; it owns their weights, target networks, moments and random streams."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from marltrain.core.errors import ConfigError
from marltrain.core.layout import Array
from marltrain.policies.batches.batch import Acted, ActInputs
from marltrain.policies.learner.actor import Actor
from marltrain.policies.learner.copies import ActingCopies
from marltrain.policies.memory.needs import Needs
from marltrain.policies.memory.readers import Reader
from marltrain.policies.memory.streams import Streams
from marltrain.storage.state import State

if TYPE_CHECKING:
    from marltrain.policies.learner.measurements import Measurements
    from marltrain.policies.learner.planned.planned_updates import PlannedUpdates

PURPOSES = ("act", "sample", "update")


@dataclass(frozen=True)
class UpdateSchedule:
    """Update schedule of a learner; None means the trainer's value.

    update_freq: env steps between updates.
    batch_size: rows of a batch or minibatch.
    default_update_freq, default_batch_size: the algorithm's own, used unless the trainer's values are given.
    update_per_step: gradient passes per env step (off-policy only).
    learning_starts: env steps before the first update (off-policy only).
    epochs: passes over a rollout (on-policy only).
    minibatches: minibatches per epoch, in place of a batch size (on-policy only).
    replay_ratio: batches of sampled sequences after each rollout (on-policy with `Needs.sequence` only).
    least_rows: smallest number of rows in a minibatch; an update is delayed until there are as many (on-policy only).
    """

    update_freq: int | None = None
    batch_size: int | None = None
    default_update_freq: int | None = None
    default_batch_size: int | None = None
    update_per_step: float = 1.0
    learning_starts: int = 0
    minibatches: int | None = None
    epochs: int = 1
    least_rows: int = 1
    replay_ratio: int = 0

    def with_common(self, common: Mapping[str, Any], who: str) -> UpdateSchedule:
        """Return the schedule with current values of the hyperparameters that all agents of a learner share.

        who: name of the algorithm.  Raises ConfigError for a batch size without effect or with too few rows.
        """
        schedule = replace(self, **{name: value for name, value in common.items() if name in vars(self)})
        if schedule.batch_size == self.batch_size:
            return schedule
        if self.minibatches is not None:
            raise ConfigError(
                f"{who}: batch_size={schedule.batch_size} has no effect with minibatches={self.minibatches}: make the "
                "agent without minibatches"
            )
        if schedule.batch_size is not None and schedule.batch_size < self.least_rows:
            raise ConfigError(
                f"{who}: batch_size={schedule.batch_size} is too small: the normalization of advantages takes "
                f"{self.least_rows} rows"
            )
        return schedule


class BegunUpdate(NamedTuple):
    """An update that has been begun; on a GPU, its operations may be under way.

    result: waits for them and returns the metrics [K]; call it once.
    skipped: name of a metric -> [K] bool, the agents for which it was not computed; it is NaN.
    """

    result: Callable[[], dict[str, Array]]
    skipped: Mapping[str, Array]


class Learner:
    """K agents computed together; row k is agent k. The interface between the training loop and the agents.

    num_agents: K.
    actor: computes the acts, if they can be compiled or computed ahead of time; else None.
    needs: the data required for learning, or None if the learner never learns.
    update_schedule: when and how often it updates.
    when_not_finite: the sentence about the weights in the error for a loss that is not finite.
    gradient_steps: [K] int64, gradient passes so far.
    begins_updates: whether `begin_update` can begin updates, whose operations a GPU carries out meanwhile.
    measured: further quantities that its updates may measure, or None if it measures none.
    skipped: name of a metric -> [K] bool, the agents for which the last update did not compute it; it is NaN.
    """

    num_agents: int = 1
    actor: Actor | None = None
    needs: Needs | None = None
    update_schedule: UpdateSchedule = UpdateSchedule()
    when_not_finite: str = "Its weights may have been moved by it."
    begins_updates: bool = False
    measured: Measurements | None = None
    gradient_steps: Array
    skipped: Mapping[str, Array] = MappingProxyType({})

    def act(self, inputs: ActInputs, *, turn: Array, rngs: Any) -> Acted:
        """Choose actions [K, B, ...]; those of rows without `turn` [K, B] are arbitrary.

        inputs: without noise and settings, which the learner adds.  rngs: K generators, see `rngs`.
        """
        raise TypeError(f"{type(self).__name__} must define act")

    def rngs(self, purpose: str) -> Any:
        """Return K generators for "act", "sample", "update" or "test"; those for "test" are reseeded at every call."""
        return ()

    def gammas(self) -> Array:
        """Return each agent's discount per decision, [K] float64."""
        return np.full(self.num_agents, 0.99)

    def apply_schedules(self, env_steps: int) -> None:
        """Set all scheduled settings to their values after `env_steps` env steps of the run."""

    def reader(self, streams: Streams, seats: Sequence[Sequence[int]]) -> Reader:
        """Return the reader of the streams; agent k learns from the players `seats[k]`."""
        if self.needs is None:
            raise TypeError(f"{type(self).__name__} never learns: it needs no reader")
        return streams.reader(seats, self.needs)

    def gather_on_device(self, reader: Reader, rows: int) -> str:
        """Let a reader gather batches on the GPU on which the learner computes; return why it is not used so, or "".

        rows: those of an agent in a batch of replay.
        """
        return ""

    def update(self, batch: Any, *, learn: Array, batch_size: int) -> dict[str, Array]:
        """Update the agents where `learn` [K] is True from a batch [K, B, ...]; returns metrics [K]."""
        raise TypeError(f"{type(self).__name__} never learns")

    def begin_update(self, batch: Any, *, learn: Array, batch_size: int) -> BegunUpdate:
        """Begin the same update, without waiting for its metrics, if `begins_updates` is True."""
        raise TypeError(f"{type(self).__name__} does not begin updates")

    def planned_updates(self, reader: Reader, batch_size: int) -> PlannedUpdates | None:
        """Return the updates that compiled code makes between batch steps, or None if it makes none."""
        return None

    def obstacle(self) -> str | None:
        """Return why updates cannot be made in compiled code between batch steps, "" if nothing hinders them.

        None if the learner never makes them there, because it has no compiled gradient steps for it.
        """
        return None

    def fork(self, who: str, wait: Callable[[], object]) -> ActingCopies:
        """Act with copies of the networks, so that another thread can update the originals; return the copies.

        who: the agents' seats, for the error.  wait: waits for that thread; see `ActingCopies`.
        Raises ConfigError if the learner does not support copies.
        """
        raise ConfigError(
            f'collect="overlap" needs agents of marltrain\'s own algorithms, over NetworkSpecs and without strategy=; '
            f"the agent of {who} is of another kind"
        )

    def loop_state(self) -> State:
        """Return the state of the running loop that the agents' states do not hold; empty by default."""
        return State()

    def restore_loop(self, state: State) -> None:
        """Restore the state that `loop_state` returned."""

    def close(self) -> None:
        """End the processes or threads of the learner; the next update starts them again."""
