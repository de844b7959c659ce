"""Checks of the records of a native game where values come from outside, before compiled code uses them.

Compiled rules trust their record: an index out of range reads and writes foreign memory, and an impossible count may
make a loop endless. The author of a checkpoint chooses the numbers, and the checksums as well.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np

from marltrain.envs.native.bounds import Bounds
from marltrain.envs.native.game import Game
from marltrain.errors import ConfigError, shown
from marltrain.layout import Array


def take_back(game: Game, records: Array, saved: Mapping[str, Array], first: int, *, may_be_over: bool) -> None:
    """Write what was saved of records [E] back into them, all fields of it; raises ConfigError as `store` and `check`.

    Nothing that is refused may be used: what was written until then stays.
    """
    if set(saved) != set(game.saved):
        raise ConfigError(f"{game.name}: a saved batch has the fields {game.saved}, got {sorted(saved)}")
    for name, values in saved.items():
        expected = records[name].shape
        if np.shape(values) != expected:
            raise ConfigError(f"{game.name}, field {name!r}: shape {np.shape(values)}, expected {expected}")
        store(game, records, name, np.asarray(values), first)
    check(game, records, saved, first, may_be_over=may_be_over)


def store(game: Game, records: Array, name: str, values: Array, first: int) -> None:
    """Write values [E, ...] into a field of records [E]; raises ConfigError where the field cannot hold them.

    first: the number of the first environment, for messages.
    """
    if values.dtype.kind not in "biuf":
        raise ConfigError(f"{game.name}, field {name!r}: expected numbers, got {shown(values.tolist())}")
    with np.errstate(invalid="ignore", over="ignore"):  # what is lost on the way is looked at below
        records[name] = values
    if records[name].dtype.kind != "f":
        _refuse(game, name, records[name] == values, values, first, f"a whole number of type {records[name].dtype}")


def check(game: Game, records: Array, names: Iterable[str], first: int, *, may_be_over: bool) -> None:
    """Refuse records [E] that the game's rules could not go on from; raises ConfigError.

    names: the fields whose bounds are looked at.  first: the number of the first environment, for messages.
    may_be_over: whether an environment may lie idle, with nobody present, after its episode.
    """
    for name in names:
        if name in game.bounds:
            (low, high), came = game.bounds[name], records[name]
            _refuse(game, name, (came >= low) & (came <= high), came, first, (low, high))
        elif records[name].dtype.kind == "f":
            _refuse(game, name, np.isfinite(records[name]), records[name], first, "a finite number")
    sound = game.sound(records)
    if may_be_over:
        sound = sound | ~records["present"].any(-1)
    if not sound.all():
        e = int(np.flatnonzero(~sound)[0])
        held = {name: records[name][e].tolist() for name in (*game.own, "turn", "present")}
        raise ConfigError(
            f"{game.name}, environment {first + e}: fields that do not fit together, such as no episode leads to; "
            f"expected what get_state or snapshot returned, got {shown(held)}"
        )


def _refuse(game: Game, name: str, fits: Array, came: Array, first: int, allowed: str | Bounds) -> None:
    """Raise ConfigError for the first value that does not fit, if there is one."""
    if fits.all():
        return
    e, *entry = (int(i) for i in np.argwhere(~fits)[0])
    if not isinstance(allowed, str):
        low, high = (side[tuple(entry)] for side in allowed)
        allowed = f"a number from {low} to {high}"
    where = f"{name!r}, entry {entry}," if entry else f"{name!r}"
    raise ConfigError(f"{game.name}, environment {first + e}, field {where} must be {allowed}, got {came[(e, *entry)]}")
