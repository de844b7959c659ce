"""Options of `marltrain train` that make callbacks: checkpoints, loggers, early stopping, reductions on plateaus."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from marltrain.cli.options import Parser, integer, pop_given
from marltrain.core.errors import ConfigError

CRITERION = {"over_tests": "tests", "over_episodes": "episodes", "min_delta": "min_delta"}
"""Options of the criterion -> arguments of the callbacks."""
LOGGERS = ("csv", "jsonl", "wandb", "mlflow")


def add_callback_arguments(parser: Parser) -> None:
    """Add the options to the parser of `marltrain train`."""
    parser.add_argument(
        "--checkpoint", type=integer, metavar="INT", help="env steps between checkpoints (default: none)"
    )
    parser.add_argument("--log", action="append", choices=LOGGERS, help="write the scalars elsewhere too (repeatable)")
    parser.add_argument("--project", metavar="NAME", help="W&B project, MLflow experiment (default: marltrain)")
    group = parser.add_argument_group("early stopping and plateaus")
    group.add_argument("--target", type=float, metavar="FLOAT", help="metric at which training ends")
    group.add_argument("--patience", type=integer, metavar="INT",
                       help="tests without improvement until training ends")  # fmt: skip
    group.add_argument("--plateau", type=integer, metavar="INT",
                       help="tests without improvement until rates are reduced")  # fmt: skip
    group.add_argument("--plateau-factor", type=float, metavar="FLOAT", help="factor of a reduction (default: 0.5)")
    group.add_argument("--plateau-low", type=float, metavar="FLOAT",
                       help="lower bound of the learning rate (default: 0.0)")  # fmt: skip
    group.add_argument("--over-tests", type=integer, metavar="INT",
                       help="use the mean over so many of the last tests (default: 1)")  # fmt: skip
    group.add_argument("--over-episodes", type=integer, metavar="INT",
                       help="use the mean return over so many training episodes, in place of tests; --patience and "
                       "--plateau then count episodes")  # fmt: skip
    group.add_argument("--min-delta", type=float, metavar="FLOAT",
                       help="increase that counts as an improvement (default: 0.0)")  # fmt: skip


def pop_callbacks(options: dict[str, Any]) -> list[Any]:
    """Remove the options of callbacks from `options` and return the callbacks; errors name the options."""
    from marltrain.trainer.adapting.early_stopping import EarlyStopping
    from marltrain.trainer.adapting.reduce_on_plateau import ReduceOnPlateau
    from marltrain.trainer.saving.checkpoint import Checkpoint

    criterion = {CRITERION[name]: value for name, value in pop_given(options, *CRITERION).items()}
    stop = pop_given(options, "target", "patience")
    plateau = pop_given(options, "plateau", "plateau_factor", "plateau_low")
    reductions = {name.removeprefix("plateau_"): value for name, value in plateau.items() if name != "plateau"}
    if reductions and "plateau" not in plateau:
        raise ConfigError(f"--plateau-{next(iter(reductions))} has a meaning only with --plateau")
    if criterion and not stop and not plateau:
        option = next(name for name, argument in CRITERION.items() if argument in criterion).replace("_", "-")
        raise ConfigError(f"--{option} has a meaning only with --target, --patience or --plateau")
    result = _pop_loggers(options)
    if "checkpoint" in options:
        result.append(_named("--checkpoint", Checkpoint, every_steps=options.pop("checkpoint")))
    if stop:
        result.append(_named(", ".join(f"--{name}" for name in stop), EarlyStopping, **stop, **criterion))
    if plateau:
        result.append(
            _named("--plateau", ReduceOnPlateau, patience=plateau["plateau"], **reductions, **criterion)
        )  # fmt: skip
    return result


def _pop_loggers(options: dict[str, Any]) -> list[Any]:
    """Remove the options of loggers from `options` and return the loggers."""
    from marltrain.tools.loggers.mlflow_logger import MLflowLogger
    from marltrain.tools.loggers.scalar_files import CSVLogger, JSONLinesLogger
    from marltrain.tools.loggers.wandb_logger import WandbLogger

    names, project = list(dict.fromkeys(options.pop("log", []))), pop_given(options, "project")
    if project and not {"wandb", "mlflow"} & set(names):
        raise ConfigError("--project has a meaning only with --log wandb or --log mlflow")
    make: dict[str, Callable[[], Any]] = {
        "csv": CSVLogger, "jsonl": JSONLinesLogger,
        "wandb": lambda: WandbLogger(*project.values()), "mlflow": lambda: MLflowLogger(*project.values()),
    }  # fmt: skip
    return [_named(f"--log {name}", make[name]) for name in names]


def _named(option: str, make: Callable[..., Any], **arguments: Any) -> Any:
    """Return a callback; an error begins with the option."""
    try:
        return make(**arguments)
    except ConfigError as error:
        raise ConfigError(f"{option}: {error}") from error
