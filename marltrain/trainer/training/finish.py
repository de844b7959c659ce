"""The end of a run: last agents, tables, plot, `on_train_end`, and closed environments."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from marltrain.core.errors import error_text, raised_by
from marltrain.envs.matches import divided
from marltrain.trainer.reporting.figures import not_worth_a_run
from marltrain.trainer.saving.checkpoint import newest
from marltrain.trainer.seats.sides import sides_of, teams_of
from marltrain.trainer.training.run import Run
from marltrain.trainer.training.run_files import save_agents, write_members, write_table


def finish(run: Run, plot: bool, ended_by: BaseException | None) -> None:
    """Save the last agents, write the tables and the plot, call `on_train_end`, close the environments.

    Every step runs even if another one fails. The first failure is raised, unless an exception ended the run; other
    failures become notes of the exception that is raised. A run that fails before its first update gives its folder
    back.

    ended_by: the exception that ended the run and that the caller raises, or None.
    """
    folder = run.context.folder
    with run.closing:
        try:
            if run.started:
                _end(run, plot, ended_by)
        finally:
            if folder is not None and folder.own is not None:
                folder.own = _event_files(run) if _is_of_no_use(run, ended_by) else None
    if ended_by is not None and folder is not None and folder.given_back:
        ended_by.add_note(f"{folder.path} is free again: the run made no update, and its files are removed")


def _end(run: Run, plot: bool, ended_by: BaseException | None) -> None:
    folder = run.context.folder
    errors = [error for work in _last_works(run, plot, ended_by is not None) if (error := raised_by(work))]
    leaving = [error for error in errors if isinstance(error, KeyboardInterrupt)]
    raised = [*leaving, *([] if ended_by is None else [ended_by]), *errors]
    for error in errors:
        if error is not raised[0] and error_text(error) != error_text(raised[0]):
            raised[0].add_note(f"then, when the run was ended: {error_text(error)}")
    if raised and folder is not None and (complete := newest(folder.path)):
        raised[0].add_note(f"{complete} is complete: the run can be resumed from it")
    if raised and raised[0] is not ended_by:
        raise raised[0]


def _is_of_no_use(run: Run, ended_by: BaseException | None) -> bool:
    """Return whether an error ended the run before its first update, and its agents were not trained before either.

    Ctrl-C is no error.
    """
    return isinstance(ended_by, Exception) and not (run.counters.updates or run.updates.base)


def _event_files(run: Run) -> frozenset[str]:
    """Return the names of the TensorBoard files of this run."""
    from marltrain.trainer.reporting.tensorboard import TensorBoard  # loads protobuf

    loggers = [callback for callback in run.context.all_callbacks.callbacks if isinstance(callback, TensorBoard)]
    return frozenset(logger.path.name for logger in loggers if logger.path is not None)


def _last_works(run: Run, plot: bool, failed: bool) -> list[Callable[[], Any]]:
    """Return the last steps of a run; a second interrupt skips those that write files."""
    tables: list[Callable[[], Any]] = [
        partial(run.history.write, now=True),
        partial(write_members, run),
        run.faults.write,
    ]
    tables += [partial(_plot, run)] if plot else []
    files = [partial(_save_last, run), *(partial(write_table, run, table) for table in tables)]
    save_last, *write_tables = [partial(_unless_leaving, run, work) for work in files]
    return [
        run.collector.close,
        run.updates.settle,
        save_last,
        run.context.streams.abandon,
        *write_tables,
        partial(_close, run, failed),
    ]


def _unless_leaving(run: Run, work: Callable[[], Any]) -> None:
    """Call one of the last steps, unless a second interrupt has requested an immediate exit."""
    if not run.interrupts.leaving:
        work()


def _save_last(run: Run) -> None:
    saved = save_agents(run, "last")
    run.context.hooks.save_last()
    if saved is not None:
        run.events.tell("on_checkpoint", path=saved)


def _close(run: Run, failed: bool) -> None:
    run.finished = True
    try:
        run.events.tell("on_train_end", reason=run.reason, failed=failed)
    finally:
        run.clock.stop()


def _plot(run: Run) -> None:
    if run.context.folder is None:
        raise RuntimeError("a run without a folder has no plot")
    path = run.context.folder.path / "metrics.png"
    with not_worth_a_run(path):
        from marltrain.trainer.reporting.run_picture import draw_run  # loads matplotlib

        spec, matches = run.games.spec, divided(run.context.envs)
        teams = teams_of(run.context.seating.agents[::matches], spec.names)
        sides = sides_of(spec.names, run.context.team_reward, teams)
        draw_run(run.history.tests, run.history.episodes, path, title=spec.name, sides=sides)
