"""UpdateScheduler: when a learner updates, and the rows that it learns from."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import Executor, Future, wait
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from marltrain.checks import MOST_COUNTED, within
from marltrain.errors import AgentError, SaveError
from marltrain.layout import Array
from marltrain.policies.batch import Rollout, Transitions
from marltrain.policies.learner.update_plan import DueUpdates
from marltrain.policies.memory.readers import Reader, RolloutReader
from marltrain.policies.memory.streams import Streams
from marltrain.state import State
from marltrain.trainer.seats import Unit
from marltrain.trainer.updating.pace import Defaults, pace_of

if TYPE_CHECKING:
    from marltrain.policies.compiled.replay_update import CompiledUpdates

Rounds = list[dict[str, Array]]


class PendingUpdates(NamedTuple):
    """Updates that run in a thread.

    rounds: their metrics, once finished.  ready: [K] bool, the agents that learn.
    passes: gradient passes before these updates.
    """

    rounds: Future[Rounds]
    ready: Array
    passes: int


MOST_PLANNED = 64
"""Maximum rounds of a plan, and maximum updates of several rounds; it bounds the latency of a stop request."""


@dataclass
class UpdatePlan:
    """Planned rounds of updates that compiled code may make.

    learn: [K] bool, the agents that learn.  credits: fraction of an update carried over after each round.
    settings_version: version of the learner's settings at planning time.
    steps: batch steps since planning.  made: rounds made so far.
    """

    learn: Array
    rounds: list[DueUpdates]
    credits: list[float]
    settings_version: int
    steps: int = 0
    made: int = 0

    def holds(self, settings_version: int) -> bool:
        """Return whether rounds are left and the settings are unchanged since planning."""
        return self.made < len(self.rounds) and self.settings_version == settings_version


class UpdateMetrics(NamedTuple):
    """Metrics of R rounds of updates that compiled code made.

    labels: [K] the agents' labels.  names: [M] the metrics' names.  values: [R, M, K] float64.
    error: set if the last update had a loss or a gradient that is not finite; its round is not among the values.
    """

    labels: tuple[str, ...]
    names: tuple[str, ...]
    values: Array
    error: AgentError | None

    def by_agent(self) -> dict[str, dict[str, float]]:
        """Return the means over the rounds, {label: {name: value}}; empty without rounds."""
        if not len(self.values):
            return {}
        means = self.values.mean(0).T.tolist()
        return {label: dict(zip(self.names, row, strict=True)) for label, row in zip(self.labels, means, strict=True)}


class UpdateScheduler:
    """Schedules the updates of one unit.

    It owns the reader and the counts since the last update; the learner owns weights and optimizers.
    """

    def __init__(
        self, unit: Unit, streams: Streams, num_envs: int, defaults: Defaults, thread: Executor | None = None
    ) -> None:
        """Start without learning agents; `learning` sets them.

        thread: updates run in it while the loop collects; None: they run between two batch steps.
        """
        self.unit, self.streams, self.num_envs = unit, streams, num_envs
        self.pace = pace_of(unit, defaults)
        self.shared = defaults.shared_memory
        self.learn = np.zeros(len(unit.agents), bool)
        self._silent: list[tuple[int, int]] = []
        self._seats: list[list[int]] = []
        self._reader: Reader | None = None
        self._gathered, self._credit = 0, 0.0
        self._practised = np.zeros(len(unit.agents), np.int64)  # env steps of this run that each agent may learn from
        self._counted = 0  # batch steps of the last collector call that `take` has counted
        self.updates = 0
        self._ahead: CompiledUpdates | None = None
        self._planned: UpdatePlan | None = None
        self._thread = thread
        self._under_way: PendingUpdates | None = None
        self._behind = False
        if thread is not None:
            unit.learner.act_with_copies(" and ".join(unit.labels), self._rest)

    def learning(self, mask: Array) -> None:
        """Set the players that learn, [P] bool; the open rollout of a seat that stops learning is dropped."""
        unit = self.unit
        seats_learn: Array = mask[unit.players] & ~unit.frozen[:, None]
        self.learn, self._planned = np.asarray(seats_learn.any(1)), None
        self._silent = [(int(k), int(seat)) for k, seat in np.argwhere(~seats_learn)]
        if not self.learn.any():
            self._seats, self._reader, self._ahead = [], None, None
            return
        seats = [self._read_from(held, learns) for held, learns in zip(unit.players, seats_learn, strict=True)]
        if self._reader is None:
            self._gathered = 0
        if seats != self._seats:
            self._seats, self._reader = seats, unit.learner.reader(self.streams, seats)
            own = self._thread is None
            self._ahead = unit.learner.native_updates(self._reader, self.pace.batch_size or 1) if own else None

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
        for mine, agent in enumerate(self.unit.agents):
            for scheduler, k in before:
                if scheduler.unit.agents[k] is agent:
                    self._practised[mine] = scheduler._practised[k]

    def state(self) -> State:
        """Return the counts and the state of the reader."""
        reader = State() if self._reader is None else self._reader.state()
        made = State.joined(reader=reader)
        made.info |= {"gathered": self._gathered, "credit": self._credit, "updates": self.updates}
        made.info["behind"], made.arrays["practised"] = self._behind, self._practised
        return made

    def restore(self, state: State, *, memory: bool) -> None:
        """Restore what `state` returned, for the same seats; with memory=False a new rollout begins.

        Raises SaveError for impossible counts, such as more env steps than `update_freq` without an update.
        """
        self._gathered = state.count("gathered", high=(self.pace.update_freq or 1) - 1)
        self._credit, self.updates = state.value("credit", float), state.count("updates")
        if not 0 <= self._credit < 1:
            raise SaveError(f"{state.place('credit')} must be a fraction of an update, below 1, got {self._credit}")
        self._behind = state.value("behind", bool)
        practised = state.array("practised", np.int64, self._practised.shape)
        self._practised[...] = within(state.place("practised"), practised, 0, MOST_COUNTED)
        if self._reader is not None and memory:
            self._reader.restore(state.part("reader"))

    def _read_from(self, held: Array, learns: Array) -> list[int]:
        """Return the players whose rows an agent reads.

        An on-policy agent reads all its seats; its reader drops those that do not learn.
        """
        if self.shared:
            return list(self.streams.spec.groups[self.unit.group].players)
        needs = self.unit.learner.needs
        everyone = not learns.any() or (needs is not None and needs.on_policy)
        return [int(p) for p in (held if everyone else held[learns])]

    def gathered(self, steps: int) -> bool:
        """Count batch steps; return whether an update is due."""
        if isinstance(self._reader, RolloutReader):
            for agent, seat in self._silent:
                self._reader.drop(agent, seat)
        self._practised += self.num_envs * steps * (self.learn | self.shared)
        self._gathered += self.num_envs * (steps - self._counted)
        self._counted = 0
        if self._planned is not None:
            self._planned.steps += steps
        return self._gathered >= (self.pace.update_freq or 1)

    @property
    def steps_left(self) -> int:
        """Number of batch steps until the next update is due."""
        return -(-((self.pace.update_freq or 1) - self._gathered) // self.num_envs)

    def plan(self, env_steps: int, steps: int, most: int | None, unit: int) -> int:
        """Plan the updates that compiled code makes during `steps` batch steps; return the number of steps allowed.

        env_steps: env steps of the run so far.  most: see `update`.
        unit: address of the arguments of the agents' act kernel (ACT).
        """
        known = self._planned
        if known is None or not known.holds(self.unit.learner.settings_version):
            known = self._planned = self._plan(env_steps, most, unit)
        if known is None or self._ahead is None:
            return min(steps, self.steps_left)
        self._ahead.begin(known.steps)
        return min(steps, known.rounds[-1].after - known.steps)

    def _plan(self, env_steps: int, most: int | None, unit: int) -> UpdatePlan | None:
        """Return a plan of the next rounds, or None if compiled code can make none.

        The round that reaches `most` updates, and all later rounds, are left out.
        """
        ahead, left = self._ahead, self.steps_left
        if ahead is None or not ahead.possible(self.learn):
            return None
        every, gathered = -(-(self.pace.update_freq or 1) // self.num_envs), self._gathered + self.num_envs * left
        rounds: list[DueUpdates] = []
        credits: list[float] = []
        made, credit, ready = self.updates, self._credit, self._started(left)
        for after in range(left, left + MOST_PLANNED * every, every):
            then = env_steps + self.num_envs * after
            due, credit = self._due(credit, gathered) if ready.any() else (0, credit)
            made, gathered = made + due, self.num_envs * every
            if (most is not None and made >= most) or (rounds and made - self.updates > MOST_PLANNED):
                break
            if (ready != self._started(after)).any():
                break
            rounds.append(DueUpdates(after, then, due))
            credits.append(credit)
        if not rounds:
            return None
        ahead.plan(rounds, ready, self._rngs(ready), unit)
        return UpdatePlan(ready, rounds, credits, self.unit.learner.settings_version)

    @property
    def planned(self) -> int:
        """Address of the arguments of the planned updates (UPDATE); 0 without planned updates."""
        return 0 if self._ahead is None or self._planned is None else self._ahead.address

    def take(self) -> UpdateMetrics | None:
        """Count the rounds that compiled code has made and return their metrics; None if it has made none."""
        if self._ahead is None or self._planned is None:
            return None
        made, known = self._ahead.take(), self._planned
        if not made.rounds:
            return None
        known.made += len(made.rounds)
        last, updates = made.rounds[-1], len(made.measured)
        self._gathered, self._counted, self._credit = 0, last.after - known.steps, known.credits[known.made - 1]
        self.updates += updates
        learner = self.unit.learner
        learner.at(last.env_steps)
        learner.updated(known.learn, updates)
        error = None
        if made.broken:
            measured = dict(zip(made.names, made.measured[-1], strict=False))
            error = self._not_finite(measured, known.learn, self.updates, last.env_steps)
        labels = tuple(label for label, learns in zip(self.unit.labels, known.learn, strict=True) if learns)
        return UpdateMetrics(labels, made.names, made.means()[..., known.learn], error)

    def is_due(self, most: int | None = None) -> bool:
        """Return whether `update` makes at least one update now; call it when `gathered` has returned True."""
        if self._reader is None or not self._ready(self._reader).any():
            return False
        if isinstance(self._reader, RolloutReader):
            return True
        due, _ = self._due(self._credit, self._gathered)
        return due > 0 and (most is None or most > self.updates)

    def update(self, env_steps: int, most: int | None = None) -> dict[str, dict[str, float]]:
        """Make the updates that are due, at most `most` in this run; return each agent's mean metrics by label.

        With a thread, the updates are only started, and the metrics are those of the previous updates: agents act
        one update behind.
        """
        if self._made_now():
            learned = self.take()
            if learned is not None and learned.error is not None:
                raise learned.error
            return {} if learned is None else learned.by_agent()
        gathered, self._gathered, self._planned = self._gathered, 0, None
        before, reader = self.settle(), self._reader
        self.unit.learner.at(env_steps)
        if reader is None:
            return before
        ready = self._ready(reader)
        if not ready.any():
            return before
        batches = self._batches(reader, ready, gathered, most)
        if self._thread is None:
            return self._by_agent(self._rounds(batches, ready, env_steps), ready)
        passes = self.gradient_steps  # before the thread begins to count
        rounds = self._thread.submit(self._rounds, list(batches), ready, env_steps)
        self._under_way = PendingUpdates(rounds, ready, passes)
        return before

    def _made_now(self) -> bool:
        """Make the round that is due in compiled code, if it was planned; return whether it was made."""
        known, ahead = self._planned, self._ahead
        if known is None or ahead is None or not known.holds(self.unit.learner.settings_version):
            return False
        ahead.begin(known.steps)
        ahead.make()
        return True

    @property
    def gradient_steps(self) -> int:
        """Number of gradient passes of the agents, without those of updates under way."""
        if self._under_way is not None:
            return self._under_way.passes
        return int(self.unit.learner.gradient_steps.sum())

    def wait(self) -> dict[str, dict[str, float]]:
        """Wait for the updates under way and return their metrics; the agents still act with the old weights."""
        if self._under_way is None:
            return {}
        rounds, ready = self._under_way.rounds.result(), self._under_way.ready
        self._under_way, self._behind = None, True
        return self._by_agent(rounds, ready)

    def settle(self) -> dict[str, dict[str, float]]:
        """Wait for the updates under way and return their metrics; the agents act with the new weights."""
        measured = self.wait()
        if self._behind:
            self.unit.learner.renew_copies()
            self._behind = False
        return measured

    def _rest(self) -> None:
        """Wait for the updates under way; an error of theirs is not raised here."""
        if self._under_way is not None:
            wait([self._under_way.rounds])

    def _batches(
        self, reader: Reader, ready: Array, gathered: int, most: int | None
    ) -> Iterator[tuple[int, Rollout | Transitions]]:
        """Yield the number and the batch of each update that is due."""
        gammas = self.unit.learner.gammas()
        if isinstance(reader, RolloutReader):
            self.updates += 1
            yield self.updates, reader.take(gammas)
            return
        due, self._credit = self._due(self._credit, gathered)
        for _ in range(due if most is None else min(due, most - self.updates)):
            self.updates += 1
            yield self.updates, reader.sample(self._rngs(ready), gammas, self.pace.batch_size or 1)

    def _rounds(self, batches: Iterable[tuple[int, Rollout | Transitions]], ready: Array, env_steps: int) -> Rounds:
        """Make one update for each batch; raises AgentError if a loss or a gradient is not finite."""
        made = []
        for number, batch in batches:
            made.append(self.unit.learner.update(batch, learn=ready, batch_size=self.pace.batch_size or 1))
            if (error := self._not_finite(made[-1], ready, number, env_steps)) is not None:
                raise error
        return made

    def _not_finite(
        self, measured: Mapping[str, Array], ready: Array, number: int, env_steps: int
    ) -> AgentError | None:
        """Return an AgentError if a loss or a gradient of an update is not finite, else None."""
        for name, values in measured.items():
            if not name.startswith(("loss", "grad_norm")):
                continue
            broken = ready & ~np.isfinite(values)
            if np.count_nonzero(broken):
                unit, row = self.unit, int(broken.argmax())
                return AgentError(
                    f"the agent of {unit.labels[row]}: {name} became {values[row]} in update {number} (env step "
                    f"{env_steps:,}); it must be finite. "
                    f"{unit.learner.when_not_finite} Look for rewards and "
                    "observations that are very large, lower learning_rate or max_grad_norm, and go on from the last "
                    "checkpoint (train(..., resume=...)) or with the agents in best/"
                )
        return None

    def _rngs(self, ready: Array) -> list[np.random.Generator | None]:
        """Return the agents' random streams for sampling rows; None for an agent that does not learn."""
        rngs = self.unit.learner.rngs("sample")
        return [rng if on else None for rng, on in zip(rngs, ready, strict=True)]

    def _ready(self, reader: Reader) -> Array:
        """Return the agents that an update would train now, [K] bool."""
        if isinstance(reader, RolloutReader):
            return self.learn & (reader.size() >= self.pace.least_rows)
        ready: Array = self._started() & (reader.size() > 0)
        return ready

    def _started(self, steps: int = 0) -> Array:
        """Return the agents that learn and will have passed `learning_starts` in `steps` batch steps, [K] bool."""
        started: Array = self.learn & (self._practised + self.num_envs * steps >= self.pace.learning_starts)
        return started

    def _due(self, credit: float, gathered: int) -> tuple[int, float]:
        """Return the number of off-policy updates due after `gathered` env steps, and the fraction carried over."""
        credit += self.pace.update_per_step * gathered
        return int(credit), credit - int(credit)

    def _by_agent(self, rounds: Rounds, ready: Array) -> dict[str, dict[str, float]]:
        """Return the means of the metrics over the rounds, {label: {name: value}}."""
        if not rounds:
            return {}
        means = rounds[0]
        if len(rounds) > 1:
            means = {name: np.mean([r[name] for r in rounds if name in r], 0) for name in rounds[-1]}
        values = {name: mean.tolist() for name, mean in means.items()}
        return {self.unit.labels[k]: {name: value[k] for name, value in values.items()} for k in np.flatnonzero(ready)}
