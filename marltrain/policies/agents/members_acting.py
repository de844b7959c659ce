"""MembersActing: the acts of a set's members in compiled code, called by its address from compiled loops."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

import numpy as np

from marltrain.core.layout import Array
from marltrain.jit.views import address_of, entry
from marltrain.policies.agents.members import Members
from marltrain.policies.agents.members_kernel import DEALT, PART, dealt_program
from marltrain.policies.agents.parts import AgentPart, Rngs, StackPart
from marltrain.policies.backends.base import Backend
from marltrain.policies.compiled.acting import GREEDY, NOTHING, SAMPLE, CompiledActing


class PartActing:
    """A part of a set that acts in compiled code.

    An agent alone draws noise for the rows in which it acts, a stack for all rows in each act.

    actor: of its agents, at present.  kernel: None if compiled code cannot act for them.
    alone: whether it is a single agent.  playing: number of rows that it plays.
    """

    def __init__(self, part: StackPart | AgentPart, given: Mapping[str, Any]) -> None:
        """Take a part, and the arrays that `CompiledActing.set_arrays` gets."""
        self.part, self.actor, self.alone, self.playing = part, part.actor, isinstance(part, AgentPart), 0
        found = None if self.actor is None else self.actor.compiled(part.row)
        self.kernel: CompiledActing | None = None
        if isinstance(found, CompiledActing) and found.rule in (SAMPLE, GREEDY):
            self.kernel = found
            found.set_arrays(**given)
        self._used = np.zeros(given["explore"].size, np.int64)  # at most as many blocks
        self._first: int | None = None

    def prepare(self, rngs: Rngs, rows: int) -> int:
        """Prepare the noise of acts of `rows` rows; return the number of acts for which it suffices."""
        self._first = None
        noise, least = self.part.noise, self.playing if self.alone else 1
        if noise is None or self.actor is None or least == 0:
            return sys.maxsize
        drawn, first, left = noise.prepared(rngs.of(self.part.name), 1 if self.alone else rows, least)
        self._first = self._used[:] = first
        if self.kernel is not None:
            self.kernel.refresh(drawn, self.actor.refreshed(), shared=True)
        return left // least

    def made(self, acts: int) -> None:
        """Count the noise of acts that were made."""
        if self._first is not None and self.part.noise is not None:
            self.part.noise.skip(int(self._used[0]) - self._first if self.alone else acts)

    def fill(self, record: Any, agents: int) -> int:
        """Write a PART; agents: the number of agents in the parts before it.  Return the number of its agents."""
        if self.kernel is None:
            return 0
        record["act"], record["first"], record["by_row"] = self.kernel.address, agents, self.alone
        record["noise"], record["used"] = self._first or 0, address_of(self._used)
        return self.kernel.agents


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
        self._acting: list[PartActing] = []
        self._given: dict[str, Any] = {}

    @property
    def backend(self) -> Backend:
        """The backend of the members."""
        return next(each.actor.backend for each in self._acting if each.actor is not None)

    @property
    def reads_other_rows(self) -> bool:
        """Whether an act in some environments depends on the turns in others."""
        return any(each.alone and each.kernel is not None for each in self._acting)

    def set_arrays(
        self, *, obs: Array, legal: Array | None, explore: Array, action: Array, player: Array | None = None,
        extras: Mapping[str, Array] = NOTHING,
    ) -> None:  # fmt: skip
        """Read and write these arrays from the next act on, [1, B, ...] each; see `CompiledActing.set_arrays`."""
        if player is not None or extras:
            raise TypeError("a set of policies observes no one-hots of players, and returns actions alone")
        self._explore, self._exploring = explore, explore.copy()
        self._given = {"obs": obs, "legal": legal, "explore": self._exploring, "action": action}
        self._acting, rows = [], explore.shape[1]
        self._work: list[Array] = [np.zeros(rows, np.int64), np.zeros(rows, np.int64), np.zeros(obs.shape, np.float32)]
        record = self._record[0]
        for name, array in zip(("picked", "acts", "obs"), self._work, strict=True):
            record[name] = address_of(array)
        record["rows"], record["width"], record["action"] = rows, obs.shape[2], address_of(action)

    def set_turn(self, turn: Array) -> None:
        """Act in the rows in which this array [1, B] bool is True."""
        self._record["turn"] = address_of(turn)

    def deal(self, numbers: Array) -> bool:
        """Set the members that play the rows, [1, B] int64; return whether compiled code can act for them.

        It can if they choose by values, or by samples from the softmax of logits.
        """
        found = self.members.playing(numbers[0])
        if [(part, part.actor) for part, _ in found] != [(each.part, each.actor) for each in self._acting]:
            self._acting = [PartActing(part, self._given) for part, _ in found]
            self._parts = np.zeros(len(found), PART)
            self._record["part"] = address_of(self._parts)
        agents, dealt = 0, np.zeros(numbers.shape[1], np.int64)
        self._exploring[...] = self._explore
        for each, (part, rows) in zip(self._acting, found, strict=True):
            plays = rows >= 0
            each.playing = int(np.count_nonzero(plays))
            if each.playing == 0:
                continue
            if each.kernel is None:
                return False
            dealt[plays] = agents + rows[plays]
            agents += each.kernel.agents
            self._exploring[0, plays] &= ~part.greedy[rows[plays]]
        self._order = np.argsort(dealt, kind="stable")
        self._first = np.searchsorted(dealt[self._order], np.arange(agents + 1))
        self._record["order"], self._record["first"] = address_of(self._order), address_of(self._first)
        return True

    def prepare(self, _acting: Any, rngs: Rngs) -> tuple[int, int]:
        """See `Actor.prepare`."""
        left = min(each.prepare(rngs, self._explore.shape[1]) for each in self._acting)
        playing, agents = [each for each in self._acting if each.playing], 0
        for each, record in zip(playing, self._parts, strict=False):
            agents += each.fill(record, agents)
        self._record["parts"] = len(playing)
        return 0, left

    def made(self, acts: int) -> None:
        """See `Actor.made`."""
        for each in self._acting:
            each.made(acts)

    def start_from(self, carry: None, counts: Array) -> None:
        """Do nothing: the acts carry nothing on, and count no actions."""

    def divide(self, parts: int) -> None:
        """Let parts of an act count the noise that they use, each by itself."""
        self._record["blocks"] = parts

    def carried(self) -> None:
        """Return None, see `start_from`."""
