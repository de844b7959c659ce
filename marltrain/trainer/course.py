"""When a unit learns and from what: its reader, how many env steps have gathered, and the updates that are due."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from concurrent.futures import Executor, Future, wait
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from marltrain.errors import AgentError, ConfigError
from marltrain.files import State
from marltrain.layout import Array
from marltrain.policies.batch import Column, Rollout, Transitions
from marltrain.policies.learner import Pace
from marltrain.policies.memory.readers import Reader, RolloutReader
from marltrain.policies.memory.streams import Plan, Streams
from marltrain.random import restored, state_of
from marltrain.spec import EnvSpec
from marltrain.trainer.roster import Unit

Rounds = list[dict[str, Array]]


@dataclass(frozen=True)
class Defaults:
    """The trainer's values, for learners that set none of their own."""

    batch_size: int
    update_freq: int
    shared_memory: bool


def pace_of(unit: Unit, defaults: Defaults) -> Pace:
    """Return a unit's pace with the trainer's values filled in."""
    own = unit.learner.pace
    return replace(own, update_freq=own.update_freq or defaults.update_freq,
                   batch_size=own.batch_size or defaults.batch_size)  # fmt: skip


def check_pace(unit: Unit, spec: EnvSpec, num_envs: int, defaults: Defaults) -> None:
    """Raise ConfigError for a batch larger than a rollout of fixed size, or on-policy learners sharing memory."""
    needs, pace, who = unit.learner.needs, pace_of(unit, defaults), " and ".join(unit.labels)
    if needs is None or not needs.on_policy or unit.frozen.all():
        return
    if defaults.shared_memory:
        raise ConfigError(
            f"shared_memory=True, but the agent of {who} learns on-policy: what others did is not its own behaviour. "
            "Share memory among off-policy agents (DQN), or one agent between the seats"
        )
    if spec.turn_based:
        return
    asked = "batch_size" if pace.minibatches is None else "minibatches"
    held = unit.players.shape[1]
    value, rows = getattr(pace, asked), _batch_steps(pace, num_envs) * num_envs * held
    if value > rows:
        seats = f" x {held} seats" if held > 1 else ""
        raise ConfigError(
            f"{asked}={value} exceeds one rollout of the agent of {who}: {_batch_steps(pace, num_envs)} batch steps x "
            f"{num_envs} environments{seats} = {rows} rows. Raise update_freq (now {pace.update_freq} env steps) or "
            f"lower {asked}"
        )


def _batch_steps(pace: Pace, num_envs: int) -> int:
    return -(-(pace.update_freq or 1) // num_envs)


def plans_for(units: list[Unit], spec: EnvSpec, num_envs: int, defaults: Defaults) -> dict[int, Plan]:
    """Return what the streams must keep of each group that a learner may read: the most that any of them needs."""
    rows: dict[int, int] = {}
    columns: dict[int, dict[str, Column]] = {}
    for unit in units:
        needs, pace = unit.learner.needs, pace_of(unit, defaults)
        if needs is None or unit.frozen.all():
            continue
        slack = len(spec.players) if spec.turn_based else 0  # a row stays open while the others move
        kept = _batch_steps(pace, num_envs) if needs.on_policy else -(-needs.capacity // num_envs)
        rows[unit.group] = max(rows.get(unit.group, 0), kept + 1 + slack)
        known = columns.setdefault(unit.group, {})
        for name, column in needs.columns.items():
            if known.setdefault(name, column) != column:
                raise ConfigError(
                    f"the agents of {' and '.join(unit.labels)} keep {name!r} as {column}, others of equal spaces as "
                    f"{known[name]}: give the two another name each"
                )
    return {group: Plan(rows[group], columns[group]) for group in rows}


class UnderWay(NamedTuple):
    """Updates that run in a thread.

    rounds: what they will have measured.  ready: [K] bool, the agents that learn.  passes: gradient passes before them.
    """

    rounds: Future[Rounds]
    ready: Array
    passes: int


class Course:
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
        self._idle = np.random.default_rng(0)
        self._gathered, self._credit = 0, 0.0
        self.updates = 0
        self._thread = thread
        self._under_way: UnderWay | None = None
        self._behind = False
        if thread is not None:
            unit.learner.apart(" and ".join(unit.labels), self._rest)

    def learning(self, mask: Array) -> None:
        """Say which players learn, [P] bool; an open rollout of a seat that stops is dropped."""
        unit = self.unit
        seats_learn: Array = mask[unit.players] & ~unit.frozen[:, None]
        self.learn = np.asarray(seats_learn.any(1))
        self._silent = [(int(k), int(seat)) for k, seat in np.argwhere(~seats_learn)]
        if not self.learn.any():
            self._seats, self._reader = [], None
            return
        seats = [self._read_from(held, learns) for held, learns in zip(unit.players, seats_learn, strict=True)]
        if self._reader is None:
            self._gathered = 0
        if seats != self._seats:
            self._seats, self._reader = seats, unit.learner.reader(self.streams, seats)

    def state(self) -> State:
        """Return the counts, and what the reader remembers."""
        reader = State() if self._reader is None else self._reader.state()
        made = State.joined(reader=reader)
        made.info |= {"gathered": self._gathered, "credit": self._credit, "updates": self.updates}
        made.info |= {"idle": state_of(self._idle), "behind": self._behind}
        return made

    def restore(self, state: State, *, memory: bool) -> None:
        """Go on where `state` was asked, with the same seats; without its memory a rollout begins anew."""
        info = state.info
        self._gathered, self._credit, self.updates = info["gathered"], info["credit"], info["updates"]
        self._idle, self._behind = restored(info["idle"]), info["behind"]
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
        self._gathered += self.num_envs * steps
        return self._gathered >= (self.pace.update_freq or 1)

    @property
    def steps_left(self) -> int:
        """Batch steps until the next update is due."""
        return -(-((self.pace.update_freq or 1) - self._gathered) // self.num_envs)

    def update(self, env_steps: int, most: int | None = None) -> dict[str, dict[str, float]]:
        """Make the updates that are due, at most `most` in this run; return each agent's mean metrics by label.

        With a thread they are begun, and the metrics are those of the updates before: agents act one update behind.
        """
        gathered, self._gathered = self._gathered, 0
        before, reader = self.settle(), self._reader
        self.unit.learner.at(env_steps)
        if reader is None:
            return before
        ready = self.learn & (reader.size() > 0)
        if not ready.any():
            return before
        batches = self._batches(reader, ready, gathered, env_steps, most)
        if self._thread is None:
            return self._by_agent(self._rounds(batches, ready, env_steps), ready)
        passes = self.gradient_steps  # before the thread begins to count
        rounds = self._thread.submit(self._rounds, list(batches), ready, env_steps)
        self._under_way = UnderWay(rounds, ready, passes)
        return before

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
            self.unit.learner.catch_up()
            self._behind = False
        return measured

    def _rest(self) -> None:
        """Wait for the updates under way, whatever comes of them."""
        if self._under_way is not None:
            wait([self._under_way.rounds])

    def _batches(
        self, reader: Reader, ready: Array, gathered: int, env_steps: int, most: int | None
    ) -> Iterator[tuple[int, Rollout | Transitions]]:
        """Yield the number of each update that is due, and what it learns from."""
        gammas = self.unit.learner.gammas()
        if isinstance(reader, RolloutReader):
            self.updates += 1
            yield self.updates, reader.take(gammas)
            return
        due = self._due(gathered, env_steps)
        for _ in range(due if most is None else min(due, most - self.updates)):
            self.updates += 1
            yield self.updates, reader.sample(self._rngs(ready), gammas, self.pace.batch_size or 1)

    def _rounds(self, batches: Iterable[tuple[int, Rollout | Transitions]], ready: Array, env_steps: int) -> Rounds:
        """Make an update of each batch; raises AgentError where a loss or a gradient is not finite."""
        made = []
        for number, batch in batches:
            made.append(self.unit.learner.update(batch, learn=ready, batch_size=self.pace.batch_size or 1))
            self._check_finite(made[-1], ready, f"update {number} (env step {env_steps:,})")
        return made

    def _check_finite(self, measured: dict[str, Array], ready: Array, where: str) -> None:
        for name, values in measured.items():
            if not name.startswith(("loss", "grad_norm")):
                continue
            broken = ready & ~np.isfinite(values)
            if np.count_nonzero(broken):
                unit, row = self.unit, int(broken.argmax())
                raise AgentError(
                    f"the agent of {unit.labels[row]}: {name} became {values[row]} in {where}; it must be finite. "
                    f"{unit.learner.when_not_finite} Look for rewards and "
                    "observations that are very large, lower learning_rate or max_grad_norm, and go on from the last "
                    "checkpoint (train(..., resume=...)) or with the agents in best/"
                )

    def _rngs(self, ready: Array) -> list[np.random.Generator]:
        """Return the streams that rows are sampled with: an agent that does not learn moves none of its own."""
        rngs = self.unit.learner.rngs("sample")
        return [rng if on else self._idle for rng, on in zip(rngs, ready, strict=True)]

    def _due(self, gathered: int, env_steps: int) -> int:
        """Return how many off-policy updates the gathered env steps pay for; the fraction is carried over."""
        if env_steps < self.pace.learning_starts:
            return 0
        self._credit += self.pace.update_per_step * gathered
        due = int(self._credit)
        self._credit -= due
        return due

    def _by_agent(self, rounds: Rounds, ready: Array) -> dict[str, dict[str, float]]:
        if not rounds:
            return {}
        means = rounds[0]
        if len(rounds) > 1:
            means = {name: np.mean([r[name] for r in rounds if name in r], 0) for name in rounds[-1]}
        values = {name: mean.tolist() for name, mean in means.items()}
        return {self.unit.labels[k]: {name: value[k] for name, value in values.items()} for k in np.flatnonzero(ready)}
