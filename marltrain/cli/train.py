"""`marltrain train`: its options, the training, and what it prints at the end."""

from __future__ import annotations

import inspect
import shlex
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

from marltrain.cli.agents import VALUES, custom_object_options, settings_of_agents
from marltrain.cli.callbacks import add_callback_arguments
from marltrain.cli.next_commands import next_commands
from marltrain.cli.options import Parser, add_fields
from marltrain.cli.output import say
from marltrain.cli.run_plan import pop_plan
from marltrain.cli.teams import add_team_arguments
from marltrain.core.errors import ConfigError

if TYPE_CHECKING:
    from marltrain.tools.run_files.plan import RunPlan


def add_train_arguments(parser: Parser) -> None:
    """Add the arguments of `marltrain train`."""
    from marltrain.policies.agents.registry import ALGORITHMS
    from marltrain.trainer.make_agents import RANDOM, make_agents
    from marltrain.trainer.settings import TrainerSettings

    backend = inspect.signature(make_agents).parameters["backend"].default
    names = ", ".join([*ALGORITHMS, RANDOM])
    parser.add_argument("env", metavar="ENV|FILE", help="namespace/name (see `marltrain envs`), module:attribute, "
                        "or the file of a run: run.toml, config.json")  # fmt: skip
    parser.add_argument("--algo", action="append", metavar="[PLAYER=]ALGO",
                        help=f"algorithm: {names}, or module:Class of your own; once for each player or "
                        "pattern, or one for all")  # fmt: skip
    parser.add_argument("--tuned", action="store_true", help="begin with settings known to work for this pair")
    parser.add_argument("--settings", metavar="FILE", help="begin with the settings in a file of `tune`")
    parser.add_argument("--env-arg", action="append", metavar="KEY=VALUE", help="argument of the environment")
    parser.add_argument("--set", action="append", metavar="KEY=VALUE", help="setting of the agents, see below")
    parser.add_argument("--share", action="store_true", help="one agent for all players of equal spaces")
    parser.add_argument("--identify", action="store_true", help="--share agents observe which player they act for")
    parser.add_argument("--self-play", action="store_true", help="--share, and test against random players")
    parser.add_argument("--backend", help=f"framework (default: {backend})")
    parser.add_argument("--weights", metavar="FOLDER", help="initial weights: folder of agents or weights")
    parser.add_argument("--env", dest="own_env", metavar="ENV", help="environment of your own that the file names")
    parser.add_argument("--print-config", action="store_true", help="print the complete run as TOML, and do not train")
    parser.add_argument("--run-dir", metavar="FOLDER", help="where all files go (default: a new one in runs/)")
    parser.add_argument("--resume", action="store_true", help="continue from the newest checkpoint in --run-dir")
    parser.add_argument("--any-threads", action="store_true", help="resume with another number of threads too")
    parser.add_argument("--dashboard", action="store_true", help="curves, returns and losses in place of the bar")
    add_team_arguments(parser)
    add_callback_arguments(parser)
    add_fields(parser.add_argument_group("the trainer's settings"), TrainerSettings)
    parser.elsewhere = {name: f"--set {name}=..." for name in settings_of_agents()}
    parser.epilog = VALUES


def train(options: dict[str, Any]) -> Path | None:
    """Train, and print the result; return the run's folder if it was interrupted."""
    from marltrain.tools.run_files.writing import to_toml

    resuming, here, printing = _pop_resume(options), Path.cwd(), options.pop("print_config", False)
    plan = pop_plan(options)
    output = plan.make()
    if printing:
        say(to_toml(output.completed()), end="")
        return None
    result = output.train(**resuming)
    folder = Path(result["run_dir"])
    if not Path(plan.run_dir or "").is_absolute() and folder.is_relative_to(here) and here == Path.cwd():
        folder = folder.relative_to(here)  # show it relative, as the user gave it
    _print_result(result, plan, folder, custom_objects=custom_object_options(output.agents))
    return folder if result["stop_reason"] == "interrupted" else None


def _pop_resume(options: dict[str, Any]) -> dict[str, Any]:
    """Remove the options of resuming from `options` and return them as arguments of `train`; raises ConfigError."""
    resume, any_threads = options.pop("resume", False), options.pop("any_threads", False)
    if any_threads and not resume:
        raise ConfigError("--any-threads has a meaning only with --resume")
    if resume and "run_dir" not in options:
        raise ConfigError("--resume: name the folder of the run with --run-dir")
    return {"resume": options["run_dir"], "any_threads": any_threads} if resume else {}


def _print_result(result: Mapping[str, Any], plan: RunPlan, folder: Path, *, custom_objects: str) -> None:
    """Print the result of training, the files written and the next commands; custom_objects: options for these."""
    tests = result["history"]
    say(
        f"{result['num_collected_episodes']:,} episodes, {result['num_collected_steps']:,} env steps, "
        f"{result['num_gradient_steps']:,} gradient steps in {result['training_time']:.1f} s; "
        f"ended by {result['stop_reason']}"
    )
    if len(tests):
        first, best, last = tests["metric"].iloc[0], tests["metric"][tests["best"]].iloc[-1], tests["metric"].iloc[-1]
        say(f"metric: {first:.4g} at first, {best:.4g} at best, {last:.4g} at last")
    if result["num_faults"]:
        say(f"{result['num_faults']:,} faults of environments, {result['num_dropped_steps']:,} env steps dropped")
    tables = ("history.parquet", "episodes.parquet", "members.parquet", "faults.parquet")
    for name in ("best", "last", *tables, "metrics.png", "config.json"):
        if (folder / name).exists():
            say(f"  {folder / name}")
    commands = next_commands(plan.env, plan.env_args, folder, custom_objects, tested=len(tests) > 0)
    say("next:", *(f"  {command}" for command in commands), sep="\n")


def print_how_to_resume(arguments: Sequence[str], folder: Path) -> None:
    """Print the command that resumes an interrupted run."""
    from marltrain.trainer.saving.checkpoint import newest

    if newest(folder) is None:
        say("interrupted: there is no checkpoint to resume from; --checkpoint STEPS writes some")
        return
    kept = [
        word
        for before, word in pairwise(["train", *arguments])
        if before != "--run-dir" and word not in ("--run-dir", "--resume") and not word.startswith("--run-dir=")
    ]
    say(f"resume with: {shlex.join(['marltrain', 'train', *kept, '--run-dir', str(folder), '--resume'])}")
