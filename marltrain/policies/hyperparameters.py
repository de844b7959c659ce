"""Hyperparameters: the settings of one agent that may change during training."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import Field, fields
from typing import Any

from marltrain.config import check
from marltrain.errors import ConfigError, did_you_mean
from marltrain.policies.schedules import Schedule


class Hyperparameters:
    """The hyperparameters of a settings dataclass, as attributes that can be set to a value or a schedule.

    For example, `agent.hyper.epsilon = 0.1`.
    Raises ConfigError for an unknown or structural setting, or a value out of range.
    """

    def __init__(self, settings: Any, who: str) -> None:
        """Start with the values of `settings`; its fields with per_row=True are hyperparameters."""
        kept: dict[str, Any] = {"_settings": settings, "_who": who, "_schedules": {}, "_values": {}}
        for name, value in kept.items():
            object.__setattr__(self, name, value)
        for name in self._rules():
            setattr(self, name, getattr(settings, name))

    def _rules(self) -> dict[str, Field[Any]]:
        return {f.name: f for f in fields(self._settings) if f.metadata.get("per_row")}

    def __getattr__(self, name: str) -> Any:
        """Return the current value of a hyperparameter, or a structural setting."""
        if name.startswith("_"):
            raise AttributeError(name)
        return self._values[name] if name in self._values else getattr(self._settings, name)

    def __setattr__(self, name: str, value: Any) -> None:
        """Set a hyperparameter to a value or a schedule."""
        rules = self._rules()
        if name not in rules:
            known = [f.name for f in fields(self._settings)]
            why = "is structural: make a new agent" if name in known else f"does not exist.{did_you_mean(name, known)}"
            raise ConfigError(f"{self._who}: setting {name!r} {why} (numbers: {', '.join(rules)})")
        value = check(rules[name], value, type(self._settings), self._who)
        for end in (value.start, value.stop) if isinstance(value, Schedule) else ():
            check(rules[name], end, type(self._settings), self._who)
        self._schedules.pop(name, None)
        if isinstance(value, Schedule):
            self._schedules[name] = value
        self._values[name] = value(0) if isinstance(value, Schedule) else value

    def __dir__(self) -> list[str]:
        """Return the names of the settings."""
        return [f.name for f in fields(self._settings)]

    def __repr__(self) -> str:
        """Return the current values of the hyperparameters, in one line."""
        return hyper_text(self._values)

    def follow(self, env_steps: int) -> None:
        """Set all scheduled hyperparameters to their values after `env_steps` env steps of the run."""
        for name, schedule in self._schedules.items():
            self._values[name] = schedule(env_steps)

    def describe(self) -> dict[str, Any]:
        """Return values and schedules as JSON values."""
        return {"values": dict(self._values), "schedules": {n: s.describe() for n, s in self._schedules.items()}}

    def restore(self, info: Mapping[str, Any]) -> None:
        """Restore the values and schedules that `describe` returned."""
        for name, value in info["values"].items():
            setattr(self, name, value)
        for name, schedule in info["schedules"].items():
            setattr(self, name, Schedule(**schedule))
            self._values[name] = info["values"][name]


def hyper_text(values: Mapping[str, Any]) -> str:
    """Return hyperparameters in printed form: `hyper(learning_rate=0.0003, gamma=0.99)`."""
    return f"hyper({', '.join(f'{name}={value:.6g}' for name, value in values.items() if value is not None)})"
