"""What `marltrain find` and `marltrain tune` share: options of the environment and the trainer, and how to go on."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import Any

from marltrain.cli.agents import settings_of_agents
from marltrain.cli.options import Parser, add_fields, add_working_folder, key_values
from marltrain.cli.output import say
from marltrain.cli.teams import add_team_reward, pop_team_reward

BY_THE_TOOL = ("episodes_per_train", "steps_per_train", "updates_per_train", "seed", "progress", "vector",
               "num_workers", "on_fault", "max_env_restarts", "env_timeout", "test_freq", "record", "resources",
               "address", "timeout", "runners", "min_runners", "learners", "learner_resources", "name")  # fmt: skip
"""Settings of the trainer that tools set themselves, or that do not apply to copies of an environment."""


def add_environment(parser: Parser) -> None:
    """Add the environment and its arguments, which `pop_environment` reads."""
    parser.add_argument("env", metavar="ENV", help="namespace/name (see `marltrain envs`) or module:attribute")
    parser.add_argument("--env-arg", action="append", metavar="KEY=VALUE", help="argument of the environment")


def add_trainer(parser: Parser) -> None:
    """Add the trainer's settings, which stay in the options but for `pop_environment`."""
    from marltrain.trainer.settings import TrainerSettings

    add_team_reward(parser)
    add_fields(parser.add_argument_group("the trainer's settings"), TrainerSettings, BY_THE_TOOL)
    parser.elsewhere = {name: f"--set {name}=..." for name in settings_of_agents()}


def pop_environment(options: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """Remove the environment and its arguments from the options and return them; read the team reward."""
    env = options.pop("env")
    add_working_folder(env)
    options |= pop_team_reward(options)
    return env, key_values("--env-arg", options.pop("env_arg", []))


def say_how_to_go_on(command: str, arguments: Sequence[str], *, stored: bool) -> None:
    """Print the command that goes on with an interrupted search; stored: whether it was given --storage."""
    if stored:
        say(f"resume with: {shlex.join(['marltrain', command, *arguments])}")
    else:
        say("interrupted: nothing is kept to resume from; --storage keeps the search")
