"""`marltrain attach` and `marltrain status`: named runs of other processes and machines."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from marltrain.cli.options import Parser, integer
from marltrain.cli.output import say
from marltrain.core.errors import ConfigError

if TYPE_CHECKING:
    from marltrain.tools.attach import JobHandle
    from marltrain.trainer.jobs.messages import RunProgress

ADDRESS = "Ray cluster: host:port (default: RAY_ADDRESS, else all that run on this machine)"
ANSWERED = 10.0
"""Seconds that a run may take to answer `status`."""
LATE = 10.0
"""Seconds after which the age of a report is shown."""


def add_attach_arguments(parser: Parser) -> None:
    """Add the arguments of `marltrain attach`."""
    parser.add_argument("name", metavar="NAME", help="name of a run that goes on, as --name of `train` gives it")
    parser.add_argument("--address", metavar="ADDRESS", help=ADDRESS)
    parser.add_argument("--timeout", type=float, metavar="SECONDS", help="seconds that the run may take to answer")
    parser.add_argument("--every", type=float, metavar="SECONDS",
                        help="seconds between two looks (default: 2 in a terminal, 30 for lines)")  # fmt: skip
    parser.add_argument("--once", action="store_true", help="show the state now, and end")
    parser.add_argument("--test", type=integer, metavar="EPISODES", help="play a test, print its result, and end")
    parser.add_argument("--stop", action="store_true", help="end the run after its current step, and wait for its end")


def attach(options: dict[str, Any]) -> None:
    """Follow a run until it ends, or play a test, or end it."""
    from marltrain.tools.attach import attach as attach_to

    stop, episodes = options.pop("stop", False), options.pop("test", None)
    shown = {name: options.pop(name) for name in ("every", "once") if name in options}
    if shown and (stop or episodes is not None):
        raise ConfigError("attach: --every and --once have no meaning with --test and --stop")
    with attach_to(options.pop("name"), **options) as handle:
        if episodes is not None:
            say(handle.test(episodes))
        if stop:
            _stop(handle)
        if not stop and episodes is None:
            handle.follow(**shown)


def add_status_arguments(parser: Parser) -> None:
    """Add the arguments of `marltrain status`."""
    parser.add_argument("--address", metavar="ADDRESS", help=ADDRESS)


def status(options: dict[str, Any]) -> None:
    """Print one line for each named run that goes on."""
    from marltrain.tools.attach import listed_runs

    runs, silent = listed_runs(options.get("address"), ANSWERED)
    width = max((len(run.name) for run in runs), default=0)
    for run in runs:
        say(f"{run.name:<{width}}  {_line(run)}")
    for name in silent:
        say(f"{name}: no answer within {ANSWERED:g} s")
    if not runs and not silent:
        say("no named run goes on in the Ray cluster")


def _stop(handle: JobHandle) -> None:
    handle.stop()
    say("the run has taken the request")
    last = handle.wait()
    say(f"ended by {last.stop_reason} at {last.env_steps:,} env steps")


def _line(run: RunProgress) -> str:
    """Return the state of a run in one line."""
    from marltrain.trainer.reporting.run_view import clock

    parts = [run.env, *([] if run.done is None else [f"{run.done:.0%}"]), f"{run.episodes:,} episodes",
             f"{run.env_steps:,} env steps", f"{run.updates:,} updates"]  # fmt: skip
    if run.metric is not None:
        parts.append(f"metric {run.metric:.4g} (best {run.best:.4g})")
    if run.runners:
        parts.append(f"{run.runners} of {run.all_runners} runners")
    parts += [text for text in (run.note, clock(run.seconds), run.process) if text]
    if run.age > LATE:
        parts.append(f"last report {clock(run.age)} ago")
    return ", ".join(parts)
