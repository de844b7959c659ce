"""Members: frozen policies of which one plays each episode; those of one kind are computed together."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Protocol

import numpy as np

from marltrain.core.encoding import no_actions
from marltrain.core.errors import AgentError, SaveError
from marltrain.core.layout import Array, map_tree
from marltrain.core.seeds import child_seed, generator, restored, state_of
from marltrain.core.spec import PlayerSpec
from marltrain.policies.agents.agent import Agent
from marltrain.policies.agents.agent_learner import each_array
from marltrain.policies.agents.algorithm_agent import LearningAgent
from marltrain.policies.agents.fixed import FrozenAgent
from marltrain.policies.batches.batch import Acted, ActInputs, AgentState
from marltrain.policies.learner.algorithm_learner import load_weights
from marltrain.policies.learner.frozen_stack import FrozenStack
from marltrain.storage.checks import of_type
from marltrain.storage.state import State

FIRST_SIZE = 8
"""Agents of a new stack; it doubles when it is full."""
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


class Rngs:
    """Generators of acts, one for each part of a set, made at their first use.

    seed, purpose: of the seed tree: (seed, purpose, part).
    """

    def __init__(self, seed: int, purpose: str) -> None:
        """Start without a generator."""
        self.seed, self.purpose = seed, purpose
        self._of: dict[str, list[np.random.Generator]] = {}

    def of(self, part: str) -> list[np.random.Generator]:
        """Return a list of the generator of a part, the same list at every call."""
        if part not in self._of:
            self._of[part] = [generator(self.seed, self.purpose, part)]
        return self._of[part]

    def state(self) -> dict[str, Any]:
        """Return the seed and the generators' states as JSON values."""
        return {"seed": self.seed, "of": {part: state_of(rngs[0]) for part, rngs in self._of.items()}}

    def restore(self, state: State) -> None:
        """Restore what `state` returned."""
        self.seed = state.count("seed")
        self._of = {part: [restored(saved)] for part, saved in state.value("of", dict).items()}


class Part(Protocol):
    """Members that are computed together.  name: never used again for another part of the set."""

    name: str

    def act(self, rows: Array, inputs: ActInputs, turn: Array, rngs: Rngs) -> Acted:
        """Choose the actions [1, B, ...] of rows with `turn` [B] whose agent in this part is `rows` [B], -1: none."""

    def settle(self) -> None:
        """Reset generators that are ahead of the numbers used."""


class StackPart:
    """Members of one algorithm.

    template: an agent of their kind, of which copies are made.  rows: number of a member -> its row of the stack.
    """

    def __init__(self, name: str, template: LearningAgent) -> None:
        """Take a template, which must not change any more."""
        self.name, self.template = name, template
        self.stack = FrozenStack(template.algorithm, template.backend, FIRST_SIZE)
        self.rows: dict[int, int] = {}

    def add(self, number: int) -> int:
        """Return a free row for a member."""
        free = sorted(set(range(self.stack.size)) - set(self.rows.values()))
        if not free:
            self.stack.actor.noise.settle()
            free, self.stack = [self.stack.size], self.stack.grown()
        self.rows[number] = free[0]
        return free[0]

    def act(self, rows: Array, inputs: ActInputs, turn: Array, rngs: Rngs) -> Acted:
        """See `Part`."""
        return self.stack.act(rows, inputs, turn, rngs.of(self.name))

    def settle(self) -> None:
        """See `Part`."""
        self.stack.actor.noise.settle()

    def agent(self, number: int) -> Agent:
        """Return an independent copy of a member."""
        state, copy = self.stack.export(self.rows[number]), self.template.frozen_copy()
        load_weights(copy.learner_, 0, state.arrays)
        copy.learner_.hyper.load(0, State({**state.info, "schedules": {}}))
        return FrozenAgent(copy) if state.info["greedy"] else copy


class AgentPart:
    """A member that is computed alone: an agent that cannot be stacked, or a learning agent as it is at present."""

    def __init__(self, name: str, number: int, agent: Agent) -> None:
        """Take an agent, which acts by its own `decide`."""
        self.name, self.number, self.inner = name, number, agent

    def act(self, rows: Array, inputs: ActInputs, turn: Array, rngs: Rngs) -> Acted:
        """See `Part`; the agent gets only the rows in which it acts."""
        count = len(rows)
        acts = np.flatnonzero((rows >= 0) & turn)
        if not len(acts):
            return Acted(no_actions(self.inner._seated()[1], count), inputs.carry)

        def own(array: Array) -> Array:
            picked: Array = array[0, acts]
            return picked

        def back(array: Array) -> Array:
            result = np.zeros((1, count, *array.shape[1:]), array.dtype)
            result[0, acts] = array
            return result

        rng = rngs.of(self.name)[0]
        acted = self.inner.decide(
            map_tree(own, inputs.obs), map_tree(own, inputs.legal), each_array(inputs.carry, own),
            turn=np.ones(len(acts), bool), explore=own(inputs.explore), rng=rng,
        )  # fmt: skip
        return Acted(back(acted.action), each_array(acted.carry, back))

    def settle(self) -> None:
        """See `Part`; nothing is ahead."""


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
        self._places: dict[str, Array] | None = (
            None  # part -> [numbers] rows in it; negative numbers count from the end
        )
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
        """Choose the actions [1, B, ...] of the members `inputs.member` [1, B]; rows without `turn` [B] get any.

        The carry is that of each part, by its name.
        """
        numbers, action, carry = inputs.member[0], None, {}
        before = inputs.carry or {}
        for name, places in self._rows_in_parts().items():
            part, rows = self._parts[name], places[numbers]
            given = ActInputs(inputs.obs, inputs.legal, inputs.explore, before.get(part.name))
            acted = part.act(rows, given, turn, rngs)
            if acted.carry is not None:
                carry[part.name] = acted.carry
            if action is None:
                action = acted.action
            else:
                np.copyto(action, acted.action, where=(rows >= 0).reshape(1, -1, *[1] * (action.ndim - 2)))
        if action is None:
            raise RuntimeError(f"{self._who} acts without members")
        return Acted(action, carry or None)

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

    def stacked(self, numbers: Array) -> tuple[StackPart, Array] | None:
        """Return the only stack and the rows in it of the members `numbers` [B]; None if not all are in one stack."""
        stacks = [part for part in self._parts.values() if isinstance(part, StackPart)]
        rows = self._rows_in_parts()[stacks[0].name][numbers] if len(stacks) == 1 else np.full(1, -1)
        return None if rows.min() < 0 else (stacks[0], rows)

    def _rows_in_parts(self) -> dict[str, Array]:
        """Return part -> rows in it by the members' numbers, int64; -1: of another part."""
        if self._places is None:
            negative = sum(number < 0 for number in self._part_of)
            self._places = {name: np.full(self._next + negative, -1) for name in self._parts}
            for number, name in self._part_of.items():
                part = self._parts[name]
                self._places[name][number] = part.rows[number] if isinstance(part, StackPart) else 0
        return self._places
