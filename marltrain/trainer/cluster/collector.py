"""RunnerCollector: runners collect whole fragments of batch steps; the loop receives them step by step.

Synchronous: a fragment ends where the next update is due, so its acts use the same weights, and the results equal those
of one process. Asynchronous: fragments are ordered ahead of the updates, see `WorkAhead`. Without a lag both are equal.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from marltrain.core.errors import ConfigError
from marltrain.core.layout import Array
from marltrain.core.spec import Step
from marltrain.envs.matches import divided
from marltrain.envs.vector import VectorEnv
from marltrain.trainer.cluster.fragment_orders import NOTHING, Orders, Received
from marltrain.trainer.cluster.initial_priorities import DriverRating
from marltrain.trainer.cluster.lookahead import InStep, Lookahead, WorkAhead
from marltrain.trainer.cluster.runners import runner_envs
from marltrain.trainer.collecting.rollout import Collected, NotRepeatedError, Recorder
from marltrain.trainer.events.counters import Traffic
from marltrain.trainer.seats.team_reward import TeamRewards
from marltrain.trainer.updating.scheduler import UpdateScheduler

FIRST = 16
"""Batch steps of the first fragment at most; its duration sets the limit of the next one."""
MOST_BYTES = 256 * 2**20
"""Maximum size of the Steps of all fragments that are ordered and not used, and maximum size of their weights."""


class RunnerCollector:
    """Collects fragments and gives them to the loop, one batch step at a time; see `Collector`."""

    def __init__(
        self,
        envs: VectorEnv,
        recorder: Recorder,
        schedulers: Sequence[UpdateScheduler],
        timeout: float,
        traffic: Traffic,
        max_lag: int | None,
        team_rewards: TeamRewards | None,
    ) -> None:
        """Prepare the learners for the runners.

        envs: the environments as the agents see them, which hold a RunnerVectorEnv.
        timeout: seconds that a fragment, or the way back to its start, may take, and in addition `SLOWER` times what
          acting and stepping took in the last fragment.
        traffic: counts what is sent.  max_lag: see `WorkAhead`; None: synchronous.
        team_rewards: the rewards to learn from; None: the players' own.
        Raises ConfigError for agents that runners cannot hold, and for those and environments that cannot work ahead.
        """
        self.envs, self._seen = runner_envs(envs), envs
        self.recorder, self.schedulers, self.traffic = recorder, schedulers, traffic
        rates = max_lag and divided(envs) == 1  # the driver rates without a lag, and rows of matches
        self._rating = DriverRating.of(recorder, schedulers) if rates else None
        self._orders = Orders(envs, recorder, timeout, traffic, self._rating, team_rewards)
        self._synchronous = max_lag is None
        self._lookahead = self._in_step() if max_lag is None else self._work_ahead(max_lag)
        self._ahead = 0  # batch steps that are ordered and not given
        self._fragment = NOTHING
        self._given = 0  # batch steps of the fragment that were given

    def advance(self, step: Step, most: int, episodes: int) -> Collected:
        """Give the next batch step; order fragments, and wait for the next one if the last one is used up."""
        if self._synchronous and self._ahead and self._orders.outdated(self._fragment.version):
            self.settle()
        if self._rating is not None and self._ahead and self._rating.outdated:
            self.settle()
        if not self._within:
            self._orders.let_join()
        self._order(most)
        if not self._within:
            self._fragment, self._given = self._orders.receive(), 0
            if self._rating is not None:
                self._rating.give([part.errors for part in self._fragment.fragments])
        step = self._give(self._fragment, self._given)
        self._given += 1
        self._ahead -= 1
        if not self._within:
            self._orders.forget()
        return Collected(step, 1)

    def close(self) -> None:
        """Its threads are those of the runners, which end with the environments."""

    def settle(self) -> None:
        """Bring the runners to the Step that was given last.

        They give up what they have collected beyond the present fragment. If they are beyond the Step in it, they
        return to its start and repeat it. Raises NotRepeatedError if the repeated steps end differently.

        Afterwards the state of the environments is known here, and runners are not asked for it.
        """
        if self._ahead:
            self._go_back()
        self._orders.forget()
        self.envs.known = self._orders.snapshot

    def _go_back(self) -> None:
        """See `settle`."""
        orders, fragment = self._orders, self._fragment
        if self._within:
            now = self.envs.kept()
            orders.go_back(fragment.origin)
            orders.place([self._given], fragment.version, fragment.origin, fragment.begun[: self._given])
            self._fragment = orders.receive()
            self.envs.put_back(now)
            for w, part in enumerate(self._fragment.fragments):
                if not np.array_equal(self.envs.pool.as_bytes(w), part.outcomes[-1]):
                    raise self._differs(w)
        else:
            orders.go_back(orders.here())
        self._ahead = 0

    @property
    def _within(self) -> bool:
        """Whether a part of the present fragment is not given yet."""
        return self._given < self._fragment.steps

    def _order(self, most: int) -> None:
        """Order all fragments that may be ordered now."""
        newest = None
        while steps := self._lookahead.steps(self._ahead, most):
            newest = newest or self._orders.newest([scheduler.times_due for scheduler in self.schedulers])
            self._orders.place(self._parts(steps), newest, None if self._ahead else self._orders.here())
            self._ahead += steps

    def _parts(self, steps: int) -> list[int]:
        """Return the lengths in which a fragment is ordered: the first one in two, to measure the seconds per step.

        Both parts are ordered now, with the same weights, so that the fragments after it begin where they would without
        the division: a new collector, as of a resumed run, changes no result.
        """
        undivided = self._orders.seconds_per_step or self._ahead or steps <= FIRST
        return [steps] if undivided else [FIRST, steps - FIRST]

    def _give(self, fragment: Received, t: int) -> Step:
        """Record the decisions of batch step t of a fragment, then return the Step with its outcome."""
        for w, (own, part) in enumerate(zip(self.envs.columns, fragment.fragments, strict=True)):
            self.envs.pool.show_actions(w, part.actions[t])
            for group, kept in part.extras.items():
                for name, array in kept.items():
                    self._orders.by_game(self.recorder.extras[group][name])[:, own] = array[t]
        self.recorder.record_actions()
        reports = [part.reports.get(t, b"") for part in fragment.fragments]
        self.envs.shown([part.outcomes[t] for part in fragment.fragments], reports)
        if not self._synchronous:
            self._note_lag(fragment)
        self.recorder.actors.cast.following = self._following(fragment, t)
        return self._seen.recv()

    def _following(self, fragment: Received, t: int) -> Array | None:
        """Return the members that runners let play the episodes that begin after batch step t; None: not known yet."""
        if t + 1 < fragment.steps:
            following: Array = fragment.begun[t + 1]
            return following
        return self._orders.pending[0].begun[0] if self._orders.pending else None

    def _note_lag(self, fragment: Received) -> None:
        """Note how many updates have been made since the weights that a fragment was acted with."""
        self.traffic.lag = 0
        for scheduler, then in zip(self.schedulers, fragment.version.times_due, strict=True):
            lag = scheduler.times_due - then
            scheduler.lag = max(scheduler.lag or 0, lag)
            self.traffic.lag = max(self.traffic.lag, lag)
        self.traffic.max_lag = max(self.traffic.max_lag, self.traffic.lag)

    def _in_step(self) -> Lookahead:
        """Return the lengths of synchronous fragments: one batch step if acts depend on all environments.

        Or if runners cannot return to the start of a fragment and repeat it.
        """
        alone = self._counting() is not None or not self.envs.spec.reproducible
        return InStep(self.schedulers, 1 if alone else self._most_steps())

    def _work_ahead(self, max_lag: int) -> Lookahead:
        """Return the lengths of asynchronous fragments; raises ConfigError for agents or environments without them."""
        if (who := self._counting()) is not None:
            raise ConfigError(
                f"sync=False: each act of the agent of {who} depends on how often actions were chosen in all "
                "environments, which runners that work ahead do not know. Choose another exploration, or leave "
                "sync=False out"
            )
        if not self.envs.spec.reproducible:
            raise ConfigError(
                f"sync=False: {self.envs.source.name} is not reproducible, and runners that work ahead return to "
                "earlier steps at checkpoints, at the end, and when one is lost. Leave sync=False out"
            )
        weights = max(1, self._orders.weights_size)
        return WorkAhead(self.schedulers, max_lag, self._most_steps(), max(1, MOST_BYTES // weights))

    def _most_steps(self) -> int:
        """Return the maximum number of batch steps that are ordered and not given."""
        return max(1, MOST_BYTES // sum(array.nbytes for array in self.envs.kept().values()))

    def _counting(self) -> str | None:
        """Return the players of an agent whose acts depend on the counts of all environments, if there is one."""
        seats = self.recorder.actors.learners
        return next((s.who for s in seats if s.learner.actor is not None and s.learner.actor.counts.size), None)

    def _differs(self, w: int) -> NotRepeatedError:
        """Return the error for a runner whose repeated steps differ from those that were given."""
        envs, own = self.envs, self.envs.columns[w]
        return NotRepeatedError(
            f"runner {w} repeated the first {self._given} batch steps of its fragment, and its environments "
            f"{own.start} to {own.stop - 1} ({envs.source.name}) gave another Step than before at the last of them. "
            'They are not reproducible: use only the generator that reset(seed) makes, or set metadata["reproducible"] '
            "= False"
        )
