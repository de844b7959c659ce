"""Run: the state of one `train` call and the steps of its training loop."""

from __future__ import annotations

import logging
import sys
import time
import warnings
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from marltrain.envs.faults import Fault, cut_by
from marltrain.errors import raised_by, spoken
from marltrain.layout import Array
from marltrain.spec import Step
from marltrain.state import State
from marltrain.trainer.callbacks import Moment
from marltrain.trainer.collecting.double_buffer import DoubleBufferedCollector, no_callback_interferes
from marltrain.trainer.collecting.rollout import Actors, Collector, Recorder, SyncCollector
from marltrain.trainer.context import RunContext
from marltrain.trainer.counters import Counters
from marltrain.trainer.evaluating.evaluation import TestInterrupted, TestResult
from marltrain.trainer.evaluating.schedule import TestSchedule
from marltrain.trainer.evaluating.selection import Judge, Verdict
from marltrain.trainer.reporting.faults import FaultTable, received
from marltrain.trainer.reporting.history import History
from marltrain.trainer.reporting.scalars import Scalars
from marltrain.trainer.result import TrainResult
from marltrain.trainer.saving.checkpoint import Checkpoint, FoundCheckpoint, newest, write
from marltrain.trainer.saving.counts import check_tables, counted, masks
from marltrain.trainer.saving.interrupts import Interrupts
from marltrain.trainer.saving.resume import check_frames
from marltrain.trainer.settings import team_rewards
from marltrain.trainer.updating.scheduler import UpdateMetrics, UpdateScheduler

if TYPE_CHECKING:
    from marltrain.trainer.decentralized import DecentralizedTrainer


LOGGER = logging.getLogger("marltrain")


MOST_AHEAD = 1024
"""Maximum number of batch steps in one collector call; it bounds the latency of a stop request."""


class Run:
    """The state of one `train` call; `DecentralizedTrainer.train` drives it."""

    def __init__(self, trainer: DecentralizedTrainer, parts: RunContext) -> None:
        """Set up the state of the run and start its clock."""
        self.trainer, self.parts = trainer, parts
        folder = None if parts.folder is None else parts.folder.path
        past = parts.past
        self.counters = Counters() if past is None else past.counters
        self.history = History(parts.envs.spec.names, folder) if past is None else past.history
        labels = [label for unit in parts.seating.units for label in unit.labels]
        self.scalars = Scalars(self.history, labels, self.tell)
        self.faults = FaultTable(folder) if past is None else past.faults
        line_up = parts.line_up.agents if parts.rotate else None
        self.judge = Judge(trainer.reward_metric, parts.envs.spec.names, parts.seating.agents, line_up)
        self.timing = TestSchedule(trainer.settings.test_freq, trainer.settings.test_freq_steps)
        if past is not None:
            self.judge.follow(past.judge, comparable=past.comparable)
            self.timing.tested_at = past.tested_at
        self.reason = ""
        self.interrupts = Interrupts()
        self._gradient_base = self._gradient_total() - self.counters.gradient_steps
        spec, num_envs = parts.envs.spec, parts.envs.num_envs
        self._actors = Actors(spec, parts.seating.units, num_envs, "act")
        self._collected = 0  # batch steps of the last collector call
        self._returns = np.zeros((len(spec.players), num_envs))
        self._lengths = np.zeros(num_envs, np.int64)
        self._playing = np.zeros(num_envs, np.int64)  # episode number of each environment
        self._collector = self._make_collector()
        self._started_at = time.perf_counter()
        self._seconds_before = 0.0 if past is None else past.seconds
        self._ended_at: float | None = None
        self._step: Step | None = None
        self._written_at: int | None = None
        self._newly_best = False
        self.started = self.followed = False
        self.finished = False
        self._masks: tuple[Array, Array] | None = None
        self._applied: tuple[Array, Array] | None = None

    # Steps of the training loop, in order

    def start(self, learning: Array, exploring: Array) -> None:
        """Start, or continue an earlier run: first test, `train_fn(0, 0)`, reset of the environments."""
        self.set_masks(learning, exploring)
        self.started = True
        self.tell("on_train_start", agents=self.parts.seating.agents, line_up=self.parts.line_up.agents)
        past, counters = self.parts.past, self.counters
        if past is not None:
            self.parts.callbacks.restore(past.callbacks)
        self._check_kept()
        if not self.test_if_due():
            return
        self._newly_best = False
        if past is None:
            self.parts.hooks.train.start()
        else:
            self.parts.hooks.train.go_on(counters.episodes)
        for unit in self.parts.seating.units:
            unit.learner.at(counters.env_steps)
        envs = self.parts.envs
        self._step = received(envs, partial(envs.reset, self.parts.env_seed), self._note_faults)
        self._playing[...], self._returns[...] = self._step.episode, self._step.start_reward
        self._remember(self._step, None)
        self._tell_starts(range(envs.num_envs))

    def resume(self, found: FoundCheckpoint) -> None:
        """Restore the run from a checkpoint, in place of `start`; play a test that was due there."""
        begun_anew = self._restore(found)
        self._written_at = self.counters.env_steps
        self.started = True
        self.tell("on_train_start", agents=self.parts.seating.agents, line_up=self.parts.line_up.agents)
        with found.taken():
            self.parts.callbacks.restore(found.state.part("callbacks"))
        self._check_kept()
        self._tell_starts(begun_anew)
        if self.parts.checkpoint is None:  # logged, not a warning: this may be intended
            LOGGER.warning("%s goes on without a Checkpoint among the callbacks: what comes is not kept", found.path)
        self.test_if_due()

    def collect(self) -> None:
        """Collect one batch step, or several at once, and record the transitions and the finished episodes."""
        self._apply_masks()
        envs = self.parts.envs
        step, self._collected, recorded, updates = self._collector.advance(self.step, self._steps_ahead())
        self._step = step
        self.counters.env_steps += envs.num_envs * self._collected
        for learned in updates:
            self._learned_meanwhile(learned)
        if envs.faults:
            self._give_up(cut_by(envs.faults))
        if not recorded:
            self._remember(step, team_rewards(self.trainer.team_reward, step.reward))
            self.tell("on_step", step=step)
            self._tally(step)
        self.tell("on_collect", steps=self._collected)
        self.parts.hooks.train.at(self.counters.episodes, self.counters.env_steps)

    def learn(self) -> None:
        """Make the updates that are due."""
        env_steps, most, metrics = self.counters.env_steps, self.parts.budgets.updates, {}
        due = [scheduler for scheduler in self.parts.schedulers if scheduler.gathered(self._collected)]
        if not due:
            return
        if self.parts.callbacks.listens("on_update_start") and any(scheduler.is_due(most) for scheduler in due):
            self._gather(scheduler.settle for scheduler in due)  # the previous round must end before the next begins
            self.tell("on_update_start")
        for scheduler in due:
            metrics.update(scheduler.update(env_steps, most))
        self.counters.updates = max(scheduler.updates for scheduler in self.parts.schedulers)
        self._learned(metrics)

    def _learned_meanwhile(self, learned: UpdateMetrics) -> None:
        """Count the updates that compiled code made between batch steps, and call the callbacks for them."""
        if len(learned.values):
            self.tell("on_update_start")
            self.history.add_updates(learned.labels, learned.names, learned.values)
            self._updated(learned.by_agent(), len(learned.values))
        if learned.error is not None:
            raise learned.error

    def settle(self) -> None:
        """Wait for updates that overlap with collecting; afterwards agents can be tested, saved or masked."""
        self._gather(scheduler.settle for scheduler in self.parts.schedulers)

    def _gather(self, works: Iterable[Callable[[], dict[str, dict[str, float]]]]) -> None:
        """Call every function and record the metrics that it returns; then raise the first error, if any."""
        metrics: dict[str, dict[str, float]] = {}

        def note(work: Callable[[], dict[str, dict[str, float]]]) -> None:
            metrics.update(work())

        errors = [error for work in works if (error := raised_by(partial(note, work)))]
        self._learned(metrics)
        if errors:
            raise errors[0]

    def _learned(self, metrics: dict[str, dict[str, float]]) -> None:
        """Record the metrics of an update."""
        if not metrics:
            return
        self.history.add_update(metrics)
        self._updated(metrics, 1)

    def _updated(self, metrics: dict[str, dict[str, float]], rounds: int) -> None:
        """Refresh the update counters and call `on_update_end`."""
        self.counters.updates = max(scheduler.updates for scheduler in self.parts.schedulers)
        self.counters.gradient_steps = self._gradient_total() - self._gradient_base
        self.tell("on_update_end", metrics=metrics, rounds=rounds)

    def test_if_due(self) -> bool:
        """Play a test if one is due; return False if it was interrupted."""
        return not self.timing.due(self.counters.episodes, self.counters.env_steps) or self.test()

    def test(self) -> bool:
        """Play a test, record it, save the best agents, call `stop_fn`; return False if it was interrupted."""
        parts, episodes = self.parts, self.trainer.settings.episodes_per_test
        if parts.evaluation is None:
            raise RuntimeError("a run without tests plays none")
        self.settle()
        self.tell("on_test_start", episodes=episodes)
        parts.hooks.test.start()
        try:
            result = parts.evaluation.play(
                parts.line_up.units, episodes, rotate=parts.rotate, on_step=self._tested_on,
                on_faults=partial(self._note_faults, role="test"), given_up=lambda: self.interrupts.asked,
            )  # fmt: skip
        except TestInterrupted:
            return False
        verdict = self.judge.judge(result.returns, self._applied_masks()[0])
        self._newly_best = verdict.best
        self.timing.tested_at = (self.counters.episodes, self.counters.env_steps)
        try:
            self.tell("on_test_end", metric=verdict.metric, result=result, best=verdict.best)
        finally:  # values logged in on_test_end belong to the row of this test
            self._record(verdict, result)
        saved = self._saved("best") if verdict.best else None
        if verdict.best:
            parts.hooks.save_best(self.counters.episodes)
        if parts.hooks.stops(verdict.metric, self.counters.episodes):
            self.trainer.stop("stop_fn")
        if saved is not None:
            self.tell("on_checkpoint", path=saved)
        return True

    def checkpoint_if_due(self) -> None:
        """Write a checkpoint if one is due and no environment step is under way."""
        checkpoint, best, self._newly_best = self.parts.checkpoint, self._newly_best, False
        if checkpoint is None or self._collector.under_way:
            return
        if checkpoint.due(self.counters, self.seconds, best=best):
            self._checkpoint(checkpoint, best and checkpoint.settings.best)

    def last_checkpoint(self) -> None:
        """Write a checkpoint at the end of training, unless the last one holds the same env step."""
        if self.parts.checkpoint is not None and self._step is not None and self._written_at != self.counters.env_steps:
            self._checkpoint(self.parts.checkpoint, best=False)

    def over(self) -> bool:
        """Return whether training ends: a budget is used up or a stop was requested, and no step is under way."""
        self.reason = self._stopped or self.parts.budgets.reached(self.counters)
        return bool(self.reason) and not self._collector.under_way

    def last_test(self) -> None:
        """Play the test at the end of training, unless the last test measured the same agents."""
        due = self.timing.due_at_end(self.counters.episodes, self.counters.env_steps)
        if due and not self.interrupts.asked and not self.test():
            self.reason = "interrupted"

    def finish(self, plot: bool) -> None:
        """Save the last agents, write the tables and the plot, call `on_train_end`, close the environments.

        Every step runs even if another one fails. The exception that ended the run is raised, or else the first
        failure; other failures become notes of it.
        """
        ended_by = sys.exception()
        with self.parts.closing:
            if not self.started:
                return
            errors = [error for work in self._last_works(plot) if (error := raised_by(work))]
            leaving = [error for error in errors if isinstance(error, KeyboardInterrupt)]
            raised = [*leaving, *([] if ended_by is None else [ended_by]), *errors]
            for error in errors:
                if error is not raised[0] and spoken(error) != spoken(raised[0]):
                    raised[0].add_note(f"then, when the run was ended: {spoken(error)}")
            if raised and self.parts.folder and (whole := newest(self.parts.folder.path)):
                raised[0].add_note(f"{whole} is whole: the run can go on from there")
            if raised and raised[0] is not ended_by:
                raise raised[0]

    def _last_works(self, plot: bool) -> list[Callable[[], Any]]:
        tables: list[Callable[[], Any]] = [partial(self.history.write, now=True), self.faults.write]
        tables += [self._plot] if plot else []
        return [
            self.settle, partial(self._unless_leaving, self._save_last), self.parts.streams.abandon,
            *(partial(self._unless_leaving, partial(self._written, work)) for work in tables), self._close,
        ]  # fmt: skip

    def result(self) -> TrainResult:
        """Return the result of `train`."""
        return TrainResult({
            "reward_metric_stats": list(self.judge.metrics),
            "num_collected_steps": self.counters.env_steps,
            "num_collected_episodes": self.counters.episodes,
            "num_gradient_steps": self.counters.gradient_steps,
            "num_updates": self.counters.updates,
            "training_time": self.seconds,
            "stop_reason": self.reason,
            "run_dir": None if self.parts.folder is None else str(self.parts.folder.path),
            "history": self.history.tests,
            "episodes": self.history.episodes,
            "num_dropped_steps": self.counters.dropped_steps,
            "num_faults": len(self.faults),
            "faults": self.faults.frame,
        })  # fmt: skip

    # Parts of these steps

    @property
    def _stopped(self) -> str:
        """Reason of a stop request, or "" without one."""
        return "interrupted" if self.interrupts.asked else self.trainer.stop_reason

    def _make_collector(self) -> Collector:
        """Return the fastest collector that supports the environments, agents and callbacks."""
        envs = self.parts.envs
        recorder = Recorder(self._actors, self.parts.streams)
        sync = SyncCollector(envs, recorder, partial(received, envs, envs.recv, self._note_faults))
        if self.trainer.settings.double_buffer and no_callback_interferes(self.parts.callbacks):
            return DoubleBufferedCollector(
                envs, recorder, partial(received, envs, on_faults=self._note_faults), self._episodes_left,
                self.parts.schedulers,
            )  # fmt: skip
        native = self.trainer.source.game is not None
        if not native or self.trainer.team_reward is not None or self.parts.callbacks.listens("on_step"):
            return sync
        from marltrain.trainer.collecting.fused import FusedCollector, can_fuse  # loads numba

        if not can_fuse(sync):
            return sync
        return FusedCollector(sync, self._returns, self._lengths, self.parts.schedulers, self._plan())

    def _plan(self) -> Callable[[UpdateScheduler, int, int], int]:
        """Return the plan of updates for compiled code; none if a callback may change agents at each update."""
        if self.parts.callbacks.interfering(["on_update_start", "on_update_end"]):
            return lambda scheduler, steps, _: min(steps, scheduler.steps_left)
        budget = self.parts.budgets.updates
        return lambda scheduler, steps, unit: scheduler.plan(self.counters.env_steps, steps, budget, unit)

    def _steps_ahead(self) -> int:
        """Return the number of batch steps until a test, a checkpoint or the end of a budget is due."""
        counters, checkpoint = self.counters, self.parts.checkpoint
        if self._stopped or (checkpoint is not None and checkpoint.late(self.seconds)):
            return 1
        return max(1, min([MOST_AHEAD, *self.parts.steps_left(counters.env_steps, self.timing)]))

    def _episodes_left(self) -> int:
        """Return the number of episodes until a test, `train_fn`, a checkpoint or the end of a budget is due."""
        return self.parts.episodes_left(self.counters.episodes, self.timing)

    @property
    def step(self) -> Step:
        """The current Step, which holds the observations to act on."""
        if self._step is None:
            raise RuntimeError("the environments have not been reset")
        return self._step

    def _check_kept(self) -> None:
        """Raise SaveError for a callback whose state cannot be saved: at the start, not at the first checkpoint."""
        if self.parts.checkpoint is not None:
            self.parts.callbacks.state()

    def _checkpoint(self, checkpoint: Checkpoint, best: bool) -> None:
        if self.parts.folder is None:
            raise RuntimeError("a run without a folder has no checkpoints")
        self._gather(
            scheduler.wait for scheduler in self.parts.schedulers
        )  # not settle: a checkpoint must not change how agents act
        counters, settings = self.counters, checkpoint.settings
        told = {**self.parts.told, "env_steps": counters.env_steps, "episodes": counters.episodes, "best": best}
        path = write(self.parts.folder.whole(), told, self._state(settings.memory), keep=settings.keep)
        self._written_at = counters.env_steps
        self.tell("on_checkpoint", path=path)

    def _state(self, memory: bool) -> State:
        """Return the complete state of the run for a checkpoint; memory: include the rollouts and replay buffers."""
        parts, counters = self.parts, self.counters
        made = State(
            {
                "counters": vars(counters).copy(), "gradient_base": self._gradient_base, "seconds": self.seconds,
                "tested_at": list(self.timing.tested_at), "trained": self.trainer.trained,
            },
            {
                "returns": self._returns, "lengths": self._lengths, "masks": np.array(self.masks()),
                "applied": np.array(self._applied_masks()),
            },
        )  # fmt: skip
        made.add("agents", parts.seating.state())
        if parts.line_up is not parts.seating:
            made.add("line_up", parts.line_up.state(but=parts.seating.agents))
        made.add("courses", State.joined(**{str(i): scheduler.state() for i, scheduler in enumerate(parts.schedulers)}))
        made.add("actors", self._actors.state())
        made.add("envs", State({}, parts.envs.state()))
        made.add("judge", self.judge.state())
        made.add("history", self.history.state())
        made.add("faults", self.faults.state())
        made.add("hooks", parts.hooks.state())
        made.add("callbacks", parts.callbacks.state())
        if memory:
            made.add("memory", parts.streams.state())
        return made

    def _restore(self, found: FoundCheckpoint) -> list[int]:
        """Restore the state of the run from a checkpoint; raises SaveError for an invalid one.

        Returns the environments whose running episodes cannot be restored; they begin new episodes.
        """
        with found.taken():
            self._take(found)
            envs, saved = self.parts.envs, found.state.part("envs").arrays
            step, lost = received(envs, partial(envs.restore, saved), self._note_faults)
            if found.memory:
                self.parts.streams.check_shown(step, np.setdiff1d(np.arange(envs.num_envs), [e for e, _ in lost]))
        self._step = step
        self._playing[...] = step.episode
        if not found.memory:
            self._remember(step, None)
        elif lost:
            self.parts.streams.restart(step, np.array([e for e, _ in lost]))
        for e, what in lost:
            self.counters.dropped_steps += int(self._lengths[e])
            self._returns[:, e], self._lengths[e] = step.start_reward[:, e], 0
            if self.parts.envs.spec.reproducible:
                told = f"{what}. Its running episode begins anew: the run goes on, but is not exact"
                warnings.warn(told, stacklevel=5)
        return [e for e, _ in lost]

    def _take(self, found: FoundCheckpoint) -> None:
        """Restore everything but the environments; raises SaveError or MaskError for invalid values."""
        parts, state = self.parts, found.state
        spec, memory = parts.envs.spec, found.memory
        check_frames(spec, memory=memory)
        known = counted(state, found.told, len(spec.players), parts.envs.num_envs)
        now, applied = (masks(state, name, spec, parts.seating.agents) for name in ("masks", "applied"))
        parts.seating.restore(state.part("agents"))
        if parts.line_up is not parts.seating:
            parts.line_up.restore(state.part("line_up"), but=parts.seating.agents)
        self.counters, self.timing.tested_at = known.counters, known.tested_at
        self._gradient_base, self._seconds_before = known.gradient_base, known.seconds
        self.trainer.trained = known.trained
        self._returns[...], self._lengths[...] = known.returns, known.lengths
        if memory:
            parts.streams.restore(state.part("memory"))
        self.set_masks(*applied)
        self._apply_masks()
        if (applied != now).any():
            self.set_masks(*now)
        for i, scheduler in enumerate(parts.schedulers):
            scheduler.restore(state.part("courses").part(str(i)), memory=memory)
        self._actors.restore(state.part("actors"))
        self.judge.restore(state.part("judge"))
        self.history.restore(state.part("history"))
        check_tables(self.history, len(self.judge.metrics), known.counters.episodes)
        self.faults.restore(state.part("faults"))
        parts.hooks.restore(state.part("hooks"))

    def _save_last(self) -> None:
        saved = self._saved("last")
        self.parts.hooks.save_last()
        if saved is not None:
            self.tell("on_checkpoint", path=saved)

    def _saved(self, name: str) -> Path | None:
        """Save the agents in the run's folder; return the path, or None for a run without a folder."""
        if self.parts.folder is None:
            return None
        path = self.parts.folder.whole() / name
        self.trainer.save(path, self.parts.seating.agents)
        return path

    def _written(self, work: Callable[[], Any]) -> None:
        """Call a function that writes into the run's folder; do nothing for a run without a folder."""
        if self.parts.folder is not None:
            self.parts.folder.whole()
            work()

    def _unless_leaving(self, work: Callable[[], Any]) -> None:
        """Call one of the last steps, unless a second interrupt requested an immediate exit."""
        if not self.interrupts.leaving:
            work()

    def _close(self) -> None:
        self.finished = True
        try:
            self.tell("on_train_end", reason=self.reason)
        finally:
            self._ended_at = time.perf_counter()

    @property
    def seconds(self) -> float:
        """Duration of this run so far in seconds, including tests."""
        now = time.perf_counter() if self._ended_at is None else self._ended_at
        return self._seconds_before + now - self._started_at

    def set_masks(self, learning: Array | None = None, exploring: Array | None = None) -> None:
        """Set the masks, each [P] bool; they take effect at the next batch step."""
        now = self._masks or (learning, exploring)
        new = (now[0] if learning is None else learning, now[1] if exploring is None else exploring)
        self._masks = new  # type: ignore[assignment]

    def masks(self) -> tuple[Array, Array]:
        """Return the masks (learning, exploring), each [P] bool."""
        if self._masks is None:
            raise RuntimeError("the run has not started")
        return self._masks

    def _applied_masks(self) -> tuple[Array, Array]:
        """Return the masks in effect now."""
        return self.masks() if self._applied is None else self._applied

    def _apply_masks(self) -> None:
        if self._applied is self._masks:
            return
        self.settle()
        self._applied = self._masks
        learning, exploring = self.masks()
        self._actors.explore(exploring)
        self.parts.streams.learning(learning | self.trainer.settings.shared_memory)
        for scheduler in self.parts.schedulers:
            scheduler.learning(learning)

    def tell(self, event: str, **data: Any) -> None:
        """Call the callbacks that override `event` with a Moment."""
        if not self.parts.callbacks.listens(event):
            return
        counters = self.counters
        moment = Moment(
            self.trainer, event, counters.episodes, counters.env_steps, counters.updates, counters.gradient_steps,
            self.seconds, data,
        )  # fmt: skip
        self.parts.callbacks.call(moment)

    def _remember(self, step: Step, reward: Array | None) -> None:
        self.parts.streams.arrived(step, reward)

    def _note_faults(self, faults: Sequence[Fault], *, role: str = "train") -> None:
        self.faults.add(faults, role=role, env_steps=self.counters.env_steps, seconds=self.seconds)

    def _give_up(self, envs: Array) -> None:
        """Drop the running episodes of environments envs [n] int64, before their next Step is processed."""
        self.parts.streams.abandon(envs)
        self.counters.dropped_steps += int((self._lengths[envs] + 1).sum())
        self._returns[:, envs], self._lengths[envs] = 0.0, -1  # the next Step is not part of the new episode

    def _tally(self, step: Step) -> None:
        """Add up returns and lengths; record every finished episode that was not dropped, and call the callbacks."""
        self._returns += step.reward
        self._lengths += 1
        if not np.count_nonzero(step.ended):
            return
        begun, ended = np.flatnonzero(step.ended), np.flatnonzero(step.ended & (self._lengths > 0))
        returns, lengths, playing = self._returns[:, ended], self._lengths[ended], self._playing[ended]
        np.copyto(self._returns, step.start_reward, where=step.ended)
        self._lengths[ended], self._playing[...] = 0, step.episode
        self.history.add_episodes(
            envs=ended, env_steps=self.counters.env_steps, lengths=lengths, seconds=self.seconds, returns=returns
        )
        names = self.parts.envs.spec.names
        for i, e in enumerate(ended.tolist()):
            self.counters.episodes += 1
            self.tell(
                "on_episode_end", env=e, episode=int(playing[i]), returns=returns[:, i].copy(), length=int(lengths[i]),
                names=names,
            )  # fmt: skip
        self._tell_starts(begun.tolist())

    def _tell_starts(self, envs: Iterable[int]) -> None:
        """Call `on_episode_start` for environments whose episodes have begun."""
        if self.parts.callbacks.listens("on_episode_start"):
            for e in envs:
                self.tell("on_episode_start", env=e, episode=int(self._playing[e]))

    def _tested_on(self, finished: int, steps: int) -> None:
        """Call `test_fn` and `on_test_step`; finished: episodes of the test so far, steps: its env steps."""
        self.parts.hooks.test.at(finished, steps)
        self.tell("on_test_step", finished=finished, episodes=self.trainer.settings.episodes_per_test, steps=steps)

    def _record(self, verdict: Verdict, result: TestResult) -> None:
        self.history.add_test(
            episodes=self.counters.episodes, env_steps=self.counters.env_steps, updates=self.counters.updates,
            gradient_steps=self.counters.gradient_steps, seconds=self.seconds, returns=result.returns.mean(0),
            num_unfinished=result.num_unfinished, **verdict._asdict(),
        )  # fmt: skip
        self._written(self.history.write)
        self._written(self.faults.write)

    def _gradient_total(self) -> int:
        return sum(scheduler.gradient_steps for scheduler in self.parts.schedulers)

    def _plot(self) -> None:
        from marltrain.trainer.reporting.plots import draw_run

        title = self.parts.envs.spec.name
        draw_run(self.history.tests, self.history.episodes, self.trainer.folder / "metrics.png", title=title)
