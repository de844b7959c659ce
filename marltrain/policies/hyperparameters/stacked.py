"""Hyperparameters: the settings that may change during training, of K agents and as seen from one agent."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from typing import Any

import numpy as np

from marltrain.core.errors import ConfigError, SaveError, did_you_mean
from marltrain.core.layout import Array
from marltrain.core.settings import accepts_fractions, check, check_has_effect
from marltrain.policies.backends.base import Backend
from marltrain.policies.hyperparameters.schedules import Schedule
from marltrain.storage.checks import of_type
from marltrain.storage.state import State


class StackedHyperparameters:
    """The hyperparameters of K agents; each agent has its own value or schedule.

    names: the hyperparameters' names.  common: those that all agents share, such as the batch size, by name.
    values: name -> [K] float64; infinite for a disabled limit (None).
    columns: name -> [K, 1] float32, the same values for acting in numpy.
    schedules: [K] mappings, name -> schedule.
    version: changes whenever a hyperparameter is set, except by its schedule.
    """

    def __init__(self, settings: Any, who: str, num_agents: int = 1, backend: Backend | None = None) -> None:
        """Start with the values of `settings`; its fields with per_row or per_learner are hyperparameters.

        who: name of the algorithm, for errors.  backend: makes tensors of the values, if they are needed.
        """
        self.settings, self._who = settings, who
        self._backend: Any = backend
        self.names = tuple(f.name for f in fields(settings) if f.metadata.get("per_row"))
        self.common = {f.name: getattr(settings, f.name) for f in fields(settings) if f.metadata.get("per_learner")}
        self.values = {name: np.zeros(num_agents) for name in self.names}
        self.columns: dict[str, Array] = {}
        self.schedules: list[dict[str, Schedule]] = [{} for _ in range(num_agents)]
        self.version = 0
        self._changes = 0
        self._stacked: tuple[int, Any] = (-1, None)
        self._tensors: tuple[Any, dict[str, Any]] = (None, {})  # `stacked` and its parts
        for row in range(num_agents):
            for name in self.names:
                self.set(row, name, getattr(self.settings, name))

    def get(self, row: int, name: str) -> float | None:
        """Return the current value of one agent's hyperparameter, an int if it is declared so; None if disabled."""
        self._check_known(name)
        if name in self.common:
            return self.common[name]
        if getattr(self.settings, name) is None:
            return None
        value = float(self.values[name][row])
        return value if accepts_fractions(type(self.settings), name) else int(value)

    def set(self, row: int, name: str, value: Any) -> None:
        """Set one agent's hyperparameter to a value or a schedule; one that all agents share, to a value.

        Raises ConfigError for a structural or unknown setting, a value out of range or without effect, or a change to
        or from None.
        """
        settings, checked = self.settings, self.checked(name, value)
        if name in self.common:
            self.common[name] = checked
            self.version += 1
            return
        if (value is None) != (getattr(settings, name) is None):
            before = "without it (None)" if value is not None else f"with {name}={getattr(settings, name)!r}"
            raise ConfigError(
                f"{self._who}: {name} cannot become {value!r}: the agent was made {before}. Make a new agent"
            )
        if isinstance(value, Schedule):
            self.schedules[row][name] = value
            value = value(0)
        else:
            self.schedules[row].pop(name, None)
        self.values[name][row] = np.inf if value is None else value  # None disables the limit
        self.version += 1
        self._changed(name)

    def checked(self, name: str, value: Any) -> Any:
        """Return a value of a hyperparameter, NumPy numbers as Python numbers; raises ConfigError if it is wrong."""
        self._check_known(name)
        settings = self.settings
        rule = next(f for f in fields(settings) if f.name == name)
        checked = check(rule, value, type(settings), self._who)
        check_has_effect(rule, value, settings, self._who)
        if isinstance(value, Schedule):
            for end in (value.start, value.stop):
                check(rule, end, type(settings), self._who)
        return checked

    def apply_schedules(self, env_steps: int) -> None:
        """Set all scheduled hyperparameters to their values after `env_steps` env steps."""
        changed = set()
        for row, schedules in enumerate(self.schedules):
            for name, schedule in schedules.items():
                value = schedule(env_steps)
                if value != self.values[name][row]:
                    self.values[name][row] = value
                    changed.add(name)
        for name in changed:
            self._changed(name)

    def adapt(self, values: Mapping[str, Array], due: Array) -> None:
        """Set hyperparameters to values that the algorithm computed, name -> [K], for the agents that are `due` [K]."""
        for name, own in values.items():
            self.values[name][due] = own[due]
            self._changed(name)

    def values_at(self, env_steps: Sequence[int]) -> Array:
        """Return all hyperparameters after each of the given env steps [R] of the run, [R, H, K] float64."""
        result = np.repeat(np.stack(list(self.values.values()))[None], len(env_steps), 0)
        places = {name: i for i, name in enumerate(self.names)}
        for row, schedules in enumerate(self.schedules):
            for name, schedule in schedules.items():
                result[:, places[name], row] = [schedule(steps) for steps in env_steps]
        return result

    @property
    def changes(self) -> int:
        """Number of changes of a value so far."""
        return self._changes

    def tensors(self) -> dict[str, Any]:
        """Return each hyperparameter as a tensor [K, 1]."""
        stacked, (known, tensors) = self.stacked(), self._tensors
        if known is not stacked:
            own = self._backend.tensor(stacked) if isinstance(stacked, np.ndarray) else stacked
            tensors = dict(zip(self.columns, self._backend.ops.unstack(own), strict=True))
            self._tensors = stacked, tensors
        return tensors

    def stacked(self) -> Any:
        """Return all hyperparameters [H, K, 1] in the order of `names`, as an argument of a function of the backend.

        An update in another thread may `adapt` them meanwhile: the tensor is kept with the number of changes before it.
        """
        changes, (known, stacked) = self._changes, self._stacked
        if known != changes:
            stacked = self._backend.argument(np.stack([self.columns[name] for name in self.names]))
            self._stacked = changes, stacked
        return stacked

    def export(self, row: int) -> dict[str, Any]:
        """Return one agent's values and schedules as JSON values."""
        return {
            "hyper": {name: self.get(row, name) for name in self.names},
            "common": dict(self.common),
            "schedules": {name: schedule.describe() for name, schedule in self.schedules[row].items()},
        }

    def load(self, row: int, state: State) -> None:
        """Load one agent's values and schedules; raises SaveError for those of another kind of agent."""
        hyper: Mapping[str, Any] = state.value("hyper", dict)
        if set(hyper) != set(self.names):
            raise SaveError(f"{state.place('hyper')} holds {sorted(hyper)}, expected {sorted(self.names)}")
        for name, value in hyper.items():
            self.set(row, name, value)
        for name, value in of_type(state.place("common"), state.info.get("common", {}), dict).items():
            self.set(row, name, value)
        for name, schedule in state.value("schedules", dict).items():
            self.set(row, name, Schedule(**of_type(f"the schedule of {name}", schedule, dict)))
            self.values[name][row] = hyper[name]
            self._changed(name)

    def _check_known(self, name: str) -> None:
        if name in self.names or name in self.common:
            return
        fixed = [f.name for f in fields(self.settings)]
        why = (
            "is structural: make a new agent to change it" if name in fixed
            else f"does not exist.{did_you_mean(name, fixed)}"
        )  # fmt: skip
        raise ConfigError(f"{self._who}: setting {name!r} {why} (numbers: {', '.join([*self.names, *self.common])})")

    def _changed(self, name: str) -> None:
        """Update the column of one hyperparameter and count the change."""
        self.columns[name] = self.values[name].astype(np.float32)[:, None]
        self._changes += 1


class AgentHyperparameters:
    """One agent's settings: all can be read, hyperparameters can be set to a value or a schedule.

    For example, `agent.hyper.epsilon = 0.1`.
    """

    def __init__(self, held: StackedHyperparameters, row: int, change: Callable[[int, str, Any], None]) -> None:
        """Create the view of row `row`; change: sets a hyperparameter, (row, name, value)."""
        for name, value in {"_held": held, "_row": row, "_change": change}.items():
            object.__setattr__(self, name, value)

    def __getattr__(self, name: str) -> Any:
        """Return the current value of a hyperparameter, or a structural setting."""
        held: StackedHyperparameters = object.__getattribute__(self, "_held")
        return held.get(self._row, name) if name in (*held.names, *held.common) else getattr(held.settings, name)

    def __setattr__(self, name: str, value: Any) -> None:
        """Set a hyperparameter; raises ConfigError for a structural or unknown setting, or a value out of range."""
        self._change(self._row, name, value)

    def __dir__(self) -> list[str]:
        """Return the names of the settings."""
        return [f.name for f in fields(self._held.settings)]

    def __repr__(self) -> str:
        """Return the current values of the hyperparameters, in one line."""
        values = {name: getattr(self, name) for name in self._held.names}
        return f"hyper({', '.join(f'{name}={value:.6g}' for name, value in values.items() if value is not None)})"
