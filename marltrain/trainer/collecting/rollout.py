"""The acts of a batch step and their record in the streams."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from marltrain.checks import shaped
from marltrain.errors import AgentError, SaveError
from marltrain.files import State, of_type
from marltrain.layout import Array, map_obs
from marltrain.policies.batch import Acted
from marltrain.policies.memory.streams import Streams
from marltrain.spec import EnvSpec, Step, empty_actions
from marltrain.trainer.seats import Unit

EVERYWHERE = slice(None)
"""All environments."""


class Actors:
    """Decides for every unit in E environments, and owns their recurrent carries.

    purpose: whose random streams are drawn from: "act" in training, "test" in tests (those start anew here).
    """

    def __init__(self, spec: EnvSpec, units: Sequence[Unit], num_envs: int, purpose: str) -> None:
        """Prepare arrays for the actions."""
        self.spec, self.units, self.num_envs = spec, units, num_envs
        self.actions = empty_actions(spec, num_envs)
        self.rngs = [unit.learner.rngs(purpose) for unit in units]
        self._carries: list[Any] = [None] * len(units)
        self.views = [_View(unit.rows, num_envs) for unit in units]
        self.explore(np.zeros(len(spec.players), bool))

    def explore(self, mask: Array) -> None:
        """Say which players explore, [P] bool."""
        self.exploring = []
        for unit in self.units:
            seats = mask[unit.players] & ~unit.frozen[:, None]
            self.exploring.append(np.repeat(seats, self.num_envs, 1))

    def rotate(self, tables: Sequence[Array]) -> None:
        """Say where each unit's agents sit in each environment: [K, S, E] rows of their group (tests only)."""
        self.views = [_View(table, self.num_envs) for table in tables]

    def decide(self, step: Step, envs: slice = EVERYWHERE) -> list[Acted]:
        """Fill `actions` of some environments for this Step; return each unit's decisions in all, [K, S * E, ...]."""
        decided = []
        for i, unit in enumerate(self.units):
            view, group = self.views[i], unit.group
            legal, turn = step.legal[group], view.take(step.turn[group])
            self._forget_ended(i, step)
            acted = unit.learner.act(
                map_obs(view.take, step.obs[group]), None if legal is None else view.take(legal), self._carries[i],
                turn=turn, explore=self.exploring[i], rngs=self.rngs[i],
            )  # fmt: skip
            self._carries[i] = _moved(acted.carry, self._carries[i], turn)
            view.put(self.actions[group], acted.action, envs)
            decided.append(acted)
        return decided

    def state(self) -> State:
        """Return the carries."""
        made = State({"carries": []})
        for i, carry in enumerate(self._carries):
            made.info["carries"].append(_described(carry, f"{i}", made.arrays))
        return made

    def restore(self, state: State) -> None:
        """Go on with the carries that `state` returned; raises SaveError for those of others."""
        told = state.value("carries", list)
        if len(told) != len(self._carries):
            raise SaveError(f"{len(self._carries)} learners act here, and {len(told)} did when it was written")
        rows = [(view.agents, view.seats * self.num_envs) for view in self.views]
        self._carries = [_rebuilt(carry, state, shape) for carry, shape in zip(told, rows, strict=True)]

    def _forget_ended(self, i: int, step: Step) -> None:
        """Zero the carry of every seat whose part of an episode just ended."""
        if self._carries[i] is None:
            return
        players = list(self.spec.groups[self.units[i].group].players)
        over = self.views[i].take((step.terminated | step.truncated)[players] | step.ended)
        self._carries[i] = _zeroed(self._carries[i], over)


def _moved(new: Any, old: Any, turn: Array) -> Any:
    """Return the carry with which each row goes on: the new one where it acted, else the one it waits with.

    old: None before the first act: all rows wait with zeros then.
    """
    if new is None or turn.all():
        return new
    if old is None:
        return _zeroed(new, ~turn)
    if isinstance(new, dict):
        return {name: _moved(value, old[name], turn) for name, value in new.items()}
    if isinstance(new, tuple):
        return tuple(_moved(value, before, turn) for value, before in zip(new, old, strict=True))
    return np.where(turn.reshape(*turn.shape, *[1] * (new.ndim - 2)), new, old)


def _zeroed(carry: Any, over: Array) -> Any:
    """Return a carry with zeros, which is how one begins, in the rows `over`."""
    if carry is None:
        return None
    if isinstance(carry, dict):
        return {name: _zeroed(value, over) for name, value in carry.items()}
    if isinstance(carry, tuple):
        return tuple(_zeroed(value, over) for value in carry)
    return np.where(over.reshape(*over.shape, *[1] * (carry.ndim - 2)), 0, carry)


def _described(carry: Any, name: str, arrays: dict[str, Array]) -> Any:
    """Return a carry's structure as JSON values; its arrays go into `arrays`."""
    if isinstance(carry, dict):
        return {"dict": {key: _described(value, f"{name}/{key}", arrays) for key, value in carry.items()}}
    if isinstance(carry, tuple):
        return {"tuple": [_described(value, f"{name}/{i}", arrays) for i, value in enumerate(carry)]}
    if carry is None:
        return None
    arrays[name] = carry
    return name


def _rebuilt(told: Any, state: State, rows: tuple[int, int]) -> Any:
    """Return the carry that `_described` told of; raises SaveError where an array is not [*rows, ...]."""
    if told is None:
        return None
    if isinstance(told, str):
        carry = state.any_array(told)
        return shaped(state.place(told), carry, carry.dtype, (*rows, *carry.shape[2:])).copy()
    inner = State(of_type("a carry", told, dict), name="a carry")
    if set(told) == {"dict"}:
        return {key: _rebuilt(value, state, rows) for key, value in inner.value("dict", dict).items()}
    return tuple(_rebuilt(value, state, rows) for value in inner.value("tuple", list))


class _View:
    """Takes [P, E, ...] arrays of a group as [K, S * E, ...] and puts them back; a view where seats are in order."""

    def __init__(self, where: Array, num_envs: int) -> None:
        """`where`: rows of the group, [K, S], or [K, S, E] when they differ between environments."""
        self.agents, self.seats = where.shape[:2]
        flat = where.reshape(self.agents * self.seats, -1)
        first = int(flat[0, 0])
        in_order = flat.shape[1] == 1 and np.array_equal(flat[:, 0], first + np.arange(len(flat)))
        self.index: Any = (
            slice(first, first + len(flat)) if in_order
            else (flat, np.arange(num_envs)[None, :])
        )  # fmt: skip

    def take(self, array: Array) -> Array:
        picked: Array = array[self.index]
        if self.seats == 1:  # the shapes are the same
            return picked
        return picked.reshape(self.agents, self.seats * array.shape[1], *array.shape[2:])

    def put(self, into: Array, values: Array, envs: slice = EVERYWHERE) -> None:
        if self.seats > 1:
            values = values.reshape(self.agents * self.seats, into.shape[1], *into.shape[2:])
        if envs is EVERYWHERE:
            into[self.index] = values
        elif isinstance(self.index, slice):
            into[self.index, envs] = values[:, envs]
        else:
            flat, columns = self.index
            into[flat, columns[:, envs]] = values[:, envs]


class Recorder:
    """The training side of a batch step: units act, the streams remember."""

    def __init__(self, actors: Actors, streams: Streams) -> None:
        """Allocate the extras of each group that the streams record."""
        self.actors, self.streams = actors, streams
        self.extras: dict[int, dict[str, Array]] = {
            g: {name: np.zeros((column.shape[0], *column.shape[2:]), column.dtype) for name, column in r.extras.items()}
            for g, r in streams.rings.items()
        }

    def decide(self, step: Step) -> tuple[Array, ...]:
        """Act on a Step and remember what was decided; return the actions to send."""
        self.act(step)
        self.remember()
        return self.actors.actions

    def act(self, step: Step, envs: slice = EVERYWHERE) -> None:
        """Decide for some environments: in their columns are then the actions, and the extras that are recorded."""
        for unit, view, acted in zip(self.actors.units, self.actors.views, self.actors.decide(step, envs), strict=True):
            kept = self.extras.get(unit.group, {})
            self._check_extras(unit, acted)
            for name, values in acted.extras.items():
                if name in kept:
                    view.put(kept[name], values, envs)

    def remember(self) -> None:
        """Have the streams record what was decided in all environments."""
        for group in self.extras:
            self.streams.decided(group, self.actors.actions[group], self.extras[group])

    @staticmethod
    def _check_extras(unit: Unit, acted: Acted) -> None:
        needs = unit.learner.needs
        if needs is not None and not needs.columns.keys() <= acted.extras.keys():
            missing = needs.columns.keys() - acted.extras.keys()
            raise AgentError(
                f"the agent of {' and '.join(unit.labels)} learns from {', '.join(sorted(missing))}, which its act did "
                f"not give beside the action; it gave {', '.join(sorted(acted.extras)) or 'nothing'}"
            )
