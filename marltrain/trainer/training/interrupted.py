"""The end of an interrupted run for the caller of `train`: how to resume it, and KeyboardInterrupt."""

from __future__ import annotations

import sys
from contextlib import suppress
from pathlib import Path

from marltrain.core.errors import printable
from marltrain.core.remedies import written
from marltrain.trainer.saving.checkpoint import newest
from marltrain.trainer.training.run import Run


def end_interrupted(run: Run, on_interrupt: str) -> None:
    """Print to stderr how to resume an interrupted run; then raise KeyboardInterrupt, with on_interrupt="raise".

    It is also raised if the run was complete when the signal came: it ends the loop of the caller.
    Nothing is printed for complete runs and runs without a folder, and on the command line, which prints its own.
    """
    if not run.interrupts.came:
        return
    line = written(how_to_resume(run), "") if run.reason == "interrupted" else ""
    if line:
        print_how(line)
    if on_interrupt == "raise":
        raise KeyboardInterrupt("training was interrupted")


def print_how(line: str) -> None:
    """Print to stderr how an interrupted run or search is resumed."""
    if sys.stderr is not None:
        with suppress(OSError, ValueError):  # stderr may be closed
            print(printable(f"marltrain: {line}"), file=sys.stderr, flush=True)


def how_to_resume(run: Run) -> str:
    """Return how to resume an interrupted run in Python, or the remedy without a checkpoint; "" without a folder."""
    if run.context.folder is None:
        return ""
    path = run.context.folder.path
    if newest(path) is None:
        remedy = "callbacks=[mt.Checkpoint(every_steps=10_000)] writes some"
        return f"interrupted: there is no checkpoint to resume from; {remedy}"
    with suppress(FileNotFoundError):  # a working folder that was removed
        path = path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path
    return f"interrupted; resume with: trainer.train(agents, ..., resume={str(path)!r})"
