"""Tuned settings by algorithm and environment, from `tuned.toml`."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Any

from marltrain.core.errors import ConfigError, did_you_mean, shown
from marltrain.trainer.text_values import value_of

FILE = "tuned.toml"
TABLES = ("trainer", "agents")
"""Keyword arguments of `DecentralizedTrainer` and of `make_agents`."""


def tuned(algo: str, env: str) -> dict[str, dict[str, Any]]:
    """Return a copy of the tuned settings: {"trainer": {...}, "agents": {...}}.

    "trainer" holds keyword arguments of `DecentralizedTrainer`, "agents" those of `make_agents`.
    Raises ConfigError for a pair without tuned settings.
    """
    known = _entries()
    if not (isinstance(algo, str) and isinstance(env, str)) or (algo, env) not in known:
        names = [f"{a} on {e}" for a, e in known]
        pair = f"{algo} on {env}" if isinstance(env, str) else f"{shown(algo)} on {shown(env)}"
        raise ConfigError(f"no tuned settings for {pair}.{did_you_mean(pair, names)} There are: {'; '.join(names)}")
    return {table: value_of(settings) for table, settings in known[algo, env].items()}


def tuned_pairs() -> list[tuple[str, str]]:
    """Return the pairs (algorithm, environment) that have tuned settings."""
    return list(_entries())


@cache
def _entries() -> dict[tuple[str, str], dict[str, Any]]:
    return entries_of(files("marltrain.trainer").joinpath(FILE).read_text(encoding="utf-8"))


def entries_of(text: str) -> dict[tuple[str, str], dict[str, Any]]:
    """Return the entries of a file, [ALGORITHM."ENVIRONMENT".trainer] and [....agents], by their pairs.

    Raises ConfigError, naming the entry, for other tables and for a missing one.
    """
    result = {}
    for algo, environments in tomllib.loads(text).items():
        for env, tables in environments.items() if isinstance(environments, Mapping) else [("", environments)]:
            if not isinstance(tables, Mapping) or set(tables) != set(TABLES):
                got = ", ".join(tables) if isinstance(tables, Mapping) else shown(tables)
                raise ConfigError(f'{FILE}: [{algo}."{env}"] must hold the tables {", ".join(TABLES)}, got {got}')
            if not all(isinstance(table, Mapping) for table in tables.values()):
                raise ConfigError(f'{FILE}: [{algo}."{env}"] must hold tables, got {shown(dict(tables))}')
            result[algo, env] = dict(tables)
    return result
