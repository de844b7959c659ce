"""The space of settings that a study searches: fixed values, ranges and choices."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import Field, dataclass, fields
from typing import Any

from marltrain.core.errors import ConfigError, did_you_mean, shown
from marltrain.core.settings import Range, accepts_fractions
from marltrain.policies.agents.algorithm_agent import LearningAgent
from marltrain.policies.agents.registry import ALGORITHMS, agent_class
from marltrain.storage.json_files import to_json
from marltrain.tools.search.candidates import is_list, is_pair, settings_of_entries

OF_AGENTS = ("backend", "device", "identify", "jit_compile", "share", "strategy", "teams")
"""Arguments of `make_agents` and of agents besides the settings of the algorithm."""
COMPLEMENT = "1 - "
"""Beginning of the name of a parameter whose value is 1 minus that of the setting."""


@dataclass(frozen=True)
class Space:
    """Settings of the trials: name -> a value, a `Range`, or a list of choices."""

    fixed: Mapping[str, Any]
    ranges: Mapping[str, Range]
    choices: Mapping[str, Sequence[Any]]
    whole: frozenset[str] = frozenset()

    @classmethod
    def of(cls, algo: Any, space: Any, *, per_row: bool) -> Space:
        """Return the space of an algorithm: the settings of `space`, and its default ranges for the others.

        algo: the first argument of `make_agents`. Settings that its entries hold are fixed, unless `given` holds a
          range or choices for them.
        space: name -> a value (fixed), (low, high) or a `Range`, or a list (choices; of two numbers, too).
        per_row: leave out default ranges of settings in which agents of one learner cannot differ.
        Raises ConfigError for an unknown name, for an empty space and for two values of a setting.
        """
        if not isinstance(space, Mapping):
            raise ConfigError(f"space must be a mapping from setting to a value or a range, got {shown(space)}")
        known, entries = _fields_of(algo), settings_of_entries(algo)
        if known:
            _check_names(space, [*known, *OF_AGENTS])
        defaults: dict[str, Range] = {
            name: f.metadata["search"] for name, f in known.items()
            if f.metadata.get("search") and (f.metadata["per_row"] or not per_row)
        }  # fmt: skip
        named = {*space, *(name for own in entries.values() for name in own)}
        ranges = {name: default for name, default in defaults.items() if name not in named}
        fixed, choices = {}, {}
        for name, value in space.items():
            if isinstance(value, Range):
                ranges[name] = value
            elif _is_pair(value):
                ranges[name] = _range(value, defaults.get(name))
            elif isinstance(value, list):
                choices[name] = _distinct(name, value)
            else:
                fixed[name] = value
        _check_agreement(fixed, entries)
        if not ranges and not choices:
            raise ConfigError("space: every setting is fixed; give a range (low, high) or a list of choices for one")
        settings = _settings_of(algo) if known else None
        whole = {
            name for name, r in ranges.items()
            if isinstance(r.low, int) and isinstance(r.high, int)
            and not (settings is not None and name in known and accepts_fractions(settings, name))
        }  # fmt: skip
        return cls(fixed, ranges, choices, frozenset(whole))

    def suggest(self, trial: Any) -> dict[str, Any]:
        """Return the settings of an Optuna trial."""
        chosen = dict(self.fixed)
        for name, values in self.ranges.items():
            low, high = values.low, values.high
            if values.scale == "complement":
                chosen[name] = 1 - trial.suggest_float(f"{COMPLEMENT}{name}", 1 - high, 1 - low, log=True)
            elif name in self.whole:
                chosen[name] = trial.suggest_int(name, int(low), int(high), log=values.scale == "log")
            else:
                chosen[name] = trial.suggest_float(name, low, high, log=values.scale == "log")
        for name, options in self.choices.items():
            by_text = {str(option): option for option in options}
            chosen[name] = by_text[trial.suggest_categorical(name, list(by_text))]
        return chosen

    def described(self) -> dict[str, Any]:
        """Return a JSON value for each setting: a value, [low, high, scale], or texts of choices."""
        ranges = {name: [r.low, r.high, r.scale] for name, r in self.ranges.items()}
        choices = {name: [str(option) for option in options] for name, options in self.choices.items()}
        return {name: to_json(value) for name, value in self.fixed.items()} | ranges | choices

    def settings_of(self, params: Mapping[str, Any]) -> dict[str, Any]:
        """Return the settings of a finished trial by its parameters."""
        return self.suggest(_Known(params))


class _Known:
    """Answers suggestions with the parameters of a finished trial."""

    def __init__(self, params: Mapping[str, Any]) -> None:
        self.params = params

    def _known(self, name: str, *_: Any, **__: Any) -> Any:
        return self.params[name]

    suggest_float = suggest_int = suggest_categorical = _known


def from_words(settings: Mapping[str, Sequence[Any]]) -> dict[str, Any]:
    """Return the argument `space` of `tune` for lists of values: one is fixed, two numbers are a range, others choices.

    A value that is named twice makes two numbers choices.
    """
    result: dict[str, Any] = {}
    for name, values in settings.items():
        if len(values) == 1:
            result[name] = values[0]
        else:
            result[name] = tuple(values) if _is_pair(tuple(values)) else list(values)
    return result


def _check_names(space: Mapping[str, Any], known: Sequence[str]) -> None:
    for name in space:
        if name not in known:
            raise ConfigError(f"space: the agents have no setting {name!r}.{did_you_mean(name, known)}")


def _check_agreement(fixed: Mapping[str, Any], entries: Mapping[str, Mapping[str, Any]]) -> None:
    """Raise ConfigError if a setting has another value in the space than in an entry of the algorithm."""
    for where, own in entries.items():
        for name in own.keys() & fixed.keys():
            if own[name] is not fixed[name] and to_json(own[name]) != to_json(fixed[name]):
                raise ConfigError(
                    f"space: {name} is {shown(fixed[name])} in the space and {shown(own[name])} in {where}: leave one "
                    "of them out, or give a range (low, high)"
                )


def _fields_of(algo: Any) -> dict[str, Field[Any]]:
    """Return the fields of the settings of an algorithm, by name; none for a mapping or a list of players."""
    several = isinstance(algo, Mapping) or is_list(algo)
    return {} if several else {f.name: f for f in fields(_settings_of(algo))}


def _settings_of(algo: Any) -> type:
    kind = algo[0] if is_pair(algo) else algo
    kind = agent_class(kind) if isinstance(kind, str) and kind in ALGORITHMS else kind
    if not (isinstance(kind, type) and issubclass(kind, LearningAgent)):
        raise ConfigError(f"name: give an algorithm or a class of agents that learn, got {shown(algo)}")
    settings: type = kind.algorithm_class.Settings
    return settings


def _is_pair(value: Any) -> bool:
    numbers = isinstance(value, tuple) and all(isinstance(v, int | float) and not isinstance(v, bool) for v in value)
    return numbers and len(value) == 2 and value[0] != value[1]


def _range(pair: tuple[float, float], default: Range | None) -> Range:
    """Return a range with the scale of the setting's default range, if it has one."""
    return Range(min(pair), max(pair), "linear" if default is None else default.scale)


def _distinct(name: str, values: Sequence[Any]) -> list[Any]:
    chosen = {str(value): value for value in values}
    if len(chosen) < 2:
        raise ConfigError(f"space: {name} needs at least two different choices, got {shown(values)}")
    return list(chosen.values())
