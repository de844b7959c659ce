"""UpdateScheduler: when a learner updates and from which rows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import Executor, Future, wait
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from marltrain.checks import within
from marltrain.errors import AgentError, SaveError
from marltrain.files import MOST_COUNTED, State
from marltrain.layout import Array
from marltrain.policies.batch import Rollout, Transitions
from marltrain.policies.learner.update_plan import DueUpdates
from marltrain.policies.memory.readers import Reader, RolloutReader
from marltrain.policies.memory.streams import Streams
from marltrain.trainer.seats import Unit
from marltrain.trainer.updating.pace import Defaults, pace_of

if TYPE_CHECKING:
    from marltrain.policies.compiled.replay_update import CompiledUpdates

Rounds = list[dict[str, Array]]


class PendingUpdates(NamedTuple):
    """Updates that run in a thread.

    rounds: what they will have measured.  ready: [K] bool, the agents that learn.  passes: gradient passes before them.
    """

    rounds: Future[Rounds]
    ready: Array
    passes: int


MOST_PLANNED = 64
"""Maximum rounds of a plan, and updates of several rounds: it bounds the latency of a stop."""


@dataclass
class UpdatePlan:
    """Rounds that compiled code may make.

    learn: [K] bool, whose.  credits: after each, the fraction of an update that is carried over.  edition: of the
    learner, when they were planned.  steps: batch steps made since.  made: rounds.
    """

    learn: Array
    rounds: list[DueUpdates]
    credits: list[float]
    settings_version: int
    steps: int = 0
    made: int = 0

    def holds(self, settings_version: int) -> bool:
        """Whether there are more rounds, and nothing has changed since they were planned."""
        return self.made < len(self.rounds) and self.settings_version == settings_version


class UpdateMetrics(NamedTuple):
    """What rounds of updates measured: labels of agents [K], names of metrics [M], values [R, M, K] float64."""

    labels: tuple[str, ...]
    names: tuple[str, ...]
    values: Array

    def by_agent(self) -> dict[str, dict[str, float]]:
        """Return the means over the rounds, {label: {name: value}}."""
        means = self.values.mean(0).T.tolist()
        return {label: dict(zip(self.names, row, strict=True)) for label, row in zip(self.labels, means, strict=True)}


class UpdateScheduler:
    """One unit's learning. It owns the reader and the counts since the last update; the learner owns the rest."""

    def __init__(
        self, unit: Unit, streams: Streams, num_envs: int, defaults: Defaults, thread: Executor | None = None
    ) -> None:
        """Start with nobody learning; `learning` says who does. thread: updates run in it, while the loop collects."""
        self.unit, self.streams, self.num_envs = unit, streams, num_envs
        self.pace = pace_of(unit, defaults)
        self.shared = defaults.shared_memory
        self.learn = np.zeros(len(unit.agents), bool)
        self._silent: list[tuple[int, int]] = []
        self._seats: list[list[int]] = []
        self._reader: Reader | None = None
        self._gathered, self._credit = 0, 0.0
        self._practised = np.zeros(len(unit.agents), np.int64)  # env steps of this run that each may learn from
        self._counted = 0  # batch steps of the last call that `take` has counted
        self.updates = 0
        self._ahead: CompiledUpdates | None = None
        self._planned: UpdatePlan | None = None
        self._thread = thread
        self._under_way: PendingUpdates | None = None
        self._behind = False
        if thread is not None:
            unit.learner.act_with_copies(" and ".join(unit.labels), self._rest)

    def learning(self, mask: Array) -> None:
        """Say which players learn, [P] bool; an open rollout of a seat that stops is dropped."""
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
        """Count on from an earlier call's updates; an agent that has the same memory as then has started as far."""
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
        """Return the counts, and what the reader remembers."""
        reader = State() if self._reader is None else self._reader.state()
        made = State.joined(reader=reader)
        made.info |= {"gathered": self._gathered, "credit": self._credit, "updates": self.updates}
        made.info["behind"], made.arrays["practised"] = self._behind, self._practised
        return made

    def restore(self, state: State, *, memory: bool) -> None:
        """Go on where `state` was asked, with the same seats; without its memory a rollout begins anew.

        Raises SaveError for counts that no updates lead to: an update is due, and made, when enough has gathered.
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
        """Return the players that one agent reads; on-policy all it holds: its reader drops those that do not learn."""
        if self.shared:
            return list(self.streams.spec.groups[self.unit.group].players)
        needs = self.unit.learner.needs
        everyone = not learns.any() or (needs is not None and needs.on_policy)
        return [int(p) for p in (held if everyone else held[learns])]

    def gathered(self, steps: int) -> bool:
        """Count batch steps; say whether an update is due."""
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
        """Batch steps until the next update is due."""
        return -(-((self.pace.update_freq or 1) - self._gathered) // self.num_envs)

    def plan(self, env_steps: int, steps: int, most: int | None, unit: int) -> int:
        """Plan the updates that compiled code makes amid `steps` batch steps; return how many steps it may make.

        env_steps: of the run so far.  most: see `update`.  unit: where the agents' acts are told of.
        """
        known = self._planned
        if known is None or not known.holds(self.unit.learner.settings_version):
            known = self._planned = self._plan(env_steps, most, unit)
        if known is None or self._ahead is None:
            return min(steps, self.steps_left)
        self._ahead.begin(known.steps)
        return min(steps, known.rounds[-1].after - known.steps)

    def _plan(self, env_steps: int, most: int | None, unit: int) -> UpdatePlan | None:
        """Plan the next rounds, those left out that bring the updates to `most`; None where there are none to plan."""
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
        """Where compiled code is told of the updates that are planned; 0 where none are."""
        return 0 if self._ahead is None or self._planned is None else self._ahead.address

    def take(self) -> tuple[UpdateMetrics | None, AgentError | None]:
        """Count the rounds that compiled code has made; return what they measured, and what `update` would raise."""
        if self._ahead is None or self._planned is None:
            return None, None
        made, known = self._ahead.take(), self._planned
        if not made.rounds:
            return None, None
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
        values = made.means()
        if not len(values):
            return None, error
        labels = tuple(label for label, learns in zip(self.unit.labels, known.learn, strict=True) if learns)
        return UpdateMetrics(labels, made.names, values[..., known.learn]), error

    def is_due(self, most: int | None = None) -> bool:
        """Say whether `update` makes any update now, once an update is due."""
        if self._reader is None or not self._ready(self._reader).any():
            return False
        if isinstance(self._reader, RolloutReader):
            return True
        due, _ = self._due(self._credit, self._gathered)
        return due > 0 and (most is None or most > self.updates)

    def update(self, env_steps: int, most: int | None = None) -> dict[str, dict[str, float]]:
        """Make the updates that are due, at most `most` in this run; return each agent's mean metrics by label.

        With a thread they are begun, and the metrics are those of the updates before: agents act one update behind.
        """
        if self._made_now():
            learned, error = self.take()
            if error is not None:
                raise error
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
        """Have compiled code make the round that is due, if it was planned; say whether it did."""
        known, ahead = self._planned, self._ahead
        if known is None or ahead is None or not known.holds(self.unit.learner.settings_version):
            return False
        ahead.begin(known.steps)
        ahead.make()
        return True

    @property
    def gradient_steps(self) -> int:
        """The gradient passes of its agents, those of updates under way left out."""
        if self._under_way is not None:
            return self._under_way.passes
        return int(self.unit.learner.gradient_steps.sum())

    def wait(self) -> dict[str, dict[str, float]]:
        """Wait for the updates under way and return what they measured; the agents go on acting as they did."""
        if self._under_way is None:
            return {}
        rounds, ready = self._under_way.rounds.result(), self._under_way.ready
        self._under_way, self._behind = None, True
        return self._by_agent(rounds, ready)

    def settle(self) -> dict[str, dict[str, float]]:
        """Wait for the updates under way, let the agents act by them, and return what they measured."""
        measured = self.wait()
        if self._behind:
            self.unit.learner.renew_copies()
            self._behind = False
        return measured

    def _rest(self) -> None:
        """Wait for the updates under way, whatever comes of them."""
        if self._under_way is not None:
            wait([self._under_way.rounds])

    def _batches(
        self, reader: Reader, ready: Array, gathered: int, most: int | None
    ) -> Iterator[tuple[int, Rollout | Transitions]]:
        """Yield the number of each update that is due, and what it learns from."""
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
        """Make an update of each batch; raises AgentError where a loss or a gradient is not finite."""
        made = []
        for number, batch in batches:
            made.append(self.unit.learner.update(batch, learn=ready, batch_size=self.pace.batch_size or 1))
            if (error := self._not_finite(made[-1], ready, number, env_steps)) is not None:
                raise error
        return made

    def _not_finite(
        self, measured: Mapping[str, Array], ready: Array, number: int, env_steps: int
    ) -> AgentError | None:
        """Return what to raise where a loss or a gradient of an update is not finite."""
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
        """Return the streams that rows are sampled with; none for an agent that does not learn."""
        rngs = self.unit.learner.rngs("sample")
        return [rng if on else None for rng, on in zip(rngs, ready, strict=True)]

    def _ready(self, reader: Reader) -> Array:
        """Return which agents an update moves now, [K] bool."""
        if isinstance(reader, RolloutReader):
            return self.learn & (reader.size() >= self.pace.least_rows)
        ready: Array = self._started() & (reader.size() > 0)
        return ready

    def _started(self, steps: int = 0) -> Array:
        """Return which agents learn and have passed `learning_starts` (off-policy) `steps` batch steps ahead, [K]."""
        started: Array = self.learn & (self._practised + self.num_envs * steps >= self.pace.learning_starts)
        return started

    def _due(self, credit: float, gathered: int) -> tuple[int, float]:
        """Return how many off-policy updates the gathered env steps pay for, and the fraction that is carried over."""
        credit += self.pace.update_per_step * gathered
        return int(credit), credit - int(credit)

    def _by_agent(self, rounds: Rounds, ready: Array) -> dict[str, dict[str, float]]:
        if not rounds:
            return {}
        means = rounds[0]
        if len(rounds) > 1:
            means = {name: np.mean([r[name] for r in rounds if name in r], 0) for name in rounds[-1]}
        values = {name: mean.tolist() for name, mean in means.items()}
        return {self.unit.labels[k]: {name: value[k] for name, value in values.items()} for k in np.flatnonzero(ready)}
