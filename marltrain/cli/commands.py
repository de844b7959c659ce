"""The commands by name, and `main`: it runs one, prints errors in one line and returns the exit code."""

from __future__ import annotations

import os
import select
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from marltrain.cli.completion import add_completion_arguments, script
from marltrain.cli.options import Parser
from marltrain.cli.output import say
from marltrain.core.errors import ConfigError, MarlTrainError, did_you_mean, name_the_doctor
from marltrain.core.remedies import on_command_line
from marltrain.core.version import __version__

INTERRUPTED = 130
"""Exit code of a command ended by Ctrl-C, as in a shell."""
BROKEN_PIPE = 141
"""Exit code of a command whose reader is gone (SIGPIPE), as in a shell."""


@dataclass(frozen=True)
class Command:
    """A command of the command line.

    summary: one line for the help.  add_arguments: adds its arguments to a parser.
    run: runs the command with the given options; returns None, the folder of an interrupted run, or an exit code.
    search: whether it is a search, with which the same command goes on after Ctrl-C if --storage is given.
    """

    summary: str
    add_arguments: Callable[[Parser], None]
    run: Callable[[dict[str, Any]], Path | int | None]
    search: bool = False


def _command(summary: str, module: str, name: str, run: str | None = None, *, search: bool = False) -> Command:
    """Return a command whose module is imported when it is used: `doctor` answers where others cannot be imported.

    module: in marltrain.cli.  name: of the command; the module's `add_NAME_arguments` adds its arguments.
    run: the module's function that runs it; None: `name`.
    """

    def function(called: str) -> Any:
        return getattr(import_module(f"marltrain.cli.{module}"), called)

    return Command(
        summary,
        lambda parser: function(f"add_{name}_arguments")(parser),
        lambda options: function(run or name)(options),
        search,
    )


def _completion(options: dict[str, Any]) -> None:
    """Print the script that completes the commands and their options in a shell."""
    found = {}
    for name, command in COMMANDS.items():
        parser = Parser(name, command.summary)
        command.add_arguments(parser)
        found[name] = [option for action in parser._actions for option in action.option_strings]
    say(script(options["shell"], found), end="")


COMMANDS = {
    "train": _command("train agents, one for each player, in an environment", "train", "train"),
    "find": _command("compare learning rates, optimizers or algorithms", "find", "find", search=True),
    "tune": _command("search settings, and write the best ones into a file", "tune", "tune", search=True),
    "test": _command("play test episodes with a run's agents and print what they earn", "runs", "test"),
    "play": _command("watch or film a run's agents", "runs", "play"),
    "watch": _command("show the state of a run of another process", "watch", "watch"),
    "attach": _command("follow, test or end a named run of another process or machine", "attach", "attach"),
    "status": _command("list the named runs of a Ray cluster", "attach", "status"),
    "replay": _command("show or film an episode of an evaluation again", "replay", "replay"),
    "plot": _command("draw the learning curves of runs", "plot", "plot"),
    "compare": _command("compare groups of runs over their seeds", "compare", "compare"),
    "league": _command("rate a run's learners, their earlier versions and others", "league", "league"),
    "export": _command("write a run's policies to files that other programs run", "export", "export"),
    "eval": _command("play a run's agents over a grid of arguments and opponents", "evaluate", "eval", "run_eval"),
    "settings": _command("list the settings of an algorithm", "settings", "settings"),
    "envs": _command("list the environments that can be named", "envs", "envs"),
    "doctor": _command("check the installation, and print what a bug report needs", "doctor", "doctor"),
    "completion": Command("print a script that completes commands in a shell", add_completion_arguments, _completion),
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command and return its exit code.

    0: success.  1: failure.  2: wrong arguments.  130: ended by Ctrl-C or SIGTERM.  141: the reader of the output, such
    as `head`, is gone.
    """
    try:
        try:
            with on_command_line():
                return _run(sys.argv[1:] if arguments is None else arguments)
        finally:
            sys.stdout.flush()  # here, so that a missing reader is handled below
    except BrokenPipeError:
        if not _reader_gone():
            raise
        return BROKEN_PIPE
    except MarlTrainError as error:
        say(f"marltrain: {error}", *getattr(error, "__notes__", ()), sep="\n", file=sys.stderr)
        return 2 if isinstance(error, ValueError) else 1
    except ImportError as error:
        name_the_doctor(error)
        raise
    except KeyboardInterrupt:
        say("marltrain: interrupted", file=sys.stderr)
        return INTERRUPTED


def _run(arguments: Sequence[str]) -> int:
    """Run a command; return its exit code: 0, its own, or 130 for an interrupted run."""
    name, rest = (arguments[0], arguments[1:]) if arguments else ("--help", [])
    if name in ("-h", "--help"):
        say(_overview())
    elif name == "--version":
        say(f"marltrain {__version__}")
    elif name not in COMMANDS:
        raise ConfigError(f"no command is called {name!r}.{did_you_mean(name, COMMANDS)}"
                          f" There are {', '.join(COMMANDS)}")  # fmt: skip
    else:
        command = COMMANDS[name]
        parser = Parser(name, command.summary)
        command.add_arguments(parser)
        options = parser.read(rest)
        stored = "storage" in options
        try:
            outcome = command.run(options)
        except KeyboardInterrupt:
            if command.search:
                from marltrain.cli.search import say_how_to_go_on

                say_how_to_go_on(name, rest, stored=stored)
            raise
        if isinstance(outcome, int):
            return outcome
        if outcome is not None:
            from marltrain.cli.train import print_how_to_resume

            print_how_to_resume(rest, outcome)
            return INTERRUPTED
    return 0


def _overview() -> str:
    lines = ["usage: marltrain COMMAND ...", "", "Train several agents at once in one environment.", "", "commands:"]
    lines += [f"  {name:<11}{command.summary}" for name, command in COMMANDS.items()]
    return "\n".join([*lines, "", "`marltrain COMMAND --help` tells more. `marltrain --version` prints the version."])


def _reader_gone() -> bool:
    """Return whether the reader of stdout is gone; if so, redirect Python's final flush to the null device."""
    try:
        output = sys.stdout.fileno()
    except (OSError, ValueError):  # stdout is not a file, as in a notebook
        return False
    pipe = select.poll()
    pipe.register(output, 0)
    gone = any(state & (select.POLLERR | select.POLLHUP) for _, state in pipe.poll(0))
    if gone:
        os.dup2(os.open(os.devnull, os.O_WRONLY), output)
    return gone
