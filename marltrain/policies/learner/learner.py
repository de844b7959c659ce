"""Learner: K agents computed together. It is the only owner of weights, targets, moments and random streams."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from marltrain.errors import ConfigError
from marltrain.files import State
from marltrain.layout import Array, Obs
from marltrain.policies.batch import Acted, Needs
from marltrain.policies.memory.readers import Reader
from marltrain.policies.memory.streams import Streams

if TYPE_CHECKING:
    from marltrain.policies.compiled.acting import CompiledActing
    from marltrain.policies.compiled.replay_update import CompiledUpdates

PURPOSES = ("act", "sample", "update")


@dataclass(frozen=True)
class Pace:
    """When a learner wants to learn, in env steps; None: the trainer's value.

    update_per_step, learning_starts: off-policy only: gradient passes an env step, and how long none are made.
    epochs, minibatches: on-policy only: passes over a rollout, and minibatches of each, in place of a batch size.
    least_rows: on-policy only: rows without which a minibatch cannot be learned from; an update waits for so many.
    """

    update_freq: int | None = None
    batch_size: int | None = None
    update_per_step: float = 1.0
    learning_starts: int = 0
    minibatches: int | None = None
    epochs: int = 1
    least_rows: int = 1


class Learner:
    """K agents computed together; row k is agent k. What the loop talks to.

    acts_ahead: whether an act can be taken back, and rows decide alike whatever the others are shown.
    needs: what it must be given to learn, or None when it never learns.
    gradient_steps: [K] int64, gradient passes so far.
    edition: changes whenever its agents' settings or random streams were set anew, other than by their schedules.
    """

    settings_version: int = 0
    num_agents: int = 1
    acts_ahead: bool = False
    needs: Needs | None = None
    pace: Pace = Pace()
    when_not_finite: str = "Its weights may have been moved by it."
    gradient_steps: Array

    def act(self, obs: Obs, legal: Array | None, carry: Any, *, turn: Array, explore: Array, rngs: Any) -> Acted:
        """Decide for [K, B, ...] observations; rows without `turn` [K, B] may be anything. explore: [K, B] bool."""
        raise TypeError(f"{type(self).__name__} must define act")

    def take_back(self) -> None:
        """Take the last act back: the next one draws the same noise. Only where it `acts_ahead`."""
        raise TypeError(f"{type(self).__name__} takes no act back")

    def native(self) -> CompiledActing | None:
        """Return acts of its agents for compiled code to make, or None where they are not of a kind that it knows."""
        return None

    def ready(self, acting: CompiledActing, rngs: Any) -> tuple[int, int]:
        """Get acts ready that compiled code makes: return the number of the next, and how many there may be."""
        raise TypeError(f"{type(self).__name__} does not act in compiled code")

    def acted(self, acts: int) -> None:
        """Take note that so many of them were made."""

    def native_updates(self, reader: Reader, batch_size: int) -> CompiledUpdates | None:
        """Return its updates for compiled code to make, or None where they are not of a kind that it knows."""
        return None

    def updated(self, learn: Array, updates: int) -> None:
        """Count updates of the agents that `learn` [K] bool, which compiled code has made."""
        raise TypeError(f"{type(self).__name__} does not learn in compiled code")

    def rngs(self, purpose: str) -> Any:
        """Return K generators for "act", "sample" or "update", or for "test": those start anew at every call."""
        return ()

    def gammas(self) -> Array:
        """Return each agent's discount a decision, [K] float64."""
        return np.full(self.num_agents, 0.99)

    def at(self, env_steps: int) -> None:
        """Set whatever follows a schedule to its value after `env_steps` env steps of the run."""

    def reader(self, streams: Streams, seats: Sequence[Sequence[int]]) -> Reader:
        """Return how it reads what happened; row k learns from the players `seats[k]`."""
        if self.needs is None:
            raise TypeError(f"{type(self).__name__} never learns: it needs no reader")
        return streams.reader(seats, self.needs)

    def update(self, batch: Any, *, learn: Array, batch_size: int) -> dict[str, Array]:
        """Learn from a batch [K, B, ...]; only rows where `learn` [K] change. Returns metrics [K]."""
        raise TypeError(f"{type(self).__name__} never learns")

    def act_with_copies(self, who: str, rest: Callable[[], object]) -> None:
        """Act with copies of what learns, so that another thread may learn meanwhile; ConfigError where it cannot.

        rest: waits for that thread; called before an agent is read or changed.
        """
        raise ConfigError(
            f'collect="overlap" needs agents of marltrain\'s own algorithms, over NetworkSpecs and without strategy=; '
            f"the agent of {who} is none"
        )

    def renew_copies(self) -> None:
        """Renew the copies that it acts with."""

    def act_directly(self) -> None:
        """Act with what learns, as it does from the start."""

    def loop_state(self) -> State:
        """Return what it keeps of the running loop, beside what its agents are; nothing, unless a kind of it does."""
        return State()

    def restore_loop(self, state: State) -> None:
        """Take back what `loop_state` returned."""

    def close(self) -> None:
        """End whatever it started; it is started anew where the learner learns again."""
