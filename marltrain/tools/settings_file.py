"""Files of settings in TOML: the tables [trainer] and [agents], as `tuned` returns them."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from marltrain.errors import ConfigError, SaveError, shown
from marltrain.files import path_of, replacing
from marltrain.policies.networks import NetworkSpec
from marltrain.policies.schedules import Schedule

TABLES = ("trainer", "agents")


def write_settings(path: str | Path, settings: Mapping[str, Mapping[str, Any]], *, comment: str = "") -> Path:
    """Write tables of settings; schedules and networks are written as `--set` takes them, such as "MLP((64, 64))".

    comment: lines at the beginning of the file.
    Raises SaveError for a value that the file cannot hold.
    """
    path = path_of(path, "the file of settings", ConfigError)
    lines = [f"# {line}" for line in comment.splitlines()]
    for table, values in settings.items():
        lines += ["", f"[{table}]"]
        lines += [f"{key} = {_text(key, value)}" for key, value in values.items() if value is not None]
    with replacing(path) as beside:
        Path(beside).write_text("\n".join(lines).lstrip("\n") + "\n", encoding="utf-8")
    return Path(path)


def read_settings(path: str | Path, parse: Any) -> dict[str, dict[str, Any]]:
    """Return the settings that `write_settings` wrote: {"trainer": {...}, "agents": {...}}; other tables are left out.

    parse: text -> value, for schedules and networks.
    Raises SaveError for a file that cannot be read, and ConfigError for one without both tables.
    """
    try:
        content = tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise SaveError(f"{path}: not a file of settings, or damaged: {error}") from error
    if any(not isinstance(content.get(table), dict) for table in TABLES):
        raise ConfigError(f"{path}: a file of settings has the tables [trainer] and [agents], got {', '.join(content)}")
    agents = {key: parse(value) if isinstance(value, str) else value for key, value in content["agents"].items()}
    return {"trainer": dict(content["trainer"]), "agents": agents}


def _text(key: str, value: Any) -> str:
    """Return a value in TOML."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return repr(value)
    if isinstance(value, Schedule | NetworkSpec):
        return json.dumps(called(value))
    if isinstance(value, str):
        return json.dumps(value)
    if isinstance(value, Sequence):
        return f"[{', '.join(_text(key, each) for each in value)}]"
    raise SaveError(f"{key} = {shown(value)} cannot be written into a file of settings: write it as code")


def called(value: Schedule | NetworkSpec) -> str:
    """Return the call that makes a schedule or a network, as `--set` takes it."""
    described = dict(value.describe())
    kind = described.pop("kind", described.pop("type", type(value).__name__))
    arguments = ", ".join(f"{name}={_literal(each)!r}" for name, each in described.items() if each is not None)
    return f"{kind}({arguments})"


def _literal(value: Any) -> Any:
    return tuple(map(_literal, value)) if isinstance(value, list | tuple) else value
