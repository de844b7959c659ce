"""`marltrain eval`: play a run's agents over a grid of environment arguments and opponents."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from marltrain.cli.agents import add_loading_arguments, loading_arguments
from marltrain.cli.options import Parser, add_working_folder, integer, key_values, or_none
from marltrain.cli.output import say
from marltrain.core.errors import ConfigError
from marltrain.storage.files import made_folder
from marltrain.trainer.text_values import parse_value


def add_eval_arguments(parser: Parser) -> None:
    """Add the arguments of `marltrain eval`."""
    from marltrain.envs.make import VECTORS

    parser.add_argument("run", metavar="RUN", help="folder of a run")
    parser.add_argument(
        "--agents",
        choices=("best", "last"),
        help="which of its agents (default: best); runs of --against play with their best",
    )
    parser.add_argument("--grid", action="append", metavar="ARG=VALUE,VALUE", help="values of an env argument")
    parser.add_argument("--against", nargs="+", metavar="[NAME=]RUN", help="opponents: random, or folders of runs")
    parser.add_argument("--side", action="append", metavar="PLAYER", dest="sides",
                        help="players of one competitor, by name or pattern (default: each player)")  # fmt: skip
    parser.add_argument("--episodes", type=integer, metavar="INT", help="of each line-up in each cell (default: 64)")
    parser.add_argument("--sampled", action="store_true", help="let agents explore as in training")
    parser.add_argument("--record", action="append", metavar="NAME", help="attribute to record when episodes end")
    parser.add_argument("--seed", type=integer, metavar="INT", help="of the episodes (default: 0)")
    parser.add_argument("--env", help="namespace/name or module:attribute, for a run of an environment of your own")
    parser.add_argument("--env-arg", action="append", metavar="KEY=VALUE", help="another argument of the environment")
    add_loading_arguments(parser)
    parser.add_argument("--vector", choices=VECTORS, help="environments in this process or in workers")
    parser.add_argument("--num-workers", type=integer, metavar="INT", help="worker processes (with --vector subproc)")
    parser.add_argument("--num-envs", type=integer, metavar="INT", help="environments that play at once (default: 16)")
    parser.add_argument("--max-steps", type=or_none(integer), metavar="INT|none", help="env steps of a line-up's test")
    parser.add_argument("--out", metavar="FOLDER", help="tables (CSV, Parquet), pictures, and episodes for replay")


def run_eval(options: dict[str, Any]) -> None:
    """Evaluate, print the table and the cross-play matrix, and write the files."""
    from marltrain.tools.evaluating.evaluate import evaluate
    from marltrain.tools.evaluating.files import write_evaluation
    from marltrain.tools.evaluating.text import as_text

    if "env" in options:
        add_working_folder(options["env"])
    run = options.pop("run")
    grid = _grid(options.pop("grid", []))
    env_args = key_values("--env-arg", options.pop("env_arg", []))
    if "against" in options:
        options["against"] = _opponents(options["against"])
    out = options.pop("out", None)
    if out is not None:
        made_folder(out, "--out")
    found = evaluate(run, grid=grid, env_args=env_args, **loading_arguments(options), **options)
    say(as_text(found))
    if out is not None:
        write_evaluation(found, out)
        say(f"\n{out}")


def _opponents(texts: Sequence[str]) -> dict[str, str]:
    """Return opponents by name for texts [NAME=]RUN; a folder that exists may hold "=" in its name."""
    from marltrain.tools.evaluating.line_ups import name_of

    named: dict[str, str] = {}
    for text in texts:
        name, equals, run = text.partition("=")
        if not equals or Path(text).exists():
            name, run = name_of(text), text
        if not name or not run:
            raise ConfigError(f"--against takes random, RUN or NAME=RUN, got {text!r}")
        if name in named:
            raise ConfigError(f"--against names {name!r} twice: give different names, NAME=RUN")
        named[name] = run
    return named


def _grid(texts: Sequence[str]) -> dict[str, list[Any]]:
    """Return the values of each argument; those of a list or tuple are written in brackets."""
    grid: dict[str, list[Any]] = {}
    for text in texts:
        name, equals, values = text.partition("=")
        if not name or not equals or not values:
            raise ConfigError(f"--grid takes ARG=VALUE,VALUE, got {text!r}")
        if name in grid:
            raise ConfigError(f"--grid names {name!r} twice")
        try:
            whole = parse_value(f"[{values}]")
            grid[name] = whole if isinstance(whole, list) else [parse_value(value) for value in values.split(",")]
        except ConfigError as error:
            raise ConfigError(f"--grid {name}: {error}") from error
    return grid
