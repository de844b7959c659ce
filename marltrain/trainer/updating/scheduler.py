"""UpdateScheduler: when a learner updates, and the rows that it learns from.

Counts of updates and their owners: `Learner.updates` and `Learner.gradient_steps` [K] count over an agent's life;
`UpdateScheduler.updates` counts the updates of a run and numbers them in errors; `Counters.updates` is the maximum over
the run's schedulers. `PlannedUpdates` counts the rounds and updates of its current plan.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, ClassVar, NamedTuple

import numpy as np

from marltrain.core.errors import AgentError, SaveError
from marltrain.core.layout import Array
from marltrain.jit.notices import tell
from marltrain.policies.batches.batch import Rollout, Transitions
from marltrain.policies.learner.learner import BegunUpdate
from marltrain.policies.learner.update_plan import mean_of_measured
from marltrain.policies.memory.observed import ObservedReader
from marltrain.policies.memory.readers import Reader, UniformReader
from marltrain.policies.memory.sequences import ReplayedRolloutReader
from marltrain.policies.memory.streams import Streams
from marltrain.storage.checks import MOST_COUNTED, within
from marltrain.storage.state import State
from marltrain.trainer.seats.seats import Seats
from marltrain.trainer.updating.update_schedule import Defaults, batch_steps_left, schedule_of, updates_due

Metrics = dict[str, dict[str, float]]
"""Label of an agent -> name -> value."""


class UpdateMetrics(NamedTuple):
    """Metrics of R rounds of updates that compiled code made.

    labels: [K] the agents' labels.  names: [M] the metrics' names.  values: [R, M, K] float64.
    error: set if the last update had a loss or a gradient that is not finite; its round is not among the values.
    """

    labels: tuple[str, ...]
    names: tuple[str, ...]
    values: Array
    error: AgentError | None

    def by_agent(self) -> Metrics:
        """Return the means over the rounds, {label: {name: value}}, of the metrics that a round measured."""
        seen = ~np.isnan(self.values).all((0, 2))
        names, means = np.array(self.names)[seen].tolist(), mean_of_measured(self.values[:, seen]).T.tolist()
        return {label: dict(zip(names, row, strict=True)) for label, row in zip(self.labels, means, strict=True)}


class NotFiniteError(AgentError):
    """A loss or a gradient of an agent is not finite; rows: [n] int64, such agents of the learner."""

    def __init__(self, message: str, rows: Array) -> None:
        """Store the agents."""
        super().__init__(message)
        self.rows = rows


class UpdateScheduler:
    """Schedules the updates of one learner and makes them between two batch steps.

    It owns the reader, and the counts since the last update; the learner owns weights and optimizers.

    learn: [K] bool, the agents that learn.  updates: updates of this run.  period: batch steps between them.
    gathers_on_device: whether batches may be gathered in the memory of the learner's device.
    plans: whether compiled code may make updates of this scheduler between batch steps.
    reads_late: whether it can leave metrics on a GPU, see `defers`.
    address: address of the arguments of the updates that `prepare_updates` has prepared; 0 without any.
    observed: transitions made outside of the run, from which the reader draws, too; see `draw_also`.
    on_not_finite: called in place of raising NotFiniteError, if it is set: the other agents then learn on.
    advance: set while updates that `update` has begun are made elsewhere: waits for one and orders the next; returns
      the metrics after the last one.
    times_due: how often updates were due in this call of `train`, with those that were left out for too few rows.
    defers: whether `update` may leave metrics on a GPU, which the next one, `wait` or `settle` returns.
    lag: the most by which `times_due` exceeds that of the weights of an action since the last update; None if actions
      are always chosen with the newest weights.
    """

    plans: ClassVar[bool] = False
    reads_late: ClassVar[bool] = True
    gathers_on_device: ClassVar[bool] = True
    address: int = 0
    observed: Streams | None = None
    on_not_finite: Callable[[NotFiniteError], Any] | None = None
    advance: Callable[[], Metrics] | None = None

    def __init__(self, seated: Seats, streams: Streams, num_envs: int, defaults: Defaults) -> None:
        """Start without learning agents; `set_learning` sets them."""
        self.seated, self.streams, self.num_envs = seated, streams, num_envs
        self.update_schedule, self.defaults = schedule_of(seated, defaults), defaults
        self.period = batch_steps_left(self.update_schedule, num_envs)
        self._usual_rows = defaults.value("batch_size", None, seated.learner.update_schedule.default_batch_size)
        needs = seated.learner.needs
        self.shared = defaults.shared_memory and not (needs is not None and needs.shared)
        self.learn = np.zeros(len(seated.agents), bool)
        self._silent: list[tuple[int, int]] = []
        self._seats: list[list[int]] = []
        self._reader: Reader | None = None
        self._on_host = ""  # why batches for a GPU are gathered in main memory
        self._steps_since_update = 0  # env steps
        self._credit = 0.0  # fraction of an update, carried over from the last one
        self._practiced = np.zeros(len(seated.agents), np.int64)  # env steps of this run that each agent may learn from
        self.updates = self.times_due = 0
        self.defers = False
        self._late: tuple[list[Callable[[], dict[str, Array]]], Array] = [], self.learn  # see `wait`
        self.lag: int | None = None
        self._behind = False  # whether agents act with older weights than the learner's
        self._checked = False  # whether the rows before the first update were checked

    def set_learning(self, mask: Array) -> None:
        """Set the players that learn, [P] bool; the open rollout of a seat that stops learning is dropped."""
        reading = self.seated.reading(mask)
        self.learn, self._silent = reading.learn, reading.silent
        if not self.learn.any():
            self._seats, self._reader = [], None
            return
        everyone = self.streams.spec.groups[self.seated.group].players
        seats = [list(everyone)] * len(self.learn) if self.shared else reading.players
        if self._reader is None:
            self._steps_since_update = 0
        if seats != self._seats:
            self._seats, self._reader = seats, self._reader_of(seats)

    def follow(self, updates: int, earlier: Iterable[UpdateScheduler]) -> None:
        """Continue the counts of an earlier `train` call.

        An agent with the same memory also continues its count of env steps towards `learning_starts`.
        """
        self.updates = updates
        before = [
            (scheduler, k)
            for scheduler in earlier
            if scheduler.streams is self.streams
            for k in range(len(scheduler.learn))
        ]
        for mine, agent in enumerate(self.seated.agents):
            for scheduler, k in before:
                if scheduler.seated.agents[k] is agent:
                    self._practiced[mine] = scheduler._practiced[k]

    def state(self) -> State:
        """Return the counts and the state of the reader."""
        reader = State() if self._reader is None else self._reader.state()
        result = State.joined(reader=reader)
        result.info |= {"gathered": self._steps_since_update, "credit": self._credit, "updates": self.updates}
        result.info["behind"], result.info["lag"], result.arrays["practiced"] = self._behind, self.lag, self._practiced
        return result

    def restore(self, state: State, *, memory: bool) -> None:
        """Restore what `state` returned, for the same seats; with memory=False a new rollout begins.

        Raises SaveError for impossible counts, such as more env steps than `update_freq` without an update.
        """
        self._steps_since_update = state.count("gathered", high=(self.update_schedule.update_freq or 1) - 1)
        self._credit, self.updates = state.value("credit", float), state.count("updates")
        if not 0 <= self._credit < 1:
            raise SaveError(f"{state.place('credit')} must be a fraction of an update, below 1, got {self._credit}")
        self._behind = state.value("behind", bool)
        self.lag = None if state.info.get("lag") is None else state.count("lag")
        practiced = state.array("practiced", np.int64, self._practiced.shape)
        self._practiced[...] = within(state.place("practiced"), practiced, 0, MOST_COUNTED)
        if self._reader is not None and memory:
            self._reader.restore(state.part("reader"))

    def count_steps(self, steps: int) -> None:
        """Count batch steps that have been made."""
        if self._reader is not None:
            for agent, seat in self._silent:
                self._reader.drop(agent, seat)
        self._practiced += self.num_envs * steps * (self.learn | self.shared)
        self._steps_since_update += self.num_envs * steps

    @property
    def is_due(self) -> bool:
        """Whether `update` must be called now: `update_freq` env steps have passed since the last call."""
        return self._steps_since_update >= (self.update_schedule.update_freq or 1)

    @property
    def steps_left(self) -> int:
        """Number of batch steps until the next update is due."""
        return batch_steps_left(self.update_schedule, self.num_envs, self._steps_since_update)

    def prepare_updates(self, env_steps: int, steps: int, most: int | None, acting: int) -> int:
        """Prepare the updates of compiled code, if it can make them; return the batch steps allowed before `update`.

        env_steps: env steps of the run so far.  steps: batch steps at most.  most: see `update`.
        acting: address of the settings that the agents' acts read, see `Actor.settings`, or 0.
        """
        return min(steps, self.steps_left)

    def take_metrics(self) -> UpdateMetrics | None:
        """Count the rounds that compiled code has made and return their metrics; None if it has made none."""
        return None

    def will_update(self, most: int | None = None) -> bool:
        """Return whether `update` makes at least one update now; call it when `is_due` is True."""
        if self._reader is None or not self._ready(self._reader).any():
            return False
        if self._reader.rollouts:
            return True
        updates, _ = updates_due(self.update_schedule, self._credit, self._steps_since_update)
        return updates > 0 and (most is None or most > self.updates)

    def update(self, env_steps: int, most: int | None = None) -> Metrics:
        """Make the updates that are due, at most `most` in this run; return each agent's mean metrics by label.

        First, scheduled hyperparameters (epsilon, learning rates) get their values at `env_steps`.
        """
        steps, self._steps_since_update = self._steps_since_update, 0
        before, reader = {} if self.defers else self.settle(), self._reader
        self.seated.learner.apply_schedules(env_steps)
        if reader is None or not np.count_nonzero(ready := self._ready(reader)):
            return before | self.settle()
        return before | self._make(self._batches(reader, ready, steps, most), ready, env_steps)

    def drop_rollouts(self, agents: Array) -> None:
        """Exclude the past decisions of agents, [K] bool, from all rollouts: their weights have been replaced.

        The rollouts of the other agents stay, and so do replay memories, whose rows may come from any policy.
        """
        if self._reader is not None:
            for k in np.flatnonzero(agents).tolist():
                self._reader.drop(k)

    def draw_also(self, observed: Streams) -> None:
        """Draw from observed transitions, too, from the next `set_learning` on.

        observed: those of an `ObservedMemory`.  The learner must draw transitions uniformly.
        """
        self.observed, self._seats = observed, []

    @property
    def rating_reader(self) -> UniformReader | None:
        """The reader if it makes first priorities from errors, else None."""
        reader = self._reader
        return reader if isinstance(reader, UniformReader) and reader.initial is not None else None

    @property
    def gradient_steps(self) -> int:
        """Number of gradient passes of the agents, without those of updates under way."""
        return sum(self.seated.learner.gradient_steps.tolist())

    def wait(self) -> Metrics:
        """Wait for the updates under way and return their metrics; the agents still act with the old weights."""
        (rounds, ready), self._late = self._late, ([], self.learn)
        return by_agent(self.seated.labels, [finish() for finish in rounds], ready) if rounds else {}

    def settle(self) -> Metrics:
        """Wait for the updates under way and return their metrics; the agents act with the new weights."""
        return self.wait()

    def close(self) -> None:
        """End the overlap of acting and learning, if there is any."""

    def _make(self, batches: Iterable[tuple[int, Rollout | Transitions]], ready: Array, env_steps: int) -> Metrics:
        """Make one update for each batch; raises AgentError if a loss or a gradient is not finite."""
        learner, rounds, rows = self.seated.learner, [], self._batch_size()
        if self.defers:
            late: list[Callable[[], dict[str, Array]]] = []
            try:
                for number, batch in batches:
                    begun = learner.begin_update(batch, learn=ready, batch_size=rows)
                    late.append(partial(self._finish_update, begun, self._of_rows(), batch, number, ready, env_steps))
            finally:  # while the GPU computes, and after an error of a later update
                before, self._late = self.wait(), (late, ready)
            return before
        for number, batch in batches:
            measured = learner.update(batch, learn=ready, batch_size=rows)
            begun = BegunUpdate(partial(dict, measured), learner.skipped)
            rounds.append(self._finish_update(begun, self._of_rows(), batch, number, ready, env_steps))
        return by_agent(self.seated.labels, rounds, ready)

    def _of_rows(self) -> dict[str, Array]:
        """Return the metrics of the rows of an update."""
        return {} if self._reader is None else self._reader.metrics()

    def _finish_update(
        self, begun: BegunUpdate, of_rows: Mapping[str, Array], batch: Rollout | Transitions, number: int,
        ready: Array, env_steps: int,
    ) -> dict[str, Array]:  # fmt: skip
        """Return the metrics of an update with those of its rows; the reader gets the batch with its errors.

        Raises NotFiniteError if a loss or a gradient is not finite.
        """
        measured = begun.result()
        if (error := not_finite(self.seated, measured, begun.skipped, ready, number, env_steps)) is not None:
            if self.on_not_finite is None:
                raise error
            self.on_not_finite(error)
        if self._reader is not None:
            self._reader.learned(batch)
        return {**measured, **of_rows}

    def _batches(
        self, reader: Reader, ready: Array, steps: int, most: int | None
    ) -> Iterator[tuple[int, Rollout | Transitions]]:
        """Yield the number and the batch of each update that is due after `steps` env steps."""
        gammas, rows = self.seated.learner.gammas(), self._batch_size()
        if reader.rollouts:
            self.updates += 1
            given = (gammas, rngs_of(self.seated, ready)) if reader.draws else (gammas,)
            rollout = reader.take(*given)
            if self.lag and isinstance(rollout, Rollout):
                rollout.lag = np.full(rollout.weight.shape, self.lag, np.float32)
            yield self.updates, rollout
            replaying = isinstance(reader, ReplayedRolloutReader) and (reader.sequences.size()[ready] > 0).any()
            updates = self.update_schedule.replay_ratio if replaying else 0
        else:
            updates, self._credit = updates_due(self.update_schedule, self._credit, steps)
        for _ in range(updates if most is None else min(updates, most - self.updates)):
            self.updates += 1
            yield self.updates, reader.sample(rngs_of(self.seated, ready), gammas, rows)

    def _reader_of(self, seats: Sequence[Sequence[int]]) -> Reader:
        """Return the reader of these players."""
        learner = self.seated.learner
        own = learner.reader(self.streams, seats)
        if self.observed is not None:  # it joins arrays
            return ObservedReader(own, learner.reader(self.observed, seats))
        why = learner.gather_on_device(own, self._batch_size()) if self.gathers_on_device else ""
        if why not in ("", self._on_host):
            tell(f"the batches of {self.seated.who} are gathered in main memory and sent to the GPU: {why}")
        self._on_host = why
        return own

    def _ready(self, reader: Reader) -> Array:
        """Return the agents that an update would train now, [K] bool; updates under way change no priorities."""
        reader.admit()
        if reader.rollouts:
            return self.learn & (reader.size() >= self.update_schedule.least_rows)
        ready: Array = self._started() & (reader.size() > 0)
        if not self._checked and not self.updates and ready.any():
            self._checked = True  # all rows, since a batch holds few of them and could find a wrong one late
            reader.check()
        return ready

    def _batch_size(self) -> int:
        """Return the number of rows of a batch; callbacks may change it between updates."""
        own = self.seated.learner.update_schedule.batch_size
        return self._usual_rows if own is None else own

    def _started(self, steps: int = 0) -> Array:
        """Return the agents that learn and will have passed `learning_starts` in `steps` batch steps, [K] bool."""
        started: Array = self.learn & (self._practiced + self.num_envs * steps >= self.update_schedule.learning_starts)
        return started


def rngs_of(seated: Seats, ready: Array) -> list[np.random.Generator | None]:
    """Return the agents' random streams for sampling rows; None for an agent that does not learn."""
    return [rng if on else None for rng, on in zip(seated.learner.rngs("sample"), ready, strict=True)]


def not_finite(
    seated: Seats, measured: Mapping[str, Array], skipped: Mapping[str, Array], ready: Array, number: int,
    env_steps: int,
) -> NotFiniteError | None:  # fmt: skip
    """Return the error if a loss or a gradient of an update is not finite, else None.

    skipped: see `Learner.skipped`.
    """
    watched = {name: values for name, values in measured.items() if name.startswith(("loss", "grad_norm"))}
    finite = np.isfinite(sum(watched.values()))
    if np.count_nonzero(finite) == finite.size:  # the usual case, in a single check
        return None
    for name, values in watched.items():
        broken = ready & ~np.isfinite(values) & ~np.asarray(skipped.get(name, False))
        if np.count_nonzero(broken):
            row = int(broken.argmax())
            return NotFiniteError(
                f"the agent of {seated.labels[row]}: {name} became {values[row]} in update {number} (env step "
                f"{env_steps:,}); it must be finite. "
                f"{seated.learner.when_not_finite} Look for rewards and "
                "observations that are very large, lower learning_rate or max_grad_norm, and continue from the last "
                "checkpoint (train(..., resume=...)) or with the agents in best/",
                np.flatnonzero(broken),
            )
    return None


def by_agent(labels: Sequence[str], rounds: Sequence[Mapping[str, Array]], ready: Array) -> Metrics:
    """Return the means of the metrics over the rounds that have them."""
    if not rounds:
        return {}
    means = dict(rounds[0])
    if len(rounds) > 1:
        names = dict.fromkeys(name for measured in rounds for name in measured)
        means = {
            name: mean_of_measured(np.stack([measured[name] for measured in rounds if name in measured]))
            for name in names
        }
    values = {name: mean.tolist() for name, mean in means.items()}
    return {labels[k]: {name: value[k] for name, value in values.items()} for k in ready.nonzero()[0].tolist()}
