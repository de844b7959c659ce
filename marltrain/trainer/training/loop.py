"""The training loop: collect, learn, test, save."""

from __future__ import annotations

import logging

from marltrain.core.errors import warn
from marltrain.jit.notices import tell
from marltrain.trainer.collecting.rollout import NotRepeatedError
from marltrain.trainer.saving.checkpoint import FoundCheckpoint
from marltrain.trainer.seats.devices import device_lines
from marltrain.trainer.training.finish import finish
from marltrain.trainer.training.requests import serve
from marltrain.trainer.training.run import Run
from marltrain.trainer.training.run_files import remove_later_best
from marltrain.trainer.training.snapshot import checkpoint_if_due, last_checkpoint, restore
from marltrain.trainer.training.testing import last_test, play_test

LOGGER = logging.getLogger("marltrain")


def train(run: Run, found: FoundCheckpoint | None, *, plot: bool) -> None:
    """Train until a budget is used up or a stop is requested, and finish the run in every case.

    found: checkpoint to resume from, or None.  plot: draw metrics.png at the end.
    """
    ended_by: BaseException | None = None
    with run.interrupts:
        try:
            if found is None:
                _start(run)
            else:
                _resume(run, found)
            while not run.over():
                steps = run.collect()
                run.updates.make(steps)
                if run.actors.cast.sets:
                    run.tell_sets()
                if run.due.tests.due(run.counters):
                    play_test(run)
                if run.context.checkpoint is not None:
                    checkpoint_if_due(run, run.context.checkpoint)
                if run.context.job is not None:
                    serve(run)
            if run.context.settings.sync:
                _settle(run)
            last_checkpoint(run)
            last_test(run)
        except KeyboardInterrupt as error:
            run.reason, run.interrupts.raised = "interrupted", True
            if run.interrupts.leaving:
                ended_by = error
                raise
        except BaseException as error:
            run.reason = f"{type(error).__name__}"
            ended_by = error
            raise
        finally:
            finish(run, plot, ended_by)


def _start(run: Run) -> None:
    """Start, or continue an earlier call: first test, `train_fn(0, 0)`, reset of the environments."""
    context, hooks = run.context, run.context.hooks
    _announce(run)
    if context.earlier is not None:
        context.all_callbacks.restore(context.earlier.callbacks)
    _check_callbacks(run)
    run.actors.cast.start(run.counters.env_steps, run.counters.episodes)
    if run.due.tests.due(run.counters) and not play_test(run):
        return
    run.new_best = False
    if context.earlier is None:
        hooks.train.start()
    else:
        hooks.train.continue_from(run.counters.episodes)
    for seated in context.seating.learners:  # initial values; `UpdateScheduler.update` sets the later ones
        seated.learner.apply_schedules(run.counters.env_steps)
    run.begin()


def _resume(run: Run, found: FoundCheckpoint) -> None:
    """Restore the run from a checkpoint; play a test that was due there."""
    restarted = restore(run, found)
    run.written_at = run.counters.env_steps
    remove_later_best(run)
    _announce(run)
    with found.taken():
        run.context.all_callbacks.restore(found.state.part("callbacks"))
    _check_callbacks(run)
    run.tell_starts(restarted, run.episodes.numbers[restarted])
    if run.context.checkpoint is None:  # logged, not a warning: this may be intended
        LOGGER.warning("%s is resumed without a Checkpoint callback: no further checkpoints are written", found.path)
    if run.due.tests.due(run.counters):
        play_test(run)


def _settle(run: Run) -> None:
    """Let agents' generators end as in one process; those of asynchronous runs need not.

    A checkpoint at the end needs it. Otherwise it is a warning if environments do not repeat their steps.
    """
    try:
        run.collector.settle()
    except NotRepeatedError as error:
        if run.context.checkpoint is not None:
            raise
        warn(f"{error}. Training is complete, but the agents' generators are not those of one process")


def _announce(run: Run) -> None:
    run.started = True
    for line in device_lines(run.context.seating.agents, run.context.seating.spec.names):
        tell(line)
    run.events.tell("on_train_start", agents=run.context.seating.agents, line_up=run.context.line_up.agents)


def _check_callbacks(run: Run) -> None:
    """Raise SaveError for a callback whose state cannot be saved: at the start, not at the first checkpoint."""
    if run.context.checkpoint is not None:
        run.context.all_callbacks.state()
