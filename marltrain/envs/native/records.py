"""Checks of a native game's records that come from outside, before compiled code uses them.

Compiled rules do not check their record: an index out of range accesses foreign memory, and an impossible count may
cause an endless loop. Checksums give no protection, because the author of a checkpoint chooses them, too.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np

from marltrain.core.errors import ConfigError, shown
from marltrain.core.layout import Array
from marltrain.envs.native.bounds import Bounds
from marltrain.envs.native.game import Game


def restore_records(game: Game, records: Array, saved: Mapping[str, Array], first: int, *, may_be_over: bool) -> None:
    """Write all saved fields into records [E]; raises ConfigError as `store` and `check` do.

    After an error the records must not be used: fields written before the error keep their new values.
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
    """Write values [E, ...] into a field of records [E]; raises ConfigError if the field cannot hold them.

    first: the number of the first environment, for messages.
    """
    if values.dtype.kind not in "biuf":
        raise ConfigError(f"{game.name}, field {name!r}: expected numbers, got {shown(values.tolist())}")
    with np.errstate(invalid="ignore", over="ignore"):  # conversion losses are checked below
        records[name] = values
    if records[name].dtype.kind != "f":
        _refuse(game, name, records[name] == values, values, first, f"a whole number of type {records[name].dtype}")


def check(game: Game, records: Array, names: Iterable[str], first: int, *, may_be_over: bool) -> None:
    """Check records [E]; raises ConfigError for a record that the game's rules cannot continue from.

    names: the fields whose bounds are checked.  first: the number of the first environment, for messages.
    may_be_over: whether an environment may be idle after its episode, with no player present.
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
    """Raise ConfigError for the first value that is not allowed, if there is one."""
    if fits.all():
        return
    e, *entry = (int(i) for i in np.argwhere(~fits)[0])
    if not isinstance(allowed, str):
        low, high = (side[tuple(entry)] for side in allowed)
        allowed = f"a number from {low} to {high}"
    where = f"{name!r}, entry {entry}," if entry else f"{name!r}"
    raise ConfigError(f"{game.name}, environment {first + e}, field {where} must be {allowed}, got {came[(e, *entry)]}")
