"""The callbacks that files of runs can hold, by the names of their classes."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

from marltrain.errors import ConfigError, did_you_mean, shown
from marltrain.trainer.adapting.adapt import Adapt
from marltrain.trainer.adapting.early_stopping import EarlyStopping
from marltrain.trainer.adapting.reduce_on_plateau import ReduceOnPlateau
from marltrain.trainer.callbacks import Callback
from marltrain.trainer.saving.checkpoint import Checkpoint

CALLBACKS: dict[str, Any] = {kind.__name__: kind for kind in (Adapt, Checkpoint, EarlyStopping, ReduceOnPlateau)}


def make_callback(arguments: Mapping[str, Any]) -> Callback:
    """Make a callback from its arguments and its class's name as `type`; raises ConfigError if they are wrong."""
    kind = arguments.get("type")
    if kind not in CALLBACKS:
        raise ConfigError(
            f"type must be one of {', '.join(CALLBACKS)}, got {shown(kind)}.{did_you_mean(kind, CALLBACKS)}"
        )
    known = list(inspect.signature(CALLBACKS[kind]).parameters)
    for name in arguments:
        if name != "type" and name not in known:
            raise ConfigError(f"{kind} has no argument {name!r}.{did_you_mean(name, known)}")
    made: Callback = CALLBACKS[kind](**{name: value for name, value in arguments.items() if name != "type"})
    return made
