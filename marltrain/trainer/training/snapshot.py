"""Snapshot: the complete state of a run, as a checkpoint holds it."""

from __future__ import annotations

import numpy as np

from marltrain.core.errors import ConfigError, SaveError, warn
from marltrain.core.layout import Array
from marltrain.core.spec import EnvSpec
from marltrain.storage.state import State
from marltrain.trainer.saving.checkpoint import Checkpoint, FoundCheckpoint, write
from marltrain.trainer.saving.counts import check_tables, counted, saved_masks
from marltrain.trainer.training.run import Run


def checkpoint_if_due(run: Run, checkpoint: Checkpoint) -> None:
    """Write a checkpoint if one is due."""
    best, run.new_best = run.new_best, False
    if checkpoint.due(run.counters, run.clock.seconds, best=best):
        _write(run, checkpoint, best=best and checkpoint.settings.best)


def last_checkpoint(run: Run) -> None:
    """Write a checkpoint at the end of training, unless the last one holds the same env step."""
    checkpoint = run.context.checkpoint
    if checkpoint is not None and run.has_begun and run.written_at != run.counters.env_steps:
        _write(run, checkpoint, best=False)


def _write(run: Run, checkpoint: Checkpoint, *, best: bool) -> None:
    """Write a checkpoint; best: the last test is the best so far."""
    context, counters = run.context, run.counters
    if context.checkpoints is None:
        raise RuntimeError("a run without a folder has no checkpoints")
    run.updates.wait()  # not settle: a checkpoint must not change how agents act
    manifest = {**context.manifest, "env_steps": counters.env_steps, "episodes": counters.episodes, "best": best}
    state = state_of(run, memory=checkpoint.settings.memory)
    context.all_callbacks.sync()  # after the state: what it takes as written is then on the disk
    path = write(context.checkpoints.whole(), manifest, state, keep=checkpoint.settings.keep)
    run.written_at = counters.env_steps
    run.events.tell("on_checkpoint", path=path)


def state_of(run: Run, *, memory: bool) -> State:
    """Return the complete state of a run; memory: include the rollouts and replay buffers.

    The keys of saved states never change: "courses" are the schedulers, "judge" is the selection, "masks" the wanted
    masks, and "trained" the number of calls.
    """
    run.collector.settle()
    context, episodes = run.context, run.episodes
    state = State(
        {
            "counters": vars(run.counters).copy(), "gradient_base": run.updates.base, "seconds": run.clock.seconds,
            "tested_at": list(run.due.tests.tested_at), "trained": run.calls,
        },
        {
            "returns": episodes.returns, "lengths": episodes.lengths, "masks": run.masks.wanted,
            "applied": run.masks.effective,
        },
    )  # fmt: skip
    state.add("agents", context.seating.state())
    if context.line_up is not context.seating:
        state.add("line_up", context.line_up.state(but=context.seating.agents))
    schedulers = {str(i): scheduler.state() for i, scheduler in enumerate(context.schedulers)}
    state.add("courses", State.joined(**schedulers))
    state.add("actors", run.actors.state())
    state.add("envs", State({}, context.envs.state()))
    state.add("judge", run.selection.state())
    state.add("history", run.history.state())
    state.add("faults", run.faults.state())
    state.add("hooks", context.hooks.state())
    state.add("callbacks", context.all_callbacks.state())
    if memory:
        state.add("memory", context.streams.state())
    return state


def restore(run: Run, found: FoundCheckpoint) -> Array:
    """Restore a run from a checkpoint; raises SaveError for an invalid one.

    Returns the environments whose running episodes cannot be restored, [n] int64; they begin new episodes.
    """
    with found.taken():
        _restore_parts(run, found)
        envs, saved = run.context.envs, found.state.part("envs").arrays
        step, restarted = envs.restore(saved)
        if restarted and envs is not run.games:
            raise SaveError(f"{restarted[0][1]}. All matches of a run share one memory, so it cannot continue")
        new = np.array([e for e, _ in restarted], np.int64)
        if found.memory:
            run.context.streams.check_shown(step, np.setdiff1d(np.arange(envs.num_envs), new))
    run.go_on(step)
    if not found.memory:
        run.context.streams.record_step(step, None)
    elif restarted:
        run.context.streams.restart(step, new)
    run.counters.dropped_steps += run.episodes.restart(new, run.of_games(step))
    run.actors.cast.draw(new)
    if envs.spec.reproducible:
        for _, reason in restarted:
            warn(f"{reason}. A new episode begins: the run continues, but is not exact")
    return new


def _restore_parts(run: Run, found: FoundCheckpoint) -> None:
    """Restore everything but the environments; raises SaveError or MaskError for invalid values."""
    context, state, memory = run.context, found.state, found.memory
    spec = context.envs.spec
    check_frames(spec, memory=memory)
    counts = counted(state, found.manifest, len(run.games.spec.players), run.games.num_envs)
    wanted, applied = (saved_masks(state, name, spec, context.seating.agents) for name in ("masks", "applied"))
    context.seating.restore(state.part("agents"))
    if context.line_up is not context.seating:
        context.line_up.restore(state.part("line_up"), but=context.seating.agents)
    vars(run.counters).update(vars(counts.counters))
    run.due.tests.tested_at, run.calls = counts.tested_at, counts.trained
    run.updates.base, run.clock.before = counts.gradient_base, counts.seconds
    run.episodes.returns[...], run.episodes.lengths[...] = counts.returns, counts.lengths
    if memory:
        context.streams.restore(state.part("memory"))
    _restore_masks(run, wanted, applied)
    for i, scheduler in enumerate(context.schedulers):
        scheduler.restore(state.part("courses").part(str(i)), memory=memory)
    run.actors.restore(state.part("actors"))
    run.selection.restore(state.part("judge"))
    run.history.restore(state.part("history"))
    check_tables(run.history, len(run.selection.metrics), counts.counters.episodes)
    run.faults.restore(state.part("faults"))
    context.hooks.restore(state.part("hooks"))


def _restore_masks(run: Run, wanted: Array, applied: Array) -> None:
    """Put the masks that were in effect into effect again; masks that a hook has set since then stay pending."""
    run.masks.set(learning=applied[0], exploring=applied[1])
    run.apply_masks()
    if (applied != wanted).any():
        run.masks.set(learning=wanted[0], exploring=wanted[1])


def check_frames(spec: EnvSpec, *, memory: bool) -> None:
    """Raise ConfigError for stacked frames with memory=False: only the memory holds the frames of a stack."""
    stacked = [player.name for player in spec.players if player.layout.stack > 1]
    if stacked and not memory:
        raise ConfigError(
            f"Checkpoint(memory=False) cannot be combined with stacked frames (player {stacked[0]!r}): the frames of "
            "running episodes are in the memory. Leave memory=False out"
        )
