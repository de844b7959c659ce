"""Members: frozen policies of which one plays each episode; those of one kind are computed together."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass

import numpy as np

from marltrain.core.errors import AgentError, SaveError
from marltrain.core.layout import Array
from marltrain.core.seeds import child_seed
from marltrain.core.spec import PlayerSpec
from marltrain.policies.agents.agent import Agent
from marltrain.policies.agents.algorithm_agent import LearningAgent
from marltrain.policies.agents.fixed import FrozenAgent
from marltrain.policies.agents.parts import AgentPart, Rngs, StackPart, act_by_parts
from marltrain.policies.batches.batch import Acted, ActInputs, AgentState
from marltrain.storage.checks import of_type
from marltrain.storage.state import State

MakeAgent = Callable[[AgentState], Agent]
"""(saved state) -> the agent."""


@dataclass(frozen=True)
class Member:
    """A policy of a set.

    number: never used again for another one.  name: for tables.  env_steps: of the run when it was added.
    given: whether the user gave it; False for a version of an agent that trains.
    """

    number: int
    name: str
    env_steps: int = 0
    given: bool = True


class Members:
    """A set of policies: those that are given, and copies of agents, which later updates do not change.

    members: by number, in the order of their arrival.
    """

    def __init__(self, who: str) -> None:
        """Start without members.  who: name of the set in messages."""
        self._who = who
        self.members: dict[int, Member] = {}
        self._parts: dict[str, StackPart | AgentPart] = {}
        self._part_of: dict[int, str] = {}
        self._next = self._next_part = 0
        self._known: Array | None = None  # numbers and env steps of the members, [2, M] int64
        self._places: dict[str, Array] | None = None  # see `places`
        self._player: PlayerSpec | None = None

    def __len__(self) -> int:
        """Return the number of members."""
        return len(self.members)

    @property
    def numbers(self) -> Array:
        """The numbers of the members, [M] int64, in the order of their arrival."""
        return self._table[0]

    @property
    def env_steps(self) -> Array:
        """The env steps at which the members were added, [M] int64."""
        return self._table[1]

    @property
    def parts(self) -> Mapping[str, StackPart | AgentPart]:
        """The members that are computed together, by the names of the parts."""
        return self._parts

    @property
    def _table(self) -> Array:
        if self._known is None:
            rows = [(member.number, member.env_steps) for member in self.members.values()]
            self._known = np.array(rows, np.int64).reshape(-1, 2).T.copy()
        return self._known

    def add(self, agent: Agent, name: str, env_steps: int = 0, *, given: bool = True) -> Member:
        """Add a copy of an agent, or an agent that never learns itself; return the member."""
        member = Member(self._next, name, env_steps, given)
        inner = agent.inner if isinstance(agent, FrozenAgent) else agent
        if isinstance(inner, LearningAgent) and inner.stackable:
            part = self._stack_for(inner)
            row = part.add(member.number)
            part.stack.copy_from(inner.learner_, inner.row, row)
            part.stack.greedy[row] = isinstance(agent, FrozenAgent)
            self._part_of[member.number] = part.name
        else:
            self._put_alone(member.number, agent.frozen_copy() if inner.learns and inner is agent else agent)
        self.members[member.number] = member
        self._next += 1
        self._known = self._places = None
        return member

    def add_present(self, number: int, agent: Agent) -> None:
        """Let the negative `number` stand for an agent as it is at present, in a seat of its own; no member."""
        self._put_alone(number, agent)

    def remove(self, number: int) -> None:
        """Remove a member; it may still play until `forget` is called."""
        del self.members[number]
        self._known = None

    def forget(self, playing: Array) -> None:
        """Free the memory of removed members, but of those that are `playing`, numbers of any shape."""
        self._places, kept = None, {*self.members, *playing.ravel().tolist()}
        for number in [n for n in self._part_of if n >= 0 and n not in kept]:
            part = self._parts[self._part_of.pop(number)]
            if isinstance(part, StackPart):
                del part.rows[number]
            else:
                del self._parts[part.name]

    def agent(self, number: int) -> Agent:
        """Return an independent copy of a member, as an agent."""
        if number not in self._part_of:
            raise AgentError(f"{self._who} has no member {number}; it has {', '.join(map(str, self.members))}")
        part = self._parts[self._part_of[number]]
        return part.agent(number) if isinstance(part, StackPart) else part.inner.frozen_copy()

    def sit(self, player: PlayerSpec, seed: int) -> None:
        """Seat all members; raises AgentError, naming the member, if spaces differ."""
        self._player = player
        for part in self._parts.values():
            self._seat(part, seed)

    def turn_to(self, player: PlayerSpec) -> None:
        """Make this player's seat the current seat of all members."""
        for part in self._parts.values():
            if isinstance(part, AgentPart):
                part.inner.turn_to(player)

    def act(self, inputs: ActInputs, turn: Array, rngs: Rngs) -> Acted:
        """Choose the actions [1, B, ...] of the members `inputs.member` [1, B]; see `act_by_parts`."""
        acted = act_by_parts(self._parts, self.places, inputs, turn, rngs)
        if acted is None:
            raise RuntimeError(f"{self._who} acts without members")
        return acted

    def settle(self) -> None:
        """Reset the generators of acts that are ahead of the numbers used."""
        for part in self._parts.values():
            part.settle()

    def state(self) -> State:
        """Return all members, also removed ones that still play, and what they act by."""
        result = State({
            "members": [asdict(member) for member in self.members.values()], "next": self._next,
            "next_part": self._next_part, "parts": {},
        })  # fmt: skip
        for part in self._parts.values():
            if isinstance(part, StackPart):
                template = part.template.state()
                saved = State({"size": part.stack.size, "rows": {}})
                saved.add("template", State(template.info, template.arrays))
                for number, row in part.rows.items():
                    saved.info["rows"][str(number)] = row
                    saved.add(f"row{number}", part.stack.export(row))
            elif part.number >= 0:
                inner = part.inner.state()
                saved = State({"number": part.number})
                saved.add("agent", State(inner.info, inner.arrays))
            else:
                continue
            result.info["parts"][part.name] = saved.info
            result.arrays.update({f"parts/{part.name}/{name}": array for name, array in saved.arrays.items()})
        return result

    def restore(self, state: State, make: MakeAgent, seed: int) -> None:
        """Restore the members that `state` returned, in place of those here but the present agents.

        make: makes an agent from its saved state, for templates and for members that are computed alone.
        seed: of the set.  Raises SaveError for a state that `state` cannot have returned.
        """
        alone = {part.number: part for part in self._parts.values() if isinstance(part, AgentPart)}
        present = [part for number, part in alone.items() if number < 0]
        self.members = {}
        for saved in state.values("members", dict):
            kinds = {"number": int, "name": str, "env_steps": int, "given": bool}
            if set(saved) != set(kinds):
                raise SaveError(f"{state.place('members')} has a member with {sorted(saved)}, expected {sorted(kinds)}")
            member = Member(**{name: of_type(f"a member's {name}", saved[name], kind) for name, kind in kinds.items()})
            self.members[member.number] = member
        self._known = self._places = None
        self._next, self._next_part = state.count("next"), state.count("next_part")
        self._parts = {part.name: part for part in present}
        self._part_of = {part.number: part.name for part in present}
        for name in state.value("parts", dict):
            self._restore_part(name, state.part("parts").part(name), make, alone)
        for part in self._parts.values():
            self._seat(part, seed)
        if missing := set(self.members) - set(self._part_of):
            raise SaveError(f"{state.place('parts')} lacks the members {sorted(missing)}")

    def _restore_part(self, name: str, saved: State, make: MakeAgent, alone: Mapping[int, AgentPart]) -> None:
        """Restore a part; alone: the parts of single members before, whose agents are used again."""
        part: StackPart | AgentPart
        if "number" in saved.info:
            inner, number = saved.part("agent"), saved.count("number")
            agent = AgentState(inner.info, inner.arrays, inner.name)
            part = AgentPart(name, number, make(agent) if number not in alone else alone[number].inner)
            if number in alone:
                part.inner.restore(agent)
            self._part_of[number] = name
        else:
            template = saved.part("template")
            made = make(AgentState(template.info, template.arrays, template.name))
            if not isinstance(made, LearningAgent):
                raise SaveError(f"{saved.place('template')} is a {type(made).__name__}, expected a learning agent")
            part = StackPart(name, made)
            while part.stack.size < saved.count("size", high=2**20):
                part.stack = part.stack.grown()
            for number, row in saved.value("rows", dict).items():
                part.rows[int(number)] = row = of_type(saved.place("rows"), row, int)
                part.stack.load(row, saved.part(f"row{number}"))
                self._part_of[int(number)] = name
        self._parts[name] = part

    def _seat(self, part: StackPart | AgentPart, seed: int) -> None:
        agent = part.template if isinstance(part, StackPart) else part.inner
        if self._player is None or (isinstance(part, AgentPart) and part.number < 0):
            return
        try:
            agent.sit(self._player, child_seed(seed, "member", part.name))
        except AgentError as error:
            raise AgentError(f"{self._who}: {error}") from error

    def _stack_for(self, agent: LearningAgent) -> StackPart:
        for part in self._parts.values():
            if isinstance(part, StackPart) and part.template.kind == agent.kind:
                return part
        part = StackPart(self._new_name(), agent.frozen_copy())
        self._parts[part.name] = part
        return part

    def _put_alone(self, number: int, agent: Agent) -> None:
        name = f"now{-number}" if number < 0 else self._new_name()
        self._parts[name] = part = AgentPart(name, number, agent)
        self._part_of[number] = name
        if self._player is not None:
            self._seat(part, 0)

    @property
    def kinds(self) -> list[Agent]:
        """An agent of each kind of members; do not change them."""
        return [part.template if isinstance(part, StackPart) else part.inner for part in self._parts.values()]

    def _new_name(self) -> str:
        self._next_part += 1
        return f"part{self._next_part}"

    @property
    def places(self) -> dict[str, Array]:
        """Part -> [numbers] int64, rows in it by the members' numbers, negative ones from the end; -1: of another part.

        The same mapping until members change.
        """
        if self._places is None:
            negative = sum(number < 0 for number in self._part_of)
            self._places = {name: np.full(self._next + negative, -1) for name in self._parts}
            for number, name in self._part_of.items():
                part = self._parts[name]
                self._places[name][number] = part.rows[number] if isinstance(part, StackPart) else 0
        return self._places
