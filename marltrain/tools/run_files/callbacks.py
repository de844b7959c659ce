"""The callbacks that files of runs can hold, by the names of their classes."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

from marltrain.core.errors import ConfigError, did_you_mean, shown
from marltrain.envs.registry import imports_only_known
from marltrain.tools.film import Film
from marltrain.tools.finding.range_test import LearningRateRangeTest
from marltrain.tools.loggers.mlflow_logger import MLflowLogger
from marltrain.tools.loggers.scalar_files import CSVLogger, JSONLinesLogger
from marltrain.tools.loggers.wandb_logger import WandbLogger
from marltrain.tools.run_files.limits import PLACES, check_places, with_places
from marltrain.trainer.adapting.adapt import Adapt
from marltrain.trainer.adapting.early_stopping import EarlyStopping
from marltrain.trainer.adapting.reduce_on_plateau import ReduceOnPlateau
from marltrain.trainer.events.callbacks import Callback
from marltrain.trainer.preparing.run_config import described_callback
from marltrain.trainer.saving.checkpoint import Checkpoint

_EVERY = (
    Adapt, Checkpoint, CSVLogger, EarlyStopping, Film, JSONLinesLogger, LearningRateRangeTest, MLflowLogger,
    ReduceOnPlateau, WandbLogger,
)  # fmt: skip
CALLBACKS: dict[str, Any] = {kind.__name__: kind for kind in _EVERY}
SERVICES = (MLflowLogger.__name__, WandbLogger.__name__)
"""Callbacks that send a run to a service."""


def make_callback(arguments: Mapping[str, Any]) -> Callback:
    """Make a callback from its arguments in a file and its class's name as `type`; raises ConfigError for wrong ones.

    Places of files are in the run's folder, see `PlaceInRun`.
    """
    kind = arguments.get("type")
    if kind not in CALLBACKS:
        raise ConfigError(
            f"type must be one of {', '.join(CALLBACKS)}, got {shown(kind)}.{did_you_mean(kind, CALLBACKS)}"
        )
    known = list(inspect.signature(CALLBACKS[kind]).parameters)
    for name in arguments:
        if name != "type" and name not in known:
            raise ConfigError(f"{kind} has no argument {name!r}.{did_you_mean(name, known)}")
    _check_env(arguments)
    own = with_places(str(kind), {name: value for name, value in arguments.items() if name != "type"})
    result: Callback = CALLBACKS[kind](**own)
    return result


def imports_nothing(arguments: Mapping[str, Any]) -> bool:
    """Return whether the environment among a callback's arguments, if there is one, imports known modules only."""
    env = arguments.get("env")
    return env is None or (isinstance(env, str) and imports_only_known(env))


def arguments_of(callback: Callback) -> dict[str, Any]:
    """Return the type and the arguments of a callback that are not defaults.

    Raises ConfigError for a callback that `make_callback` does not make.
    """
    name, given = type(callback).__name__, described_callback(callback)
    if CALLBACKS.get(name) is not type(callback):
        raise ConfigError(f"no file can hold the callback {name}: give it in Python. Files hold {', '.join(CALLBACKS)}")
    _check_env(given)
    check_places(name, given, getattr(callback, PLACES.get(name, ""), None))
    parameters = inspect.signature(CALLBACKS[name]).parameters
    return {key: value for key, value in given.items() if key == "type" or value != parameters[key].default}


def _check_env(arguments: Mapping[str, Any]) -> None:
    """Raise ConfigError for an environment whose name would import a module."""
    if not imports_nothing(arguments):
        raise ConfigError(
            f"{arguments['type']}: 'env' is {shown(arguments['env'])}. No file may choose what code is run: give this "
            "callback in Python"
        )
