"""Write a plan of a run, or tables of settings, as TOML."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from marltrain.errors import ConfigError
from marltrain.files import path_of, replacing
from marltrain.tools.run_files.callbacks import arguments_of
from marltrain.tools.run_files.plan import RunPlan
from marltrain.tools.run_files.values import as_text

FLAGS = ("share", "identify", "self_play", "tuned")
BARE = re.compile(r"[A-Za-z0-9_-]+")
"""Keys of TOML that need no quotes."""


def to_toml(plan: RunPlan) -> str:
    """Return a plan as the text of a file that `read_plan` reads; raises ConfigError for what no file can hold."""
    top: dict[str, Any] = {"env": plan.env}
    top |= {name: value for name in ("algo", "backend", "weights", "run_dir") if (value := getattr(plan, name))}
    top |= {name: True for name in FLAGS if getattr(plan, name)}
    top |= {name: value for name in ("teams", "team_reward") if (value := getattr(plan, name)) is not None}
    lines = [f"{name} = {_toml(as_text(value, name))}" for name, value in top.items()]
    for name, table in (("env_args", plan.env_args), ("trainer", plan.trainer), ("agents", plan.settings)):
        lines += _table(name, table)
    for player, own in plan.players.items():
        extra = {"algo": own.algo, **({} if own.learns is None else {"learns": own.learns})}
        extra |= {} if own.explores else {"explores": False}
        lines += _table(f"players.{_key(player)}", {**extra, **own.settings})
    for callback in plan.callbacks:
        lines += _table("callbacks", arguments_of(callback), array=True)
    return "\n".join(lines) + "\n"


def write_settings(path: str | Path, tables: Mapping[str, Mapping[str, Any]], *, comment: str = "") -> Path:
    """Write tables of settings, by name, into a file that `read_settings` reads; return its path.

    comment: lines at the beginning of the file.  Raises ConfigError for a value that no file can hold.
    """
    path = path_of(path, "the file of settings", ConfigError)
    lines = [f"# {line}" for line in comment.splitlines()]
    for name, table in tables.items():
        lines += _table(name, table) or ["", f"[{name}]"]
    with replacing(path) as beside:
        Path(beside).write_text("\n".join(lines).lstrip("\n") + "\n", encoding="utf-8")
    return Path(path)


def _table(name: str, table: Mapping[str, Any], *, array: bool = False) -> list[str]:
    if not table:
        return []
    head = f"[[{name}]]" if array else f"[{name}]"
    return ["", head, *(f"{_key(key)} = {_toml(as_text(value, f'[{name}] {key}'))}" for key, value in table.items())]


def _key(name: str) -> str:
    return name if BARE.fullmatch(name) else json.dumps(name)


def _toml(value: Any) -> str:
    """Return a value of `as_text` in TOML."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{_key(key)} = {_toml(inner)}" for key, inner in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_toml, value)) + "]"
    return repr(value)
