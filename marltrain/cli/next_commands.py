"""The commands that `marltrain train` recommends at its end."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

FILM = "film.gif"


def next_commands(
    env: str, env_args: Mapping[str, Any], folder: Path, custom_objects: str, *, tested: bool
) -> list[str]:
    """Return commands that work when they are copied: to test and to show a run's agents, and to draw its curves.

    env, env_args: its environment.  folder: of the run.  custom_objects: options with which its agents are loaded.
    tested: whether tests were played.
    """
    from marltrain.envs.registry import imports_only_known
    from marltrain.trainer.playing.showing import FILMED, TEXT, shown_best

    run = shlex.quote(str(folder))
    option = ("" if imports_only_known(env) else f" --env {shlex.quote(env)}") + custom_objects
    way = shown_best(env, env_args)
    shown = {FILMED: f" --out {shlex.quote(str(folder / FILM))}", TEXT: " --text"}.get(way, "")
    commands = [f"marltrain test {run}{option}", f"marltrain play {run}{option}{shown}"]
    return [*commands, *([f"marltrain plot {run}"] if tested else [])]
