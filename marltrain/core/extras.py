"""Optional packages: which extra of pyproject.toml installs them, and the error if one is missing.

`EXTRAS` is the only list of extras in code; a test compares it with pyproject.toml.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from marltrain.core.errors import ConfigError


@dataclass(frozen=True)
class Extra:
    """An extra of the package.

    modules: names of the modules that it adds, as they are imported.
    brings: the features that need it.
    """

    modules: tuple[str, ...]
    brings: str


EXTRAS: Mapping[str, Extra] = {
    "tensorflow": Extra(("tensorflow",), 'agents with backend="tensorflow", export to SavedModel'),
    "ray": Extra(("ray",), "environments, runners and learners on a cluster, named runs"),
    "mpe": Extra(("mpe2",), "MPE2's games in Python (mpe2/...), which draw films of native games"),
    "openspiel": Extra(("pyspiel",), "OpenSpiel's games (openspiel/...), exploitability"),
    "mp4": Extra(("imageio_ffmpeg",), "films in .mp4 (.gif needs nothing)"),
    "compare": Extra(("rliable",), "comparison of runs"),
    "tune": Extra(("optuna",), "search of settings"),
    "export": Extra(("onnx", "onnxruntime", "onnxscript"), "export to ONNX"),
    "minari": Extra(("minari",), "demonstrations of Minari"),
    "mujoco": Extra(("mujoco",), "Gymnasium's MuJoCo environments"),
    "wandb": Extra(("wandb",), "logs to Weights & Biases"),
    "mlflow": Extra(("mlflow",), "logs to MLflow"),
    "learn": Extra(("Box2D", "rliable"), "the learning table's environments (Box2D) and its comparisons"),
}
"""The extras for users, by name. pyproject.toml also has extras for the development of the package."""


def install(extra: str) -> str:
    """Return the command that installs an extra, in quotes that every shell accepts."""
    return f'pip install "marltrain[{extra}]"'


def extra_of(module: str | None) -> str | None:
    """Return the name of the extra that adds a module, given as `ImportError.name` gives it; None without one."""
    top = (module or "").partition(".")[0]
    return next((name for name, extra in EXTRAS.items() if top in extra.modules), None)


def is_installed(module: str) -> bool:
    """Return whether a module can be found; it is not imported."""
    return find_spec(module) is not None


def missing(extra: str) -> tuple[str, ...]:
    """Return the modules of an extra that cannot be found."""
    return tuple(module for module in EXTRAS[extra].modules if not is_installed(module))


def imported(module: str, extra: str, needed_by: str) -> Any:
    """Import an optional module.

    needed_by: the subject of the message, such as "WandbLogger".
    Raises ConfigError that names the extra if the module is missing or its import fails.
    """
    try:
        return import_module(module)
    except ImportError as error:
        raise ConfigError(
            f"{needed_by} needs {module}, which cannot be imported: {error}. Install it: {install(extra)}"
            + "; `marltrain doctor` tells more" * is_installed(module)
        ) from error


def required(module: str, extra: str, needed_by: str) -> None:
    """Raise ConfigError that names the extra if a module cannot be found; it is not imported."""
    if not is_installed(module):
        raise ConfigError(f"{needed_by} needs {module}, which is not installed: {install(extra)}")
