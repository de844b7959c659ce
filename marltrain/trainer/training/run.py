"""Run: the state of one `train` call."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any

import numpy as np

from marltrain.core.layout import Array
from marltrain.core.spec import Step
from marltrain.envs import VectorEnv
from marltrain.envs.faults import Fault, cut_by
from marltrain.envs.matches import MatchesVectorEnv, divided, games_of
from marltrain.envs.population import plain_names
from marltrain.envs.rotating import RotatingVectorEnv
from marltrain.trainer.collecting.cast import Cast
from marltrain.trainer.collecting.episodes import EndedEpisodes, FinishedEpisodes, RunningEpisodes
from marltrain.trainer.collecting.rollout import Actors
from marltrain.trainer.evaluating.selection import ModelSelection
from marltrain.trainer.events.callbacks import Events, Trainer
from marltrain.trainer.events.counters import Clock, Counters, Traffic
from marltrain.trainer.events.due import Due, TestSchedule
from marltrain.trainer.reporting.faults import FaultTable
from marltrain.trainer.reporting.history import History
from marltrain.trainer.reporting.user_scalars import Scalars
from marltrain.trainer.saving.interrupts import Interrupts
from marltrain.trainer.seats.masks import Masks
from marltrain.trainer.seats.seats import LearnerSeats
from marltrain.trainer.seats.team_reward import TeamRewards
from marltrain.trainer.training.context import RunContext
from marltrain.trainer.training.make_collector import make_collector
from marltrain.trainer.training.updates import Updates

MOST_STEPS = 1024
"""Maximum number of batch steps in one collector call; it bounds the latency of a stop request."""


class Run:
    """The state of one `train` call. `loop.train` drives it.

    context: the parts of the run.  closing: closes environments and releases the folder.
    games: the environments with the players of one game; `context.envs` are those as the agents see them.
    counters, clock, episodes, traffic: its counts.  masks: seats that learn and explore.  team_rewards: the rewards to
        learn from, or None if all players learn from their own.
    history, faults: its tables.  scalars: the user's numbers.  selection: the tests and the best of them.
    due: when work is due.  events: calls the callbacks.  interrupts: Ctrl-C and SIGTERM.
    actors, collector, updates: act, step the environments, and learn.
    columns: further columns of the table of episodes, with their dtypes.
    calls: number of `train` calls of the trainer.  reason: reason of the end, "" during training.
    started, finished: whether `on_train_start` and `on_train_end` were called.
    continued: whether another call of `train` continues this run.
    written_at: env step of the last checkpoint.  new_best: the last test is the best, and no checkpoint holds it yet.
    """

    def __init__(self, trainer: Trainer, context: RunContext, stack: ExitStack) -> None:
        """Set up the state of the run and start its clock.

        stack: closes the parts; its content moves to `closing`.
        """
        earlier, envs, games = context.earlier, context.envs, games_of(context.envs)
        game = games.spec
        folder = None if context.folder is None else context.folder.path
        self.context, self.games, self.calls = context, games, context.call_number
        self._matches = envs if isinstance(envs, MatchesVectorEnv) else None
        self.counters = Counters() if earlier is None else earlier.counters
        self.clock = Clock(0.0 if earlier is None else earlier.seconds)
        self.episodes = RunningEpisodes(len(game.players), games.num_envs)
        self.masks = Masks(context.learning, context.exploring)
        self.team_rewards = _team_rewards(context)
        self.traffic = Traffic()
        learners = context.seating.learners
        cast = Cast(game, learners, envs.num_envs, divided(envs))
        self.actors = Actors(envs.spec, learners, envs.num_envs, "act", cast)
        self.columns = episode_columns(envs, learners)
        self.history = earlier.history if earlier is not None else History(game.names, folder, self.columns)
        self.faults = FaultTable(folder) if earlier is None else earlier.faults
        self.events = Events(trainer, context.all_callbacks, self.counters, self.clock, self.traffic)
        labels = [label for seated in learners for label in seated.labels]
        self.scalars = Scalars(self.history, labels, self.events.tell)
        line_up = None if context.line_up is context.seating else context.line_up.agents
        self.selection = ModelSelection(context.reward_metric, game.names, context.seating.agents, line_up)
        self.due = _due(context)
        acts = context.all_callbacks.interfering(("on_episode_start", "on_episode_end"))
        self._by_episode = bool(acts or cast.sets)  # a callback acts, or members are drawn, where an episode ends
        if earlier is not None:
            self.selection.follow(earlier.selection, comparable=earlier.comparable)
            self.due.tests.tested_at = earlier.tested_at
        self.updates = Updates(
            context.schedulers, self.counters, self.history, self.events, context.budgets.updates,
            cast.metrics if cast.sets else None,
        )  # fmt: skip
        self.collector = make_collector(
            context, self.team_rewards, self.actors, self.episodes, self.updates, self.traffic
        )
        context.envs.on_faults = self.note_faults
        if context.learner_actors is not None:
            context.learner_actors.report, context.learner_actors.traffic = self.note_faults, self.traffic
            context.learner_actors.leaving = lambda: self.interrupts.leaving
        self.interrupts = Interrupts()
        self.reason = ""
        self.started = self.finished = self.continued = self.new_best = False
        self.written_at: int | None = None
        self._stop_reason = ""
        self._step: Step | None = None
        self.closing = stack.pop_all()

    def collect(self) -> int:
        """Collect one batch step, or several at once; record the transitions and the finished episodes.

        Returns the number of batch steps.
        """
        if self.masks.applied is not self.masks.wanted:
            self.apply_masks()
        envs, counters = self.context.envs, self.counters
        start, episodes = counters.env_steps, counters.episodes
        collected = self.collector.advance(self.step, self._steps_ahead(), self._episodes_ahead())
        self._step, steps, recorded, updates, ended = collected
        reached = start + self.games.num_envs * steps
        if self.actors.cast.sets:  # a call ends with the first episode, before the updates of this batch step
            counters.env_steps = reached
            self.updates.add(updates)
        if ended is not None and len(ended.envs):
            self._add_ended(ended, start)
        counters.env_steps = reached
        self.updates.add(updates)
        if envs.faults:
            self._drop(cut_by(envs.faults))
        if not recorded:
            self._add(self._step)
        self.events.tell("on_collect", steps=steps)
        if counters.episodes > episodes:
            self.context.hooks.train.call_if_due(counters.episodes, counters.env_steps)
        return steps

    def begin(self) -> None:
        """Reset the environments."""
        envs = self.context.envs
        step = envs.reset(self.context.env_seed)
        self.go_on(step)
        self.episodes.begin(self.of_games(step))
        everywhere = np.arange(self.games.num_envs)
        self.actors.cast.draw(everywhere)
        self.context.streams.record_step(step, None)
        self.tell_starts(everywhere, self.episodes.numbers)

    def go_on(self, step: Step) -> None:
        """Continue from a Step that the environments have just returned."""
        self._step = step
        self.episodes.numbers[...] = self.of_games(step).episode

    def tell_sets(self) -> None:
        """Tell sets of policies the counts; drop the rollouts of learners to which they have given other weights."""
        counts = self.counters
        matches = self.actors.cast.collected(counts.env_steps, counts.episodes)
        if matches:
            self.collector.settle()  # later acts use the new weights
        for match in matches:
            self.updates.drop_rollouts(self.context.seating.agents[match])

    def over(self) -> bool:
        """Return whether training ends: a budget is used up or a stop was requested."""
        self.reason = self.stop_reason or self.due.budgets.reached(self.counters)
        return bool(self.reason)

    def stop(self, reason: str) -> None:
        """End training after the current collector call and its updates (see `over`); the first reason given counts."""
        self._stop_reason = self._stop_reason or reason

    @property
    def stop_reason(self) -> str:
        """Reason of a stop request, or "" without one."""
        return "interrupted" if self.interrupts.asked else self._stop_reason

    @property
    def step(self) -> Step:
        """The current Step, which holds the observations to act on."""
        if self._step is None:
            raise RuntimeError("the environments have not been reset")
        return self._step

    @property
    def has_begun(self) -> bool:
        """Whether the environments have been reset."""
        return self._step is not None

    def apply_masks(self) -> None:
        """Put the masks that the user has set into effect."""
        self.updates.settle()
        learning, exploring = self.masks.applied = self.masks.wanted
        self.actors.explore(exploring)
        self.context.streams.learning(learning | self.context.settings.shared_memory)
        for scheduler in self.context.schedulers:
            scheduler.set_learning(learning)

    def note_faults(self, faults: Sequence[Fault], *, role: str = "train") -> None:
        """Add faults to the table; role: "train" or "test"."""
        self.faults.add(faults, role=role, env_steps=self.counters.env_steps, seconds=self.clock.seconds)

    def tell_starts(self, envs: Array, numbers: Array) -> None:
        """Call `on_episode_start` for environments [n] int64 whose episodes, with these numbers, have begun."""
        if self.events.callbacks.listens("on_episode_start"):
            for e, number in zip(envs.tolist(), numbers.tolist(), strict=True):
                self.events.tell("on_episode_start", env=e, episode=number)

    def _steps_ahead(self) -> int:
        """Return the number of batch steps until a test, a checkpoint or a budget's end is due, or members change."""
        checkpoint, cast, env_steps = self.context.checkpoint, self.actors.cast, self.counters.env_steps
        if self.stop_reason or (checkpoint is not None and checkpoint.late(self.clock.seconds)):
            return 1
        left = self.due.steps_left(env_steps)
        if cast.sets:
            left = min(left, cast.steps_left(env_steps))
        return max(1, min(MOST_STEPS, -(-left // self.games.num_envs)))

    def of_games(self, step: Step) -> Step:
        """Return the Step by environment, where the environments are divided among matches; else the same."""
        return step if self._matches is None else self._matches.joined

    def _episodes_ahead(self) -> int:
        """Return the number of episodes until work is due by episodes, members are drawn, or a callback acts."""
        return 1 if self._by_episode else max(1, self.due.episodes_left(self.counters.episodes))

    def _drop(self, envs: Array) -> None:
        """Drop the running episodes of environments `envs` [n] int64, before their next Step is processed.

        Learners keep the transitions before the last decision, which has no outcome.
        """
        self.context.streams.abandon(envs)
        self.counters.dropped_steps += self.episodes.drop(envs)

    def _add(self, step: Step) -> None:
        """Record a Step in the streams, and the episodes that ended in it."""
        reward = None if self.team_rewards is None else self.team_rewards(step.reward)
        self.context.streams.record_step(step, reward)
        self.events.tell("on_step", step=step)
        finished = self.episodes.add(self.of_games(step))
        if finished is not None:
            self._finished(finished, self.counters.env_steps)

    def _add_ended(self, ended: EndedEpisodes, start: int) -> None:
        """Record the episodes that ended within a collector call, with the counts at their ends.

        start: env steps before the call.
        """
        num_envs = self.games.num_envs
        if not any(map(self.events.callbacks.listens, ("on_episode_start", "on_episode_end"))):
            self._finished(ended.part(), start + num_envs * ended.steps)
            return
        for step, finished in ended.by_step():
            self.counters.env_steps = start + num_envs * step
            self._finished(finished, self.counters.env_steps)

    def _finished(self, finished: FinishedEpisodes, env_steps: int | Array) -> None:
        """Record finished episodes and call the callbacks.

        env_steps: those of the run at the end of all of the episodes, or of each [n].
        """
        envs, games = self.context.envs, self.games
        recorded = dict(games.recorded)
        cast = self.actors.cast
        more = cast.finished(finished.envs, finished.returns) if cast.sets else []
        if isinstance(games, RotatingVectorEnv):
            more += list(games.seats_in(finished.envs, finished.numbers))
        if self._matches is not None:
            more.append(finished.envs // envs.num_envs)
        self.history.add_episodes(
            envs=finished.envs, env_steps=env_steps, lengths=finished.lengths,
            seconds=self.clock.seconds, returns=finished.returns,
            records=[recorded.get(e, {}) for e in finished.envs.tolist()] if recorded else (), more=more,
        )  # fmt: skip
        if self.events.callbacks.listens("on_episode_end"):
            self._tell_ends(finished)
        else:
            self.counters.episodes += len(finished.envs)
        if cast.sets:
            cast.draw(finished.begun)
        self.tell_starts(finished.begun, finished.following)

    def _tell_ends(self, finished: FinishedEpisodes) -> None:
        """Count finished episodes, and call `on_episode_end` for each."""
        envs = self.context.envs
        for i, e in enumerate(finished.envs.tolist()):
            self.counters.episodes += 1
            self.events.tell(
                "on_episode_end", env=e, episode=int(finished.numbers[i]), returns=finished.returns[:, i].copy(),
                length=int(finished.lengths[i]), names=envs.spec.names[e // envs.num_envs :: divided(envs)],
            )  # fmt: skip


def episode_columns(envs: VectorEnv, learners: Sequence[LearnerSeats]) -> dict[str, Any]:
    """Return the further columns of the table of episodes, with their dtypes or, for numbers of texts, the texts."""
    games = games_of(envs)
    columns: dict[str, Any] = {**Cast(games.spec, learners, 1, divided(envs)).columns}
    if isinstance(games, RotatingVectorEnv):
        columns |= {f"seat/{name}": np.int64 for name in games.spec.names}
    return columns | ({"match": envs.names} if isinstance(envs, MatchesVectorEnv) else {})


def _team_rewards(context: RunContext) -> TeamRewards | None:
    """Return the rewards to learn from, if players do not learn from their own: in a population, those of each copy."""
    given, copies = context.team_reward, len(context.source.copies)
    names = plain_names(context.envs.spec.names, copies)
    return None if given is None else TeamRewards(given, names, max(1, copies))


def _due(context: RunContext) -> Due:
    """Return the schedule of tests, `train_fn`, checkpoints and budgets."""
    settings, checkpoint, train = context.settings, context.checkpoint, context.hooks.train
    return Due(
        context.budgets,
        TestSchedule(settings.test_freq, settings.test_freq_steps),
        None if train.function is None else train.every,
        None if checkpoint is None else checkpoint.settings.every_steps,
    )
