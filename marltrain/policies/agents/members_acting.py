"""MembersActing: the acts of a set's members in compiled code, called by its address from compiled loops."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

import numpy as np

from marltrain.core.layout import Array
from marltrain.jit.views import address_of, entry
from marltrain.policies.agents.members import Members
from marltrain.policies.agents.members_kernel import DEALT, PART, deal_program, dealt_program
from marltrain.policies.agents.parts import AgentPart, Rngs, StackPart
from marltrain.policies.backends.base import Backend
from marltrain.policies.compiled.acting import GREEDY, NOTHING, SAMPLE, CompiledActing


class PartActing:
    """A part of a set that acts in compiled code.

    An agent alone draws noise for the rows in which it acts, a stack for all rows in each act.

    actor: of its agents, at present.  kernel: None if compiled code cannot act for them.
    alone: whether it is a single agent.  agents: the number of agents for which compiled code acts.
    """

    def __init__(self, part: StackPart | AgentPart, given: Mapping[str, Any]) -> None:
        """Take a part, and the arrays that `CompiledActing.set_arrays` gets."""
        self.part, self.actor, self.alone = part, part.actor, isinstance(part, AgentPart)
        found = None if self.actor is None else self.actor.compiled(part.row)
        self.kernel: CompiledActing | None = None
        if isinstance(found, CompiledActing) and found.rule in (SAMPLE, GREEDY):
            self.kernel = found
            found.set_arrays(**given)
        self._used = np.zeros(given["explore"].size, np.int64)  # at most as many blocks
        self.agents = 0 if self.kernel is None else self.kernel.agents
        self._given: int | None = None

    def fill(self, record: Any, begin: int) -> None:
        """Write a PART, which `prepare` updates; begin: the number of agents in the parts before it."""
        self._record, self._begin = record, begin
        record["begin"], record["by_row"], record["used"] = begin, self.alone, address_of(self._used)
        record["act"] = 0 if self.kernel is None else self.kernel.address

    def prepare(self, rngs: Rngs, rows: int, first: Array) -> int:
        """Prepare the noise of acts of `rows` rows; return the number of acts for which it suffices.

        first: see DEALT.
        """
        self._given = None
        noise, least = self.part.noise, int(first[self._begin + self.agents] - first[self._begin]) if self.alone else 1
        if noise is None or self.actor is None or least == 0:
            return sys.maxsize
        drawn, given, left = noise.prepared(rngs.of(self.part.name), 1 if self.alone else rows, least)
        self._given = self._used[:] = self._record["noise"] = given
        if self.kernel is not None:
            self.kernel.refresh(drawn, self.actor.refreshed(), shared=True)
        return left // least

    def made(self, acts: int) -> None:
        """Count the noise of acts that were made."""
        if self._given is not None and self.part.noise is not None:
            self.part.noise.skip(int(self._used[0]) - self._given if self.alone else acts)


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
        self._places: Mapping[str, Array] | None = None  # those of the members for which the parts are set
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
        self._explore, exploring, rows = explore, explore.copy(), explore.shape[1]
        self._given = {"obs": obs, "legal": legal, "explore": exploring, "action": action}
        self._acting, self._places = [], None
        self._arrays: dict[str, Array] = {name: np.zeros(rows, np.int64) for name in ("order", "picked", "acts")}
        self._arrays |= {"explore": explore, "exploring": exploring, "action": action}
        self._arrays["obs"] = np.zeros(obs.shape, np.float32)
        record = self._record[0]
        record["rows"], record["width"] = rows, obs.shape[2]
        for name, array in self._arrays.items():
            record[name] = address_of(array)

    def set_turn(self, turn: Array) -> None:
        """Act in the rows in which this array [1, B] bool is True."""
        self._record["turn"] = address_of(turn)

    def deal(self, numbers: Array) -> bool:
        """Set the members that play the rows, [1, B] int64; return whether compiled code can act for them.

        It can if they choose by values, or by samples from the softmax of logits.
        """
        if self._places is not self.members.places:
            self._set_members()
        return bool(deal_program()(self.address, address_of(numbers)))

    def _set_members(self) -> None:
        """Number the agents of all parts; kernels of parts that are as they were stay."""
        places = self._places = self.members.places
        before = {(each.part, each.actor): each for each in self._acting}
        parts = list(self.members.parts.values())
        self._acting = [before.get((part, part.actor)) or PartActing(part, self._given) for part in parts]
        self._parts, record = np.zeros(len(parts), PART), self._record[0]
        self._agent, agents = np.full(len(next(iter(places.values()))), -1), 0
        for each, own in zip(self._acting, self._parts, strict=True):
            rows = places[each.part.name]
            if each.kernel is not None:
                np.copyto(self._agent, agents + rows, where=rows >= 0)
            each.fill(own, agents)
            agents += each.agents
        self._greedy = np.concatenate([each.part.greedy[: each.agents] for each in self._acting])
        self._first = np.zeros(agents + 2, np.int64)
        record["parts"], record["agents"], record["members"] = len(parts), agents, len(self._agent)
        arrays = {"part": self._parts, "agent": self._agent, "greedy": self._greedy, "first": self._first}
        for name, array in arrays.items():
            record[name] = address_of(array)

    def prepare(self, _acting: Any, rngs: Rngs) -> tuple[int, int]:
        """See `Actor.prepare`."""
        return 0, min(each.prepare(rngs, self._explore.shape[1], self._first) for each in self._acting)

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
