"""MembersActing: the acts of a set's members in compiled code, called by its address from compiled loops."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

import numpy as np

from marltrain.core.layout import Array
from marltrain.jit.compiling import compiled, program
from marltrain.jit.views import address_of, bools, copy, entry, f32, i64, record_at
from marltrain.policies.agents.members import Members
from marltrain.policies.agents.parts import Rngs, StackPart
from marltrain.policies.backends.base import Backend
from marltrain.policies.compiled.acting import ACT, NOTHING, SAMPLE, CompiledActing, act_at, sample
from marltrain.policies.compiled.network import forward
from marltrain.policies.learner.actor import Noise
from marltrain.policies.learner.frozen_stack import FrozenStack

DEALT = np.dtype([(name, np.int64) for name in ("act", "turn", "order", "first", "picked", "obs")])
"""Arguments of `act_dealt`: addresses.

act: of the ACT of the members' stack of K agents, whose arrays have one row for each seat and environment, [B].
turn: [B] bool.  order: [B] int64, the rows by the agent that plays them.  first: [K + 1] int64, its first one.
picked, obs: [B] int64 and [B, width] float32, work arrays.
"""


@compiled
def act_dealt(address: int, at: int, low: int, high: int, envs: int) -> int:
    """Choose the actions in the environments `low` to `high`, each by its member, with the noise of act `at`; return 0.

    The action of a row without the turn is 0. The arguments are those of `compiled.acting.act`.
    """
    d = record_at(address, DEALT)
    u = act_at(d.act)
    seats = u.rows // envs
    turn, action = bools(d.turn, u.rows), i64(u.action, u.rows)
    for seat in range(seats):
        for row in range(seat * envs + low, seat * envs + high):
            action[row] = action[row] if turn[row] else 0
    start, size = seats * low, 4 * u.width
    picked = i64(d.picked + 8 * start, seats * (high - low))
    for k in range(u.agents):
        count = pick(d, u, k, low, high, envs, picked)
        if count == 0:
            continue
        for i in range(count):
            copy(u.obs + picked[i] * size, d.obs + (start + i) * size, size)
        out = forward(u, d.obs + start * size, count, u.weights + 4 * k * u.size, u.activations + 4 * start * u.kept)
        for i in range(count):
            sample(u, 0, picked[i], at, f32(out + 4 * i * u.choices, u.choices))
    return 0


@compiled
def pick(d: Any, u: Any, k: int, low: int, high: int, envs: int, picked: Any) -> int:
    """Write the rows of agent k that have the turn in the environments `low` to `high`; return their number."""
    first, order, turn = i64(d.first, u.agents + 1), i64(d.order, u.rows), bools(d.turn, u.rows)
    count = 0
    for row in order[first[k] : first[k + 1]]:
        if turn[row] and low <= row % envs < high:
            picked[count] = row
            count += 1
    return count


@functools.cache
def dealt_program() -> Any:
    """Return the compiled `act_dealt`, from the disk cache if it is there."""
    return program(act_dealt, ACT, DEALT)


class MembersActing:
    """The members of a set that act in compiled code; it has the interfaces of `CompiledActing` and of `Actor`.

    address: of the DEALT record.  entry: of `act_dealt`.  extras: none.  counts, settings: nothing.
    """

    def __init__(self, members: Members) -> None:
        """Take the members; before each call `deal` sets those that play."""
        self.members = members
        self.extras: dict[str, tuple[int, ...]] = {}
        self.counts, self.settings = np.zeros((1, 0), np.int64), np.zeros(1, np.float32)
        self._record = np.zeros(1, DEALT)
        self.address, self.entry = address_of(self._record), entry(dealt_program(), 5)
        self._part: StackPart | None = None
        self._stack: FrozenStack | None = None
        self._kernel: CompiledActing | None = None
        self._given: dict[str, Any] = {}

    @property
    def noise(self) -> Noise:
        """The noise of the acts."""
        return self._playing.stack.actor.noise

    @property
    def backend(self) -> Backend:
        """The backend of the members."""
        return self._playing.stack.backend

    @property
    def _playing(self) -> StackPart:
        if self._part is None:
            raise RuntimeError("no members play: call `deal` first")
        return self._part

    def set_arrays(
        self, *, obs: Array, legal: Array | None, explore: Array, action: Array, player: Array | None = None,
        extras: Mapping[str, Array] = NOTHING,
    ) -> None:  # fmt: skip
        """Read and write these arrays from the next act on, [1, B, ...] each; see `CompiledActing.set_arrays`."""
        if player is not None or extras:
            raise TypeError("a set of policies observes no one-hots of players, and returns actions alone")
        self._explore, self._exploring = explore, explore.copy()
        self._given = {"obs": obs, "legal": legal, "explore": self._exploring, "action": action}
        self._kernel, record = None, self._record[0]
        self._picked, self._obs = np.zeros(explore.shape[1], np.int64), np.zeros(obs.shape, np.float32)
        record["picked"], record["obs"] = address_of(self._picked), address_of(self._obs)

    def set_turn(self, turn: Array) -> None:
        """Act in the rows in which this array [1, B] bool is True."""
        self._record["turn"] = address_of(turn)

    def deal(self, numbers: Array) -> bool:
        """Set the members that play the rows, [1, B] int64; return whether compiled code can act for them.

        It can if all of them belong to one stack, which chooses by samples from the softmax of logits.
        """
        stacked = self.members.stacked(numbers[0])
        if stacked is None or not self._use(stacked[0]):
            return False
        part, rows = stacked
        agents = part.stack.size
        self._order = np.argsort(rows, kind="stable")
        self._first = np.searchsorted(rows[self._order], np.arange(agents + 1))
        self._record["order"], self._record["first"] = address_of(self._order), address_of(self._first)
        self._exploring[...] = self._explore & ~part.stack.greedy[rows]
        return True

    def _use(self, part: StackPart) -> bool:
        """Act with the networks of a part; return whether that is possible."""
        if self._kernel is not None and part.stack is self._stack:
            return True
        kernel = part.stack.actor.compiled()
        if not isinstance(kernel, CompiledActing) or kernel.rule != SAMPLE:
            return False
        kernel.set_arrays(**self._given)
        self._part, self._stack, self._kernel = part, part.stack, kernel
        self._record["act"] = kernel.address
        return True

    def prepare(self, _acting: Any, rngs: Rngs) -> tuple[int, int]:
        """See `Actor.prepare`."""
        part, kernel = self._playing, self._kernel
        if kernel is None:
            raise RuntimeError("no members play: call `deal` first")
        noise, first, left = self.noise.prepared(rngs.of(part.name), self._explore.shape[1])
        kernel.refresh_shared(noise)
        return first, left

    def start_from(self, carry: None, counts: Array) -> None:
        """Do nothing: the acts carry nothing on, and count no actions."""

    def divide(self, parts: int) -> None:
        """Do nothing: parts of an act have rows of their own in the work arrays."""

    def carried(self) -> None:
        """Return None, see `start_from`."""
