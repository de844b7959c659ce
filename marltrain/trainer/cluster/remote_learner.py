"""RemoteLearner: the updates of one learner in actors; its agents stay readable in the driver."""

from __future__ import annotations

from collections.abc import Sequence
from operator import itemgetter
from typing import Any

import numpy as np

from marltrain.core.layout import Array
from marltrain.policies.batches.batch import map_batch
from marltrain.policies.learner.learner import Learner
from marltrain.policies.learner.learner_snapshot import Trained, TrainedWeights, members_of
from marltrain.trainer.cluster.learner_messages import Numbers, UpdateAnswer, UpdateOrder, joined_metrics
from marltrain.trainer.cluster.learners import UPDATE, LearnerActors, Share


class RemoteLearner:
    """Splits the batches of a learner over the shares of its agents, and joins what they answer.

    The driver's learner acts, and reads and saves agents. After the updates of a round it gets the networks by which
    agents act. It gets everything else when an agent is read or changed (a checkpoint, `agent.save`), and when the
    updates that a share keeps against the loss of its actor are larger than its state.
    """

    def __init__(self, learner: Learner, shares: Sequence[Share], actors: LearnerActors) -> None:
        """Lend the learner to the shares, which are in the actors."""
        self.learner, self.shares, self._members, self._actors = learner, list(shares), members_of(learner), actors
        self._actors_outdated, self._driver_outdated = True, False
        self._ordered: list[bool] = []  # the shares that make the update
        self._weights_changed = [False for _ in shares]  # of each share, since the weights were taken
        self._whole = False
        self._batch: Any = None
        self._learn: list[Array] = []
        for member in self._members:
            member.copies.lend(self.fetch, self._changed)

    def order(self, batch: Any, learn: Array, batch_size: int) -> None:
        """Start an update; see `Learner.update`.  A share without a row to learn from makes none."""
        if self._actors_outdated:
            state = Trained.of(self.learner)
            for share in self.shares:
                share.load(state.rows(share.rows))
            self._actors_outdated = False
        elif any(share.outgrown for share in self.shares):  # of a round of many updates not all batches are kept
            self._states()
        self._batch, self._ordered = batch, []
        self._learn = [learn[share.rows] for share in self.shares]
        for share, own in zip(self.shares, self._learn, strict=True):
            rows = batch if len(self.shares) == 1 else map_batch(itemgetter(share.rows), batch)
            self._ordered.append(len(self.shares) == 1 or bool(np.count_nonzero(rows.weight)))
            if self._ordered[-1]:
                numbers = tuple(Numbers.of(member, share.rows) for member in self._members)
                share.call(UPDATE, UpdateOrder(rows, own, batch_size, numbers))
        self._weights_changed = [old or new for old, new in zip(self._weights_changed, self._ordered, strict=True)]
        self._driver_outdated = True

    def result(self) -> dict[str, Array]:
        """Wait for the update; return its metrics [K], and set the errors of the batch."""
        answers: list[UpdateAnswer | None] = [
            share.result() if ordered else None for share, ordered in zip(self.shares, self._ordered, strict=True)
        ]
        for share, answer in zip(self.shares, answers, strict=True):
            if answer is not None:
                self._count(share.rows, answer)
        self._set_errors(answers)
        agents = [len(own) for own in self._learn]
        metrics, self.learner.skipped = joined_metrics(answers, agents, self._learn)
        return metrics

    def order_weights(self) -> None:
        """Ask for the networks by which agents act, or for everything, if that is cheaper in the long run."""
        self._whole = any(share.outgrown for share in self.shares)
        for share, moved in zip(self.shares, self._weights_changed, strict=True):
            if self._whole or moved:
                share.call("state" if self._whole else "weights")

    def take_weights(self) -> None:
        """Wait for what `order_weights` asked for; the agents act by it."""
        if self._whole:
            self._take([share.result() for share in self.shares])
            return
        asked = zip(self.shares, self._weights_changed, strict=True)
        results = [share.result() if moved else self._known(share.rows) for share, moved in asked]
        for member, pieces in zip(self._members, zip(*results, strict=True), strict=True):
            TrainedWeights.joined(pieces).put(member.weights)
        self._weights_changed = [False for _ in self.shares]

    def fetch(self) -> None:
        """Get the complete state of the agents, if they have been updated since.

        After the loss of an actor that ends the run, and after a second interrupt, it is the last that the driver has.
        """
        if not self._driver_outdated:
            return
        if self._actors.given_up:
            self._take([share.confirmed for share in self.shares if share.confirmed is not None])
            return
        for share in self.shares:
            share.finish()
        self._take(self._states())

    def close(self) -> None:
        """Take the agents back."""
        try:
            self.fetch()
        finally:
            for member in self._members:
                member.copies.end()

    def _known(self, rows: slice) -> tuple[TrainedWeights, ...]:
        """Return the networks by which some agents act, of each member, as they are here."""
        return tuple(TrainedWeights.of(member.weights, complete=False).rows(rows) for member in self._members)

    def _states(self) -> list[Trained]:
        """Return the states of the shares, which keep them."""
        for share in self.shares:
            share.call("state")
        return [share.result() for share in self.shares]

    def _take(self, states: Sequence[Trained]) -> None:
        Trained.joined(states).put(self.learner)
        self._driver_outdated, self._weights_changed = False, [False for _ in self.shares]

    def _changed(self) -> None:
        """Note that an agent was changed here: the shares get the state before the next update."""
        self._actors_outdated = True

    def _count(self, rows: slice, answer: UpdateAnswer) -> None:
        """Take over the counts of an update, and the hyperparameters that it has changed."""
        for i, member in enumerate(self._members):
            member.updates[rows], member.gradient_steps[rows] = answer.updates[i], answer.gradient_steps[i]
            whole = {name: member.hyper.values[name].copy() for name in answer.hyper[i]}
            for name, values in answer.hyper[i].items():
                whole[name][rows] = values
            member.hyper.adapt(whole, np.ones(member.num_agents, bool))

    def _set_errors(self, answers: Sequence[UpdateAnswer | None]) -> None:
        """Set the errors of the batch's rows, which make priorities."""
        errors = [None if answer is None else answer.errors for answer in answers]
        if any(own is not None for own in errors):
            pairs = zip(errors, self.shares, strict=True)
            weight = self._batch.weight
            self._batch.errors = np.concatenate(
                [np.zeros_like(weight[share.rows]) if own is None else own for own, share in pairs]
            )
