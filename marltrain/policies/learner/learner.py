"""Learner: K agents computed together; it owns their weights, target networks, moments and random streams."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from marltrain.errors import ConfigError
from marltrain.layout import Array, Obs
from marltrain.policies.batch import Acted, Needs
from marltrain.policies.memory.readers import Reader
from marltrain.policies.memory.streams import Streams
from marltrain.state import State

if TYPE_CHECKING:
    from marltrain.policies.compiled.acting import CompiledActing
    from marltrain.policies.compiled.replay_update import CompiledUpdates

PURPOSES = ("act", "sample", "update")


@dataclass(frozen=True)
class Pace:
    """Update schedule of a learner; None means the trainer's value.

    update_freq: env steps between updates.
    batch_size: rows of a batch or minibatch.
    update_per_step: gradient passes per env step (off-policy only).
    learning_starts: env steps before the first update (off-policy only).
    epochs: passes over a rollout (on-policy only).
    minibatches: minibatches per epoch, in place of a batch size (on-policy only).
    least_rows: smallest number of rows in a minibatch; an update is delayed until there are as many (on-policy only).
    """

    update_freq: int | None = None
    batch_size: int | None = None
    update_per_step: float = 1.0
    learning_starts: int = 0
    minibatches: int | None = None
    epochs: int = 1
    least_rows: int = 1


class Learner:
    """K agents computed together; row k is agent k. The interface between the training loop and the agents.

    settings_version: changes whenever a setting of an agent changes, except by its schedule.
    num_agents: K.
    acts_ahead: whether `take_back` works, and the action of a row does not depend on the other rows.
    needs: the data required for learning, or None if the learner never learns.
    pace: the update schedule.
    when_not_finite: the sentence about the weights in the error for a loss that is not finite.
    gradient_steps: [K] int64, gradient passes so far.
    """

    settings_version: int = 0
    num_agents: int = 1
    acts_ahead: bool = False
    needs: Needs | None = None
    pace: Pace = Pace()
    when_not_finite: str = "Its weights may have been moved by it."
    gradient_steps: Array

    def act(self, obs: Obs, legal: Array | None, carry: Any, *, turn: Array, explore: Array, rngs: Any) -> Acted:
        """Choose actions for observations [K, B, ...]; actions of rows without `turn` [K, B] are arbitrary.

        explore: [K, B] bool.  carry: the recurrent state or None.  rngs: K generators, see `rngs`.
        """
        raise TypeError(f"{type(self).__name__} must define act")

    def take_back(self) -> None:
        """Undo the last act, so that the next act draws the same noise; requires `acts_ahead`."""
        raise TypeError(f"{type(self).__name__} takes no act back")

    def native(self) -> CompiledActing | None:
        """Return the compiled form of `act`, or None if the algorithm or network has no compiled form."""
        return None

    def ready(self, acting: CompiledActing, rngs: Any) -> tuple[int, int]:
        """Prepare acts for compiled code; return the index of the next act and the number of prepared acts."""
        raise TypeError(f"{type(self).__name__} does not act in compiled code")

    def acted(self, acts: int) -> None:
        """Record that compiled code has made `acts` of the prepared acts."""

    def native_updates(self, reader: Reader, batch_size: int) -> CompiledUpdates | None:
        """Return the compiled form of `update`, or None if the algorithm or reader has no compiled form."""
        return None

    def updated(self, learn: Array, updates: int) -> None:
        """Count the updates that compiled code has made for the agents where `learn` [K] is True."""
        raise TypeError(f"{type(self).__name__} does not learn in compiled code")

    def rngs(self, purpose: str) -> Any:
        """Return K generators for "act", "sample", "update" or "test"; those for "test" are reseeded at every call."""
        return ()

    def gammas(self) -> Array:
        """Return each agent's discount per decision, [K] float64."""
        return np.full(self.num_agents, 0.99)

    def at(self, env_steps: int) -> None:
        """Set all scheduled settings to their values after `env_steps` env steps of the run."""

    def reader(self, streams: Streams, seats: Sequence[Sequence[int]]) -> Reader:
        """Return the reader of the streams; agent k learns from the players `seats[k]`."""
        if self.needs is None:
            raise TypeError(f"{type(self).__name__} never learns: it needs no reader")
        return streams.reader(seats, self.needs)

    def update(self, batch: Any, *, learn: Array, batch_size: int) -> dict[str, Array]:
        """Update the agents where `learn` [K] is True from a batch [K, B, ...]; returns metrics [K]."""
        raise TypeError(f"{type(self).__name__} never learns")

    def act_with_copies(self, who: str, rest: Callable[[], object]) -> None:
        """Act with copies of the networks, so that another thread can update the originals.

        who: the agents' seats, for the error.
        rest: function that waits for that thread; called before an agent is read or changed.
        Raises ConfigError if the learner does not support copies.
        """
        raise ConfigError(
            f'collect="overlap" needs agents of marltrain\'s own algorithms, over NetworkSpecs and without strategy=; '
            f"the agent of {who} is none"
        )

    def renew_copies(self) -> None:
        """Copy the current weights into the networks that it acts with."""

    def act_directly(self) -> None:
        """Act with the networks that it trains; this is the default."""

    def loop_state(self) -> State:
        """Return the state of the running loop that the agents' states do not hold; empty by default."""
        return State()

    def restore_loop(self, state: State) -> None:
        """Restore the state that `loop_state` returned."""

    def close(self) -> None:
        """End the processes or threads of the learner; the next update starts them again."""
