"""Read a plan of a run from a TOML file or the config.json of a run, and settings from the file of a study."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from marltrain.core.errors import ConfigError, did_you_mean, shown
from marltrain.core.remedies import network_remedy, rollout_remedy, setting_in_file
from marltrain.policies.agents.registry import ALGORITHMS, agent_class
from marltrain.storage.files import path_of, size_of_file
from marltrain.storage.json_files import JSON_LIMIT, check_shape
from marltrain.tools.run_files.callbacks import make_callback
from marltrain.tools.run_files.config import plan_of_config
from marltrain.tools.run_files.limits import BY_OPTION, check_run_dir, without_options
from marltrain.tools.run_files.plan import PlayerPlan, RunPlan
from marltrain.trainer.settings import TrainerSettings
from marltrain.trainer.text_values import value_of

TEXTS = ("env", "algo", "backend", "weights", "run_dir")
FLAGS = ("share", "identify", "self_play", "tuned")
TABLES = ("env_args", "trainer", "agents", "players", "callbacks", "teams", "team_reward", "test_against")
OF_PLAYERS = ("algo", "learns", "explores")
"""Keys of a table of `players` beside the settings of its algorithm."""
AGENT_ARGUMENTS = ("device", "jit_compile")
"""Arguments of every agent, beside the settings of its algorithm."""
OF_SETTINGS = ("trainer", "agents", "evaluation")
"""Tables of the file of a study; the last one holds what was measured."""
OF_TRAINER = tuple(f.name for f in fields(TrainerSettings))
TOML, JSON = ".toml", ".json"


def is_run_file(text: str) -> bool:
    """Return whether the argument of `marltrain train` names a file, not an environment."""
    return text.endswith((TOML, JSON))


@dataclass(frozen=True)
class _Source:
    """A file's name and text, for errors."""

    path: Path
    text: str

    def error(self, table: str, key: str, message: str, entry: int = 0) -> ConfigError:
        """Return the error of a key of a table.

        table: "" for the top of the file.  entry: number of the table in a list of tables.
        """
        line = self._line_of(table, key, entry)
        return ConfigError(f"{self.path}:{line}: {f'[{table}] ' if table else ''}{message}")

    def _line_of(self, table: str, key: str, entry: int) -> int:
        """Return the line of a key, counted from 1; that of its table, or 1, if it is not found."""
        now, found = "", 1
        for number, line in enumerate(self.text.splitlines(), 1):
            if head := re.match(r"\s*\[+\s*([^\]]+?)\s*\]+", line):
                now = head[1].replace('"', "").replace("'", "")
                if now == f"{table}.{key}" or (not table and now == key):
                    return number
                if now == table and entry >= 0:
                    found, entry = number, entry - 1
            elif now == table and entry < (1 if not table else 0) and _assigns(line, key):
                return number
        return found


def _assigns(line: str, key: str) -> bool:
    return re.match(rf"\s*[\"']?{re.escape(key)}[\"']?\s*[=.]", line) is not None


def read_plan(path: str | Path, overridden: Collection[str] = ()) -> RunPlan:
    """Return the plan in a TOML file, or of a run's config.json.

    overridden: names of the trainer's settings, and "run_dir", that options give in place of the file; see `limits`.
    Raises ConfigError, naming file, line and table, for unknown keys and wrong values; SaveError for a missing file.
    """
    file = path_of(path)
    if file.suffix == JSON:
        return plan_of_config(file, overridden)
    return _plan(*_opened(file), overridden)


def read_settings(path: str | Path, overridden: Collection[str] = ()) -> dict[str, dict[str, Any]]:
    """Return the settings that `write_settings` wrote: {"trainer": {...}, "agents": {...}}.

    overridden: as for `read_plan`.
    Raises ConfigError, naming file, line and table, for a missing table, an unknown one, and unknown settings of the
    trainer; those of the agents are checked when they are made. Raises SaveError for a missing file.
    """
    source, found = _opened(path_of(path))
    for key in found:
        if key not in OF_SETTINGS:
            raise source.error("", key, f"there is no table {key!r} in a file of settings.")
    if not {"trainer", "agents"} <= set(found):
        raise ConfigError(f"{path}: a file of settings has the tables [trainer] and [agents], got {', '.join(found)}")
    trainer = _trainer(source, found, overridden, (*OF_TRAINER, "team_reward"))
    return {"trainer": trainer, "agents": _values(source, found, "agents")}


def _opened(file: Path) -> tuple[_Source, dict[str, Any]]:
    """Return a TOML file and its content; raises ConfigError for a file that is not TOML."""
    if size_of_file(file) > JSON_LIMIT:
        raise ConfigError(f"{file}: larger than {JSON_LIMIT:,} bytes: not a file of settings")
    try:
        text = file.read_text(encoding="utf-8")
        found = tomllib.loads(text)
        check_shape(found)
        return _Source(file, text), found
    except (ValueError, RecursionError, MemoryError) as error:
        raise ConfigError(f"{file}: not TOML: {error}") from error


def _plan(source: _Source, found: Mapping[str, Any], overridden: Collection[str]) -> RunPlan:
    known = (*TEXTS, *FLAGS, *TABLES)
    for key, value in found.items():
        if key not in known:
            near = did_you_mean(key, known) or _elsewhere(key)
            raise source.error("", key, f"there is no key {key!r}.{near}")
        kind = str if key in TEXTS else bool if key in FLAGS else None
        if kind is not None and not isinstance(value, kind):
            raise source.error(
                "", key, f"{key} must be {'text' if kind is str else 'true or false'}, got {shown(value)}"
            )
    if "env" not in found:
        raise source.error("", "env", 'the environment is missing: env = "namespace/name"')
    players = {name: _player(source, name, table) for name, table in _tables(source, found, "players").items()}
    if ("algo" in found) == bool(players):
        raise source.error(
            "", "algo", "give one algorithm for all players, algo = ..., or a table [players.NAME] of each"
        )
    algos = [found["algo"]] if "algo" in found else [plan.algo for plan in players.values()]
    for algo in algos:
        _check_algo(source, "", algo)
    trainer, settings = _trainer(source, found, overridden, OF_TRAINER), _values(source, found, "agents")
    for algo in algos:
        _check_keys(source, "agents", settings, settings_of(algo))
    if "run_dir" in found and "run_dir" not in overridden:
        try:
            check_run_dir(found["run_dir"])
        except ConfigError as error:
            raise source.error("", "run_dir", str(error)) from error
    own: Any = {name: found[name] for name in (*TEXTS, *FLAGS) if name in found}
    own |= {name: found[name] for name in ("teams", "team_reward", "test_against") if name in found}
    return RunPlan(
        **own, env_args=_values(source, found, "env_args"), players=players, settings=settings, trainer=trainer,
        callbacks=_callbacks(source, found.get("callbacks", [])),
    )  # fmt: skip


def _trainer(
    source: _Source, found: Mapping[str, Any], overridden: Collection[str], known: Collection[str]
) -> dict[str, Any]:
    """Return the table [trainer], without the settings that only options give."""
    trainer = _values(source, found, "trainer")
    _check_keys(source, "trainer", trainer, known)
    try:
        return without_options(trainer, overridden)
    except ConfigError as error:
        key = next(name for name in BY_OPTION if str(error).startswith(f"{name} is "))
        raise source.error("trainer", key, str(error)) from error


def settings_of(algo: str) -> list[str]:
    """Return the names of the settings of an algorithm, and of the arguments of every agent."""
    if algo not in ALGORITHMS:
        return []
    return [*(f.name for f in fields(agent_class(algo).algorithm_class.Settings)), *AGENT_ARGUMENTS]


def _elsewhere(key: str) -> str:
    """Return a hint for a key that belongs into a table, or an empty string."""
    places = {"trainer": OF_TRAINER, "agents": [name for algo in ALGORITHMS for name in settings_of(algo)]}
    table = next((table for table, names in places.items() if key in names), None)
    return "" if table is None else f" It belongs into the table [{table}]."


def _check_algo(source: _Source, table: str, algo: Any) -> None:
    known = [*ALGORITHMS, "random"]
    if algo not in known:
        own = (
            " A class of your own is given with --algo: no file may choose what code is run."
            if ":" in str(algo)
            else ""
        )
        raise source.error(table, "algo", f"no algorithm is called {shown(algo)}.{did_you_mean(algo, known)}{own}")


def _check_keys(source: _Source, table: str, keys: Iterable[str], known: Collection[str]) -> None:
    for key in keys:
        if key not in known:
            near = network_remedy(key, None, known, setting_in_file) or did_you_mean(key, known) or _elsewhere(key)
            near += rollout_remedy(key, near)
            raise source.error(table, key, f"there is no setting {key!r}.{near}")


def _tables(source: _Source, found: Mapping[str, Any], name: str) -> Mapping[str, Mapping[str, Any]]:
    tables = found.get(name, {})
    if not isinstance(tables, dict) or not all(isinstance(table, dict) for table in tables.values()):
        raise source.error("", name, f"{name} must be tables [{name}.NAME]")
    return tables


def _player(source: _Source, name: str, table: Mapping[str, Any]) -> PlayerPlan:
    place = f"players.{name}"
    values = _parsed(source, place, {key: value for key, value in table.items() if key not in OF_PLAYERS})
    if "algo" not in table:
        raise source.error("players", name, f"{name}: its algorithm is missing: algo = ...")
    _check_algo(source, place, table["algo"])
    _check_keys(source, place, values, settings_of(table["algo"]))
    for key in ("learns", "explores"):
        if not isinstance(table.get(key, True), bool):
            raise source.error(place, key, f"{key} must be true or false, got {shown(table[key])}")
    return PlayerPlan(table["algo"], values, table.get("learns"), table.get("explores", True))


def _values(source: _Source, found: Mapping[str, Any], name: str) -> dict[str, Any]:
    table = found.get(name, {})
    if not isinstance(table, dict):
        raise source.error("", name, f"{name} must be a table [{name}], got {shown(table)}")
    return _parsed(source, name, table)


def _parsed(source: _Source, table: str, values: Mapping[str, Any]) -> dict[str, Any]:
    result = {}
    for key, value in values.items():
        try:
            result[key] = value_of(value)
        except ConfigError as error:
            raise source.error(table, key, f"{key}: {error}") from error
    return result


def _callbacks(source: _Source, entries: Any) -> list[Any]:
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        raise source.error("", "callbacks", "callbacks must be tables [[callbacks]] with a type")
    result = []
    for i, entry in enumerate(entries):
        try:
            result.append(make_callback(value_of(entry)))
        except ConfigError as error:
            key = next((name for name in entry if repr(name) in str(error)), "type")
            raise source.error("callbacks", key, str(error), i) from error
    return result
