"""Recorder: the callback that follows trainings of tools, records their tests, and ends them early."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from marltrain.core.errors import SaveError, error_text
from marltrain.storage.checks import of_type
from marltrain.tools.search.training import LOSS, Plan, Reading, Training, Watch
from marltrain.trainer.decentralized import DecentralizedTrainer
from marltrain.trainer.events.callbacks import Callback, Moment
from marltrain.trainer.updating.scheduler import NotFiniteError


class Memory(Protocol):
    """What a `Watch` keeps from test to test; see `Callback.state_dict`."""

    def state_dict(self) -> dict[str, Any]:
        """Return it as plain values."""

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore what `state_dict` returned; raises SaveError for anything else."""


class Recorder(Callback):
    """Records the tests of trainings, and ends trainings early.

    trainer: trains them.  restored: whether it goes on from a checkpoint.
    """

    only_watches = True  # it ends trainings, which changes nothing in those that go on

    def __init__(self, plan: Plan, trainings: Sequence[Training], watch: Watch, memory: Memory | None) -> None:
        """Take the trainings of the run, player by player; memory: of `watch`, if it keeps something."""
        self.plan, self.trainings, self.watch, self.memory = plan, trainings, watch, memory
        self.trainer: DecentralizedTrainer
        self.restored = False
        self._places: dict[str, int] = {}

    def on_train_start(self, moment: Moment) -> None:
        """Find the training of every agent; let the others go on after a loss that is not finite."""
        context = self._run.context
        for seated in context.seating.learners:
            for label, players in zip(seated.labels, seated.players, strict=True):
                self._places[label] = int(players[0]) % len(self.trainings)
        if len(self.trainings) > 1:
            for scheduler in context.schedulers:
                labels = scheduler.seated.labels
                scheduler.on_not_finite = lambda error, labels=labels: self._diverged(error, labels)

    def on_test_end(self, moment: Moment) -> None:
        """Record a test of every training."""
        returns = moment.data["result"].returns
        returns = returns.reshape(len(returns), -1, len(self.trainings))
        for n, training in enumerate(self.trainings):
            if training.stopped:
                continue
            own = returns[:, :, n]
            metric = self.plan.metric(own[~np.isnan(own[:, 0])], [agent.learns for agent in training.agents])
            training.readings.append(Reading(moment.env_steps, metric, self._losses(n)))
        self.watch([training for training in self.trainings if not training.stopped])
        self._drop_replaced()
        self._end_stopped()

    def state_dict(self) -> dict[str, Any]:
        """Return the outcomes so far, and the memory."""
        memory = {} if self.memory is None else self.memory.state_dict()
        return {"trainings": [training.outcome() for training in self.trainings], "memory": memory}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore what `state_dict` returned; raises SaveError for other trainings or impossible values."""
        outcomes = of_type("trainings", state["trainings"], list)
        if len(outcomes) != len(self.trainings):
            raise SaveError(f"{len(outcomes)} trainings are saved, and {len(self.trainings)} go on")
        played = self._run.history.tests["env_steps"].tolist()
        for training, outcome in zip(self.trainings, outcomes, strict=True):
            training.take(outcome)
            steps = [test.env_steps for test in training.readings]
            if steps != (played[: len(steps)] if training.stopped else played):
                raise SaveError(f"a training was tested at the env steps {steps}, and the run at {played}")
        memory = of_type("memory", state["memory"], dict)
        if self.memory is not None:
            self.memory.load_state_dict(memory)
        self.restored = True
        if all(training.stopped for training in self.trainings):
            self._end_stopped()

    @property
    def _run(self) -> Any:
        if self.trainer.run is None:
            raise RuntimeError("callbacks are called while a run is under way")
        return self.trainer.run

    def _losses(self, n: int) -> dict[str, float]:
        """Return the means of the losses of a training since the test before."""
        sums: dict[str, list[tuple[float, int]]] = {}
        for label in (label for label, place in self._places.items() if place == n):
            for name, own in self._run.history.sums_of(label).items():
                if name.startswith(LOSS):
                    sums.setdefault(name, []).append(own)
        return {name: sum(s for s, _ in own) / sum(c for _, c in own) for name, own in sums.items()}

    def _diverged(self, error: NotFiniteError, labels: Sequence[str]) -> None:
        for row in error.rows.tolist():
            training = self.trainings[self._places[labels[row]]]
            training.error, training.stopped = error_text(error), True
        self._end_stopped()

    def _drop_replaced(self) -> None:
        """Drop the rollouts so far of the trainings whose agents have other weights now."""
        if not any(training.replaced for training in self.trainings):
            return
        for scheduler in self._run.context.schedulers:
            labels = scheduler.seated.labels
            scheduler.drop_rollouts(np.array([self.trainings[self._places[label]].replaced for label in labels]))
        for training in self.trainings:
            training.replaced = False

    def _end_stopped(self) -> None:
        """End the learning of the trainings that were stopped, and the run after the last of them."""
        going = np.array([not training.stopped for training in self.trainings])
        learns = np.array([agent.learns for agent in self._run.context.seating.agents])
        mask = learns & np.tile(going, len(learns) // len(going))
        if mask.any() and going.all():
            return
        if mask.any():
            self.trainer.learning_mask = mask
        else:
            self.trainer.stop("every training has ended")
