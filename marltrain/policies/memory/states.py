"""Global states: one for each batch step and environment, stored once for all players, and those of ended episodes."""

from __future__ import annotations

import math
from collections.abc import Collection
from typing import Any

import numpy as np

from marltrain.core.errors import ConfigError, SaveError
from marltrain.core.layout import Array
from marltrain.core.spec import MOST_STATE, EnvSpec, Step
from marltrain.policies.memory.ends import EndTable, check_ends
from marltrain.policies.memory.joined import JoinedObservations, joined_size
from marltrain.policies.memory.mirror import Mirror
from marltrain.policies.memory.rows import Rows
from marltrain.storage.checks import finite, within
from marltrain.storage.state import State

OWN, JOINED = "state", "observations"
"""Kinds of global states, see `batch.StateNeed`."""


def kind_of(spec: EnvSpec, asked: str) -> str:
    """Return the kind that is stored for the kind that a learner asks for: an environment may have no own state."""
    return JOINED if spec.state_shape is None else asked


def state_size(spec: EnvSpec, asked: str) -> int:
    """Return the number of values of a global state.

    Raises ConfigError for states of more than MOST_STATE values, and for images, which are not joined.
    """
    own = spec.state_shape if kind_of(spec, asked) == OWN else None
    size = joined_size(spec) if own is None else math.prod(own)
    if size > MOST_STATE:
        raise ConfigError(_too_large(spec, size, own=own is not None))
    return size


def _too_large(spec: EnvSpec, size: int, *, own: bool) -> str:
    if own:
        what = "the global state (env.state())"
        remedy = (
            'make agents that read the joined observations instead (critic_input="joint", with a mixer '
            'mixer_input="joint") or that learn alone (ppo, dqn), or let state() return a short vector'
        )
    else:
        what = "the joined observations of all players, a global state,"
        remedy = (
            'make agents that learn alone (ppo, dqn), or with critic_input="own", or give the environment a method '
            "state() that returns a short vector"
        )
    return (
        f"{spec.name}: {what} of {size:,} values takes {size * 4 / 1e6:,.1f} MB as float32 for each env step that is "
        f"learned from, and as many inputs of a network; at most {MOST_STATE:,} values are accepted: {remedy}"
    )


def states_size(spec: EnvSpec, num_envs: int, kind: str) -> int:
    """Return the bytes of the states of one batch step."""
    return num_envs * (4 * state_size(spec, kind) + 8)


class GlobalStates:
    """The global states of the batch steps that the rings hold.

    now, oldest: batch steps of the newest and the oldest state; now is -1 before the first.
    values: [1, C, E, S] float32; the states of batch step t are in slot t % C.
    mirrors: see `Ring`.
    final: [1, C, E] int64; where an episode ended, -2-k for entry k of `ends`, the state at its end, in the slot of the
        batch step that shows the next episode; -1 elsewhere.
    """

    def __init__(self, spec: EnvSpec, num_envs: int, capacity: int, kind: str) -> None:
        """Allocate the states of `capacity` batch steps; raises ConfigError for images, which are not joined."""
        self.kind, self.num_envs, self.size = kind, num_envs, state_size(spec, kind)
        self._join = JoinedObservations(spec) if self.kind == JOINED else None
        self._fresh = np.ones(num_envs, bool)  # environments whose newest state belongs to no running episode
        self.now, self.oldest = -1, 0
        self.mirrors: dict[str, Mirror] = {}
        self._allocate(capacity)
        self.ends = EndTable({OWN: self.values}, None)

    def record_step(self, step: Step, capacity: int) -> None:
        """Store the states of a Step.  capacity: batch steps that the largest ring holds."""
        if capacity > self.capacity:
            self._grow(capacity)
        previous = self.values[0, self.now % self.capacity]
        state, final = self._states(previous, step)
        self.now += 1
        self.oldest = max(self.oldest, self.now - self.capacity + 1)
        slot = self.now % self.capacity
        ended = self.final[0, slot]
        self.ends.free(-2 - ended[ended < -1])
        ended[...] = -1
        self.values[0, slot] = state
        self._keep_final(slot, np.flatnonzero(step.ended), final)

    @property
    def axes(self) -> tuple[int, int, int]:
        """(1, C, E), the leading axes of the columns."""
        return 1, self.capacity, self.num_envs

    def mirrored(self) -> dict[str, tuple[Array, Array | None]]:
        """Return the states, with those of the end table; see `mirror`."""
        return {OWN: (self.values, self.ends.obs[OWN])}

    def advanced(self, begun: int) -> None:
        """Update the counters after compiled code stored `begun` batch steps."""
        self.now += begun
        self.oldest = max(self.oldest, self.now - self.capacity + 1)

    def abandon(self, envs: Array | None) -> None:
        """Forget the running episodes of all environments or of `envs`; see `Ring.abandon`."""
        self._fresh[slice(None) if envs is None else envs] = True

    def restart(self, step: Step, envs: Array) -> None:
        """Replace the newest states of the environments `envs` by those of new episodes; see `Ring.restart`."""
        self.abandon(envs)
        slot = self.now % self.capacity
        newest = self.values[0, slot]
        lost = envs[self.final[0, slot, envs] == -1]  # rows of parts that ended now may lead to these states
        self._keep_final(slot, lost, newest)
        newest[envs] = self._states(newest, step)[0][envs]

    def at(self, rows: Rows, cells: Array) -> Array:
        """Return the states [*cells.shape, S] at the decisions of rows."""
        return self._read(self.places_at(rows, cells))

    def after(self, rows: Rows, cells: Array, pointers: Array) -> Array:
        """Return the states [*cells.shape, S] after rows whose `next` is `pointers`, which are closed.

        If a player's part ended while the episode went on, this is the state of the Step that ended it.
        """
        return self._read(self.places_after(rows, cells, pointers))

    def states(self, places: Array, following: Array) -> tuple[Array, Array]:
        """Return the states [*places.shape, S] at places, and those at the places `following`."""
        return self._read(places), self._read(following)

    def places_at(self, rows: Rows, cells: Array) -> Array:
        """Return the places [*cells.shape] of the states at the decisions of rows: slot * E + environment."""
        slots = cells // rows.num_envs % rows.capacity
        return self.places_of(rows.now - (rows.now - slots) % rows.capacity, cells % rows.num_envs)

    def places_after(self, rows: Rows, cells: Array, pointers: Array) -> Array:
        """Return the places of the states after rows, see `after`; -2-k for entry k of `ends`."""
        return self._or_final(rows.closed_at(pointers), cells % self.num_envs, pointers < -1)

    def places_of(self, times: Array, envs: Array) -> Array:
        """Return the places of the states of batch steps."""
        places: Array = (times % self.capacity) * self.num_envs + envs
        return places

    def places_following(self, times: Array, envs: Array) -> Array:
        """Return the places of the states after batch steps, at the next one or the end; -2-k for entry k of `ends`."""
        return self._or_final(times + 1, envs, np.True_)

    def _or_final(self, times: Array, envs: Array, over: Any) -> Array:
        """Return the places of the states of batch steps, or where `over`, of episodes that ended with them."""
        entries = self.final[0, times % self.capacity, envs]
        return np.where(over & (entries < -1), entries, self.places_of(times, envs))

    def check_shown(self, step: Step, envs: Array) -> None:
        """Raise SaveError unless the newest states of `envs` [n] are those of a Step; `Streams` checks observations."""
        if self._join is None and step.state is not None:
            differs = (self.values[0, self.now % self.capacity, envs] != step.state[envs]).any(-1)
            if differs.any():
                raise SaveError(f"the memory's newest global state of environment {envs[differs][0]} is another one")

    def state(self) -> State:
        """Return the complete state, oldest batch step first."""
        held = self._held()
        state = State.joined(ends=self.ends.state())
        state.info |= {"capacity": self.capacity, "now": self.now, "oldest": self.oldest}
        state.arrays |= {"values": self.values[:, held], "final": self.final[:, held]}
        return state

    def restore(self, state: State, rings: Collection[Rows]) -> None:
        """Load what `state` returned into empty states; raises SaveError if it is invalid or does not fit.

        rings: the restored rings.
        """
        capacity, now, oldest = state.count("capacity", 1), state.count("now"), state.count("oldest")
        needed = max(ring.capacity for ring in rings), max(ring.now for ring in rings), min(r.oldest for r in rings)
        if (capacity, now) != needed[:2] or not now - capacity < oldest <= needed[2]:
            raise SaveError(
                f"{state.name}: the global states of batch steps {oldest} to {now}, of at most {capacity}, do not fit "
                f"the rows of batch steps {needed[2]} to {needed[1]}, of at most {needed[0]}"
            )
        shape = (1, now + 1 - oldest, self.num_envs)
        values, final = state.array("values", np.float32, (*shape, self.size)), state.array("final", np.int64, shape)
        finite(state.place("values"), values)
        ends = state.part("ends")
        within(state.place("final"), final, -1 - ends.any_array("time").size, -1)
        check_ends(ends, final, now, self.ends.obs, None)
        self._allocate(capacity)
        self.now, self.oldest = now, oldest
        self.values[:, self._held()], self.final[:, self._held()] = values, final
        self.ends.load(ends)
        self._fresh[...] = False

    def _keep_final(self, slot: int, envs: Array, states: Array) -> None:
        """Store the states [E, S] of the environments `envs` [n] as those at the end of their episodes."""
        if len(envs):
            entries = self.ends.add({OWN: states[None]}, None, np.zeros_like(envs), envs, self.now)
            self.final[0, slot, envs] = -2 - entries

    def _states(self, previous: Array, step: Step) -> tuple[Array, Array]:
        """Return the states [E, S] of the running episodes and of those that ended."""
        if self._join is not None:
            state, final = self._join(previous, step, self._fresh)
        elif step.state is None or step.final_state is None:
            raise ConfigError("the environments publish no global state: make them with with_state=True")
        else:
            state, final = step.state, step.final_state
        self._fresh[...] = False
        return state, final

    def _read(self, places: Array) -> Array:
        """Return states [*places.shape, S]; those at negative places from the end table."""
        ended = places < 0
        states: Array = self.values.reshape(-1, self.size).take(np.where(ended, 0, places), axis=0)
        if np.count_nonzero(ended):
            states[ended] = self.ends.obs[OWN][-2 - places[ended]]
        return states

    def _held(self) -> Array:
        """Return the slots of the states, oldest first."""
        return np.arange(self.oldest, self.now + 1) % self.capacity

    def _allocate(self, capacity: int) -> None:
        self.capacity = capacity
        self.values = np.zeros((1, capacity, self.num_envs, self.size), np.float32)
        self.final = np.full((1, capacity, self.num_envs), -1, np.int64)

    def _grow(self, capacity: int) -> None:
        """Raise the capacity; every state keeps its time."""
        values, final = self.values[:, self._held()], self.final[:, self._held()]
        self._allocate(capacity)
        self.values[:, self._held()], self.final[:, self._held()] = values, final
