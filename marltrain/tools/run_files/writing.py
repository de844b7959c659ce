"""Write a plan of a run, or tables of settings, as TOML."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from marltrain.core.errors import ConfigError
from marltrain.core.version import __version__
from marltrain.storage.files import path_of, replacing
from marltrain.tools.run_files.callbacks import arguments_of
from marltrain.tools.run_files.limits import BY_OPTION, options_of, without_options
from marltrain.tools.run_files.plan import RunPlan
from marltrain.trainer.saving.places import refusal_of
from marltrain.trainer.text_values import as_text

FLAGS = ("share", "identify", "self_play", "tuned")
HEAD = f"# marltrain {__version__}"
"""First line of each file."""
BARE = re.compile(r"[A-Za-z0-9_-]+")
"""Keys of TOML that need no quotes."""


def to_toml(plan: RunPlan) -> str:
    """Return a plan as the text of a file that `read_plan` reads; raises ConfigError for what no file can hold.

    What only options give, such as the address of a cluster, is a comment with these options.
    """
    top: dict[str, Any] = {"env": plan.env}
    options = options_of(plan.trainer, plan.run_dir)
    if plan.run_dir is not None and refusal_of(plan.run_dir):
        plan = replace(plan, run_dir=None)
    top |= {name: value for name in ("algo", "backend", "weights", "run_dir") if (value := getattr(plan, name))}
    top |= {name: True for name in FLAGS if getattr(plan, name)}
    teams = ("teams", "team_reward", "test_against")
    top |= {name: value for name in teams if (value := getattr(plan, name)) is not None}
    lines = [HEAD, *([_comment(options)] if options else [])]
    lines += [f"{name} = {_toml(as_text(value, name))}" for name, value in top.items()]
    trainer = without_options(plan.trainer, BY_OPTION)
    for name, table in (("env_args", plan.env_args), ("trainer", trainer), ("agents", plan.settings)):
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

    comment: lines at the beginning of the file.  What only options give is a comment, too, see `to_toml`.
    Raises ConfigError for a value that no file can hold.
    """
    path = path_of(path, "the file of settings", ConfigError)
    lines = [HEAD, *(f"# {line}" for line in comment.splitlines())]
    if options := options_of(tables.get("trainer", {})):
        lines.append(_comment(options))
    for name, given in tables.items():
        table = without_options(given, BY_OPTION) if name == "trainer" else given
        lines += _table(name, table) or ["", f"[{name}]"]
    with replacing(path) as beside:
        Path(beside).write_text("\n".join(lines).lstrip("\n") + "\n", encoding="utf-8")
    return Path(path)


def _comment(options: str) -> str:
    return f"# no file holds these options, give them again: {options}"


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
