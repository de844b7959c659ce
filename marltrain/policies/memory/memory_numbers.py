"""The settings of replay memories that may change in training, of K agents and as seen from one agent."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import fields, replace
from typing import Any

from marltrain.core.errors import AgentError, ConfigError, did_you_mean
from marltrain.policies.hyperparameters.stacked import StackedHyperparameters
from marltrain.policies.memory.config import AGES, PARTS, Replay
from marltrain.storage.state import State


class MemoryNumbers:
    """The numbers of the parts of a `Replay` for K agents; each agent has its own values or schedules.

    replay: the settings at the start.  parts: name of a part -> its hyperparameters; "" is the `Replay` itself.
    """

    def __init__(self, replay: Replay, who: str, num_agents: int = 1) -> None:
        """Start with the values of `replay`.  who: name of the algorithm, for errors."""
        self.replay, self._who = replay, who
        plain = replace(replay, window=None) if replay.window_function is not None else replay
        given = {"": plain, **{name: getattr(replay, name) for name in PARTS}}
        result = {n: StackedHyperparameters(part, who, num_agents) for n, part in given.items() if part is not None}
        self.parts = {name: part for name, part in result.items() if _has_numbers(part)}
        self._places = {number: part for part in self.parts.values() for number in part.names}

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the numbers."""
        return tuple(self._places)

    @property
    def version(self) -> int:
        """A number that changes whenever a number is set, except by its schedule."""
        return sum(part.version for part in self.parts.values())

    @property
    def obstacle(self) -> str:
        """The setting that keeps compiled code from drawing rows in its own time, "" for none.

        A schedule of beta is none, because it is read ahead of time.
        """
        replay = self.replay
        if replay.initial_errors:
            return 'the memory has Prioritized(initial="error")'
        for name in (*replay.with_goals, *AGES):
            if getattr(replay, name) is not None:
                return f"the memory has {name}"
        moving = {name for part in self.parts.values() for own in part.schedules for name in own} - {"beta"}
        return f"{min(moving)} of the memory follows a schedule" if moving else ""

    @property
    def draws_uniformly(self) -> bool:
        """Whether all drawable rows of an agent are drawn with equal probability now and later."""
        alpha = self._places.get("alpha")
        weighted = alpha is not None and (
            bool(self.values("alpha").any()) or any("alpha" in s for s in alpha.schedules)
        )
        return not weighted and self.replay.half_life is None

    def values(self, name: str) -> Any:
        """Return the current values of a number, [K] float64."""
        return self._places[name].values[name]

    def constants(self, name: str) -> list[float | None]:
        """Return a number of each agent, [K]; None where it follows a schedule or is disabled, [] if it is unknown."""
        part = self._places.get(name)
        if part is None:
            return []
        return [None if name in moving else part.get(k, name) for k, moving in enumerate(part.schedules)]

    def get(self, row: int, name: str) -> float | None:
        """Return the current value of one agent's number; None if it is disabled."""
        return self._place(name).get(row, name)

    def set(self, row: int, name: str, value: Any) -> None:
        """Set one agent's number to a value or a schedule; raises ConfigError for other names and wrong values."""
        self._place(name).set(row, name, value)

    def apply_schedules(self, env_steps: int) -> None:
        """Set all scheduled numbers to their values after `env_steps` env steps."""
        for part in self.parts.values():
            part.apply_schedules(env_steps)

    def values_at(self, name: str, env_steps: Sequence[int]) -> Any:
        """Return a number's values after each of the given env steps [R] of the run, [R, K] float64."""
        part = self._places[name]
        return part.values_at(env_steps)[:, part.names.index(name)]

    def export(self, row: int) -> dict[str, Any]:
        """Return one agent's values and schedules as JSON values."""
        return {name or "replay": part.export(row) for name, part in self.parts.items()}

    def load(self, row: int, state: State) -> None:
        """Load one agent's values and schedules; raises SaveError for those of another memory."""
        for name, part in self.parts.items():
            part.load(row, state.part(name or "replay"))

    def _place(self, name: str) -> StackedHyperparameters:
        if name in self._places:
            return self._places[name]
        fixed = {f.name for part in (self.replay, *_parts(self.replay)) for f in fields(part)} - set(PARTS)
        why = (
            "is structural: make a new agent to change it" if name in fixed
            else f"does not exist.{did_you_mean(name, [*self.names, *fixed])}"
        )  # fmt: skip
        numbers = f"numbers: {', '.join(self.names)}" if self.names else "this memory has no numbers"
        raise ConfigError(f"{self._who}: setting {name!r} of the memory {why} ({numbers})")


class AgentMemory:
    """One agent's memory: all settings can be read; numbers can be set to a value or a schedule.

    For example, `agent.memory.beta = 0.5`.
    """

    def __init__(self, held: MemoryNumbers, row: int, change: Callable[[int, str, Any], None]) -> None:
        """Create the view of row `row`; change: sets a number, (row, name, value)."""
        for name, value in {"_held": held, "_row": row, "_change": change}.items():
            object.__setattr__(self, name, value)

    def __getattr__(self, name: str) -> Any:
        """Return the current value of a number, or another setting of the memory or of one of its parts."""
        held: MemoryNumbers = object.__getattribute__(self, "_held")
        if name in held.names:
            return held.get(self._row, name)
        for part in (held.replay, *_parts(held.replay)):
            if name in (f.name for f in fields(part)):
                return getattr(part, name)
        raise AttributeError(f"the memory has no setting {name!r}.{did_you_mean(name, dir(self))}")

    def __setattr__(self, name: str, value: Any) -> None:
        """Set a number; raises ConfigError for a structural or unknown setting, or a value out of range."""
        self._change(self._row, name, value)

    def __dir__(self) -> list[str]:
        """Return the names of the settings."""
        return [f.name for part in (self._held.replay, *_parts(self._held.replay)) for f in fields(part)]

    def __repr__(self) -> str:
        """Return the current values, in one line."""
        named = {name: getattr(self, name) for name in dir(self) if name not in PARTS}
        return f"memory({', '.join(f'{name}={value}' for name, value in named.items() if value is not None)})"


class Remembering:
    """Mix-in of agents that are a row of a learner with a replay memory."""

    learner_: Any
    row: int

    @property
    def memory(self) -> Any:
        """The replay memory's settings; numbers (alpha, beta) may be set at any time.

        Raises AgentError for an agent that learns on-policy.
        """
        held = self.learner_.memory
        if held is None:
            raise AgentError(f"{type(self).__name__} learns on-policy, from each rollout once: it has no replay memory")
        return AgentMemory(held, self.row, held.set)


def _has_numbers(part: StackedHyperparameters) -> bool:
    return any(getattr(part.settings, name) is not None for name in part.names)


def _parts(replay: Replay) -> list[Any]:
    return [part for name in PARTS if (part := getattr(replay, name)) is not None]
