"""What files of runs may not hold: settings that choose what code is run, or where files are written."""

from __future__ import annotations

import shlex
from collections.abc import Collection, Mapping
from typing import Any

from marltrain.core.errors import ConfigError, shown
from marltrain.trainer.saving.places import PlaceInRun, refusal_of

BY_OPTION = {
    "address": "the processes of a Ray cluster send code to this one",
    "name": "by its name, processes of a Ray cluster call this one",
}
"""Settings of the trainer that no file may give -> the reason."""
PLACES = {"CSVLogger": "path", "JSONLinesLogger": "path", "WandbLogger": "folder"}
"""Callbacks -> the argument that names a place where files are written."""


def without_options(trainer: Mapping[str, Any], overridden: Collection[str]) -> dict[str, Any]:
    """Return the trainer's settings in a file, without those of `BY_OPTION` that are None or that options replace.

    overridden: names of the settings that options give.
    Raises ConfigError, naming the setting, for others of `BY_OPTION`.
    """
    for name, reason in BY_OPTION.items():
        if trainer.get(name) is not None and name not in overridden:
            raise ConfigError(
                f"{name} is {shown(trainer[name])}. No file may choose what code is run, and {reason}: if you know "
                f"this one, give it yourself with --{name}, or in Python"
            )
    return {name: value for name, value in trainer.items() if name not in BY_OPTION}


def options_of(trainer: Mapping[str, Any], run_dir: str | None = None) -> str:
    """Return the options that give again what no file may hold, as text; "" if there are none."""
    options = {name: trainer[name] for name in BY_OPTION if trainer.get(name) is not None}
    if run_dir is not None and refusal_of(run_dir):
        options["run-dir"] = run_dir
    return " ".join(f"--{name} {shlex.quote(_in_one_line(str(value)))}" for name, value in options.items())


def check_run_dir(text: str) -> None:
    """Raise ConfigError unless a file may name this folder of a run: a path below the working folder."""
    if refusal := refusal_of(text):
        raise ConfigError(f"run_dir {shown(text)} {refusal}. A file names a folder below the working folder only: give "
                          "this one with --run-dir")  # fmt: skip


def with_places(kind: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of a callback in a file, its place in the run's folder; raises ConfigError for others."""
    result = dict(arguments)
    place = PLACES.get(kind, "")
    if result.get(place) is not None:
        try:
            result[place] = PlaceInRun(result[place])
        except ConfigError as error:
            raise ConfigError(f"{kind}: {place!r}: {error}. Other places are given in Python") from error
    if result.get("uri") is not None:
        raise ConfigError(
            f"{kind}: 'uri' is {shown(result['uri'])}. A file may not choose where a run is sent or stored: set the "
            "environment variable MLFLOW_TRACKING_URI, or give this callback in Python"
        )
    return result


def check_places(kind: str, described: Mapping[str, Any], place: Any) -> None:
    """Raise ConfigError if a callback has a place that no file may name.

    described: its arguments.  place: the value of its argument in `PLACES`.
    """
    if (place is not None and not isinstance(place, PlaceInRun)) or described.get("uri") is not None:
        raise ConfigError(f"no file can hold the place of {kind}, {shown(described)}: give this callback in Python")


def _in_one_line(text: str) -> str:
    return "".join(letter if letter.isprintable() else "?" for letter in text)
