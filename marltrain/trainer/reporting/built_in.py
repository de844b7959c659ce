"""The callbacks that every run has: TensorBoard files and the progress display."""

from __future__ import annotations

from pathlib import Path

from marltrain.trainer.callbacks import Callback
from marltrain.trainer.due import Budgets
from marltrain.trainer.reporting.progress import Progress, ProgressPrinter


def built_in_callbacks(
    folder: Path | None, budgets: Budgets, *, progress: bool, printer: ProgressPrinter | None
) -> list[Callback]:
    """Return the built-in callbacks; folder: the run's folder, None to write no files.  progress: show the progress."""
    from marltrain.trainer.reporting.tensorboard import TensorBoard  # loads protobuf

    callbacks: list[Callback] = [] if folder is None else [TensorBoard(folder)]
    return [*callbacks, Progress(budgets, printer)] if progress else callbacks
