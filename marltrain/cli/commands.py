"""The commands by name, and `main`: it runs one, prints errors in one line and returns the exit code."""

from __future__ import annotations

import os
import select
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from marltrain.cli.attach import add_attach_arguments, add_status_arguments, attach, status
from marltrain.cli.compare import add_compare_arguments, compare
from marltrain.cli.completion import add_completion_arguments, script
from marltrain.cli.envs import add_envs_arguments, envs
from marltrain.cli.evaluate import add_eval_arguments, run_eval
from marltrain.cli.export import add_export_arguments, export
from marltrain.cli.find import add_find_arguments, find
from marltrain.cli.options import Parser
from marltrain.cli.output import say
from marltrain.cli.plot import add_plot_arguments, plot
from marltrain.cli.replay import add_replay_arguments, replay
from marltrain.cli.runs import add_play_arguments, add_test_arguments, play, test
from marltrain.cli.settings import add_settings_arguments, settings
from marltrain.cli.train import add_train_arguments, print_how_to_resume, train
from marltrain.cli.tune import add_tune_arguments, tune
from marltrain.cli.watch import add_watch_arguments, watch
from marltrain.errors import ConfigError, MarlTrainError, did_you_mean
from marltrain.remedies import on_command_line
from marltrain.version import __version__

INTERRUPTED = 130
"""Exit code of a command ended by Ctrl-C, as in a shell."""
BROKEN_PIPE = 141
"""Exit code of a command whose reader is gone (SIGPIPE), as in a shell."""


@dataclass(frozen=True)
class Command:
    """A command of the command line.

    summary: one line for the help.  add_arguments: adds its arguments to a parser.
    run: runs the command with the given options; returns the folder of an interrupted run, else None.
    """

    summary: str
    add_arguments: Callable[[Parser], None]
    run: Callable[[dict[str, Any]], Path | None]


def _completion(options: dict[str, Any]) -> None:
    """Print the script that completes the commands and their options in a shell."""
    found = {}
    for name, command in COMMANDS.items():
        parser = Parser(name, command.summary)
        command.add_arguments(parser)
        found[name] = [option for action in parser._actions for option in action.option_strings]
    say(script(options["shell"], found), end="")


COMMANDS = {
    "train": Command("train agents, one for each player, in an environment", add_train_arguments, train),
    "find": Command("compare learning rates, optimizers or algorithms", add_find_arguments, find),
    "tune": Command("search settings, and write the best ones into a file", add_tune_arguments, tune),
    "test": Command("play test episodes with a run's agents and print what they earn", add_test_arguments, test),
    "play": Command("watch or film a run's agents", add_play_arguments, play),
    "watch": Command("show the state of a run of another process", add_watch_arguments, watch),
    "attach": Command("follow, test or end a named run of another process or machine", add_attach_arguments, attach),
    "status": Command("list the named runs of a Ray cluster", add_status_arguments, status),
    "replay": Command("show or film an episode of an evaluation again", add_replay_arguments, replay),
    "plot": Command("draw the learning curves of runs", add_plot_arguments, plot),
    "compare": Command("compare groups of runs over their seeds", add_compare_arguments, compare),
    "export": Command("write a run's policies to files that other programs run", add_export_arguments, export),
    "eval": Command("play a run's agents over a grid of arguments and opponents", add_eval_arguments, run_eval),
    "settings": Command("list the settings of an algorithm", add_settings_arguments, settings),
    "envs": Command("list the environments that can be named", add_envs_arguments, envs),
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
    except KeyboardInterrupt:
        say("marltrain: interrupted", file=sys.stderr)
        return INTERRUPTED


def _run(arguments: Sequence[str]) -> int:
    """Run a command; return its exit code: 0, or 130 for an interrupted run."""
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
        interrupted = command.run(parser.read(rest))
        if interrupted is not None:
            print_how_to_resume(rest, interrupted)
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
