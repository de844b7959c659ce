"""The callbacks that every run has: TensorBoard files, and the progress display or dashboard."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from marltrain.trainer.events.callbacks import Callback
from marltrain.trainer.events.due import Budgets
from marltrain.trainer.reporting.dashboard import DASHBOARD, Dashboard, Display
from marltrain.trainer.reporting.progress import Progress, ProgressPrinter
from marltrain.trainer.reporting.scalar_logger import ScalarLogger
from marltrain.trainer.reporting.screens import make_screen

if TYPE_CHECKING:
    from marltrain.trainer.jobs.job import Job


def built_in_callbacks(
    folder: Path | None, budgets: Budgets, *, progress: bool, display: Display, title: str, job: Job | None = None
) -> list[Callback]:
    """Return the built-in callbacks.

    folder: the run's folder, None to write no files.  progress: show the progress.  title: name of the environment.
    job: of a named run; it follows the points, too.
    A dashboard follows the points of the TensorBoard files; outside of a terminal or notebook there are lines instead.
    """
    from marltrain.trainer.reporting.tensorboard import TensorBoard  # loads protobuf

    loggers: list[ScalarLogger] = [] if folder is None else [TensorBoard(folder)]
    others: list[Callback] = []
    if job is not None:
        loggers = loggers or [ScalarLogger()]
        loggers[0].followers.append(job.point)
        others = [job]
    if not progress:
        return [*loggers, *others]
    screen = make_screen(sys.stderr) if display == DASHBOARD else None
    if screen is None:
        return [*loggers, *others, Progress(budgets, display if isinstance(display, ProgressPrinter) else None)]
    dashboard = Dashboard(budgets, screen, title if folder is None else f"{title} - {folder.name}")
    loggers = loggers or [ScalarLogger()]
    loggers[0].followers.append(dashboard.point)
    return [*loggers, *others, dashboard]
