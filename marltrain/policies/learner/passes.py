"""The gradient passes of an update: phases over epochs and minibatches, in turns of agents; means of their metrics."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from marltrain.core.layout import Array
from marltrain.policies.backends.base import Backend
from marltrain.policies.backends.shapes import rounded_up
from marltrain.policies.backends.started import Started
from marltrain.policies.batches.batch import Rollout, TeamRollout
from marltrain.policies.hyperparameters.stacked import StackedHyperparameters
from marltrain.policies.interface.joint import Team
from marltrain.policies.learner.gradient_pass import GradientPass
from marltrain.policies.learner.gradient_steps import GradientSteps, due_of
from marltrain.policies.learner.learner import UpdateSchedule
from marltrain.policies.learner.minibatches import Dealt, Minibatches
from marltrain.policies.learner.phase_draws import PhaseDraws
from marltrain.policies.learner.team_minibatches import present_in, team_minibatches
from marltrain.policies.learner.trained_team import ALONE, OF_TEAM, Columns, Stack

if TYPE_CHECKING:  # loads numba
    from marltrain.policies.learner.programs.rollout_steps import RolloutSteps


class MeanMetrics:
    """Running means of metrics [K] over gradient steps; each agent's mean covers only its active steps."""

    def __init__(self, backend: Backend) -> None:
        """Start without values."""
        self.backend = backend
        self.seen: dict[Any, list[tuple[Any, Array]]] = {}  # step -> metrics and active agents [n, K] of n steps
        self._under_way: list[tuple[Started, list[tuple[Any, int]]]] = []  # passes, and the places of their steps

    def add(self, step: Any, values: Any, active: Array) -> None:
        """Add the metrics [M, K] of one step, a tensor or an array; only agents where `active` [K] is True count."""
        self.seen.setdefault(step, []).append((values, active[None]))

    def add_pass(self, started: Started | None, made: Sequence[tuple[Any, Array]]) -> None:
        """Add the metrics of the steps of a pass that has been started; they are read by `last` and `result`.

        made: (step, active [K] bool), whose metrics [M, K] follow one another; none without a pass.
        """
        if started is not None:
            self._under_way.append((started, [(step, len(self.seen.get(step, ()))) for step, _ in made]))
            for step, active in made:
                self.add(step, None, active)

    def add_steps(self, step: Any, values: Array, active: Array) -> None:
        """Add the metrics [P, M, K] of P steps; those without an `active` agent, [P, K], are left out."""
        made = active.any(1)
        if np.count_nonzero(made):
            self.seen.setdefault(step, []).append((values[made], active[made]))

    def _read(self) -> None:
        """Read the metrics that are still on the device: those of passes, and all others at once."""
        for started, places in self._under_way:
            values, start = started.result(), 0
            for step, i in places:
                end = start + len(step.metrics)
                self.seen[step][i] = values[start:end], self.seen[step][i][1]
                start = end
        self._under_way = []
        tensors = {
            f"{n} {i}": values
            for n, seen in enumerate(self.seen.values())
            for i, (values, _) in enumerate(seen)
            if not isinstance(values, np.ndarray)
        }
        if tensors:
            arrays = self.backend.arrays(tensors)
            for n, (step, seen) in enumerate(self.seen.items()):
                self.seen[step] = [(arrays.get(f"{n} {i}", v), active) for i, (v, active) in enumerate(seen)]

    def last(self) -> dict[str, Array]:
        """Return the metrics [K] of each phase's last step."""
        self._read()
        return {
            name: values
            for step, seen in self.seen.items()
            for name, values in zip(step.metrics, self._of_steps(*seen[-1])[-1], strict=True)
        }

    def result(self) -> dict[str, Array]:
        """Return the means [K]; NaN for an agent without an active step."""
        self._read()
        means_by_name: dict[str, Array] = {}
        for step, seen in self.seen.items():
            one, active = seen[0]
            if len(seen) == len(active) == 1 and np.count_nonzero(active) == active.size:  # the usual off-policy case
                means = self._of_steps(one, active)[0].astype(np.float64)
                means_by_name.update(zip(step.metrics, means, strict=True))
                continue
            values = np.concatenate([self._of_steps(*each) for each in seen]).astype(np.float64)
            active = np.concatenate([active for _, active in seen])[:, None]
            total, count = np.where(active, values, 0.0).sum(0), active.sum(0)
            means = np.where(count > 0, total / np.maximum(count, 1), np.nan)
            means_by_name.update(zip(step.metrics, means, strict=True))
        return means_by_name

    def _of_steps(self, values: Array, active: Array) -> Array:
        """Return metrics that have been read as an array [n, M, K]."""
        return values.reshape(len(active), -1, active.shape[1])

    def skipped(self, learn: Array) -> dict[str, Array]:
        """Return the agents that learn, but had no active step of a phase: metric name -> [K] bool.

        The phase is delayed (`Phase.every`), or the agent has no row in the batch.
        """
        missed: dict[str, Array] = {}
        for step, seen in self.seen.items():
            absent = learn
            for _, active in seen:
                absent = absent & ~(active[0] if len(active) == 1 else active.any(0))
            if np.count_nonzero(absent):
                missed.update(dict.fromkeys(step.metrics, absent))
        return missed


class Learning(Stack, Protocol):
    """K agents with stacked networks that passes train.

    gradient_steps: [K] int64, gradient steps so far; every pass adds to it.
    draws: the random numbers of the phases.
    """

    hyper: StackedHyperparameters
    gradient_steps: Array
    draws: PhaseDraws

    def rngs(self, purpose: str) -> list[np.random.Generator]:
        """Return K generators."""


class Passes:
    """Runs the gradient steps of a team, with the random numbers of its phases."""

    def __init__(self, members: Sequence[Learning], steps: GradientSteps) -> None:
        """Store the members of the team of `steps`."""
        self.members, self.steps = dict(zip(steps.team.members, members, strict=True)), steps
        self.team, self.backend = steps.team, steps.team.backend
        self._block, self._draws = self.team.algorithm.needs().block or 1, any(bool(member.draws) for member in members)

    def solve(self, columns: Columns, learn: Array, updates: Array, metrics: MeanMetrics) -> None:
        """Run the phases that solve for a natural gradient, on all rows.  updates: [K], numbers of earlier updates."""
        for step in self.steps.solving:
            self._step(step, columns, due_of(step.phase, learn, updates), metrics)

    def run(
        self, batch: Any, columns: Columns, learn: Array, schedule: UpdateSchedule, batch_size: int,
        metrics: MeanMetrics,
    ) -> None:  # fmt: skip
        """Make the passes of an update.

        columns: of all rows.  learn: [K] bool.  batch_size: of minibatches, where the schedule has none.
        All agents make their passes at once; those of a phase with `turns`, one turn after another.
        """
        grouped = [(turns, list(steps)) for turns, steps in groupby(self.steps, key=lambda step: step.phase.turns)]
        for turns, phases in grouped or [(None, [])]:
            for active in [learn] if turns is None else turns(self._rng(), len(learn)) & learn:
                if not self._at_once(batch, phases, columns, active, schedule, batch_size, metrics):
                    self._over(batch, phases, columns, active, schedule, batch_size, metrics)
                if turns is not None:
                    columns[OF_TEAM] |= self._after_turn(columns, active)

    def whole(self, make: GradientPass, columns: Columns, learn: Array, share: Array, metrics: MeanMetrics) -> None:
        """Make a pass over transitions, and move the target networks by `share` [K], in a single call."""
        counts = self.team.counts_of(learn, self._counts())
        due = [due_of(step.phase, learn, counts) for step in make.steps]
        draws = self.members[ALONE].draws
        rows = np.asarray(self.backend.numpy(columns[ALONE]["weight"])) > 0 if draws else None

        def drawn(step: Any, due: Array) -> Mapping[str, Any]:
            if rows is None or step.number not in draws:
                return {}
            return self.backend.argument(draws.of_phase(step.number, rows & due[:, None]))

        metrics.add_pass(*make(columns, self._numbers(), due, share, drawn))
        self._count(learn)

    def _over(
        self, batch: Any, phases: Sequence[Any], columns: Columns, learn: Array, schedule: UpdateSchedule,
        batch_size: int, metrics: MeanMetrics,
    ) -> None:  # fmt: skip
        """Run some phases over all minibatches, for the agents that learn."""
        ends = self.team.algorithm.ends_update
        for rows, present in self._minibatches(batch, columns, schedule, batch_size):
            active = learn & present
            for step in phases:
                self._step(step, rows, self._due(step, active), metrics)
            self._count(active)
            if ends is not None and np.count_nonzero(active):
                learn = learn & ~(active & ends(metrics.last(), self.members[ALONE].hyper.values))

    def _minibatches(
        self, batch: Any, columns: Columns, schedule: UpdateSchedule, batch_size: int
    ) -> Iterator[tuple[Columns, Array]]:
        """Yield the columns of each minibatch, and the agents that have rows in it, [K] bool."""
        if self.team.is_joint:
            yield from team_minibatches(self.team, batch, columns, schedule, self._rng())
        elif isinstance(batch, Rollout):
            width = rounded_up if self.backend.jit_compile else int
            cut = self._cut(batch, schedule, batch_size, width, self._block)
            rows, rngs = _without_weight(columns[ALONE]), self.members[ALONE].rngs("update")
            for dealt, present in cut.epochs(schedule.epochs, rngs, rows, self.backend):
                yield {ALONE: dealt}, present
        else:
            yield columns, np.ones(self.team.num_agents, bool)

    def _step(self, step: Any, columns: Columns, due: Array, metrics: MeanMetrics) -> None:
        """Make a gradient step for the agents where `due` [K] is True; none if there are none."""
        if np.count_nonzero(due):
            drawn = self._drawn(step, columns, due)
            given = {key: {**own, **drawn.get(key, {})} for key, own in columns.items()} if drawn else columns
            metrics.add(step, step(given, self._numbers(), due), due)

    def _due(self, step: Any, active: Array) -> Array:
        """Return the agents for which a step is due, of those that are `active`, [K] bool."""
        return due_of(step.phase, active, self.team.counts_of(active, self._counts()))

    def _drawn(self, step: Any, columns: Columns, due: Array) -> dict[str, Any]:
        """Return random numbers of a step for the rows of each member, as arguments, from the agents' generators.

        Agents alone draw for their own rows; the rows of a team are drawn for together.
        """
        result: dict[str, Any] = {}
        if not self._draws:
            return result
        own = self.team.by_member(due)
        for key, member in self.members.items():
            if step.number in member.draws:
                weight = np.asarray(self.backend.numpy(columns[key]["weight"]))
                rows = np.ones(weight.shape, bool) if self.team.is_joint else (weight > 0) & own[key][:, None]
                result[key] = self.backend.argument(member.draws.of_phase(step.number, rows))
        return result

    def _at_once(
        self, batch: Any, phases: Sequence[Any], columns: Columns, learn: Array, schedule: UpdateSchedule,
        batch_size: int, metrics: MeanMetrics,
    ) -> bool:  # fmt: skip
        """Make all gradient steps of some phases over a rollout in a single call; return False if they cannot be made.

        See `RolloutSteps`.
        """
        if (made := self.steps.over_rollouts) is None:
            return False
        if isinstance(batch, TeamRollout):
            return self._of_team_at_once(made, batch, phases, columns, learn, schedule, metrics)
        if not isinstance(batch, Rollout):
            return False
        given, member = {ALONE: _without_weight(columns[ALONE])}, self.members[ALONE]
        cut = self._cut(batch, schedule, batch_size, made.blocks.width, made.blocks.unit, even=True)
        present = np.concatenate([cut.present()] * schedule.epochs)
        if (found := made.programs(phases, given, cut.rows, member.draws.example)) is None:
            return False
        active, due = self._due_in(phases, learn & present)
        dealt, drawn = self._dealt(cut, schedule.epochs, due)
        self._add(phases, made.of_agents(found, given, dealt, drawn, self._numbers(), due), due, metrics)
        ends = self.team.algorithm.ends_update
        self._count((active if ends is None else due[:, 0]).sum(0))
        return True

    def _of_team_at_once(
        self, made: RolloutSteps, batch: TeamRollout, phases: Sequence[Any], columns: Columns, learn: Array,
        schedule: UpdateSchedule, metrics: MeanMetrics,
    ) -> bool:  # fmt: skip
        """Do the same as `_at_once` for a team, whose minibatches must have equal numbers of rows."""
        parts, rng, several = [columns], self._rng(), schedule.minibatches not in (None, 1)
        before, present = rng.bit_generator.state, np.stack([present_in(batch)] * schedule.epochs)
        if several:
            steps = np.count_nonzero(batch.weight[0] > 0)
            if not steps or steps % (schedule.minibatches or 1):
                return False
            minibatches = list(team_minibatches(self.team, batch, columns, schedule, rng))
            parts, present = [part for part, _ in minibatches], np.stack([own for _, own in minibatches])
        if (found := made.programs_of_team(phases, parts[0], several=several)) is None:
            rng.bit_generator.state = before
            return False
        active, due = self._due_in(phases, learn & present)
        self._add(phases, made.of_team(found, parts, self._numbers(), due), due, metrics)
        self._count(active.sum(0))
        return True

    def _due_in(self, phases: Sequence[Any], active: Array) -> tuple[Array, Array]:
        """Return the agents that are `active` [P, K] in passes, and those for which phases are due, [P, F, K] bool."""
        if all(step.phase.every == 1 for step in phases):
            return active, active[:, None].repeat(len(phases), 1)
        counts = self.team.counts_of(active, self._counts() + active.cumsum(0) - active)
        return active, np.stack([due_of(step.phase, active, counts) for step in phases], 1)

    def _add(self, phases: Sequence[Any], measured: Sequence[Array], due: Array, metrics: MeanMetrics) -> None:
        """Add the metrics [P, M, K] of the passes of each phase.  due: [P, F, K] bool."""
        for f, (step, values) in enumerate(zip(phases, measured, strict=True)):
            metrics.add_steps(step, values, due[:, f])

    def _dealt(self, cut: Minibatches, epochs: int, due: Array) -> tuple[Dealt, dict[int, dict[str, Any]]]:
        """Deal a rollout, and draw the random numbers of phases, with the numbers of steps that are made one by one.

        due: [P, F, K] bool.  Returns the minibatches, and arrays [P, K, W, ...] by the numbers of the phases.
        """
        member, made = self.members[ALONE], dict[int, dict[str, Any]]()
        if not member.draws:
            return cut.dealt(epochs, member.rngs("update")), made
        parts = []
        for epoch, own in enumerate(np.split(due, epochs)):
            dealt = cut.dealt(1, member.rngs("update"))
            for i, each in enumerate(own):
                member.draws.add(made, dealt.weight[:, i] > 0, each, epoch * len(own) + i, len(due))
            parts.append(dealt)
        index, weight = (np.concatenate([getattr(part, name) for part in parts], 1) for name in ("index", "weight"))
        return Dealt(index, weight, np.concatenate([part.rows for part in parts])), made

    def _cut(
        self, batch: Rollout, schedule: UpdateSchedule, batch_size: int, width: Callable[[int], int], block: int,
        *, even: bool = False,
    ) -> Minibatches:  # fmt: skip
        """Return the minibatches of a rollout.  width, block, even: see there."""
        size = schedule.batch_size or batch_size
        return Minibatches(
            batch.weight, schedule.minibatches, size, width=width, block=block, even=even,
            threads=(self.team.threads, self.backend.threads()),
        )  # fmt: skip

    def _numbers(self) -> dict[str, Any]:
        """Return the hyperparameters of each member, [H, K_i, 1], as arguments."""
        return {key: member.hyper.stacked() for key, member in self.members.items()}

    def _counts(self) -> Array:
        """Return the numbers of gradient steps of all agents, [K]."""
        return np.concatenate([member.gradient_steps for member in self.members.values()])

    def _count(self, steps: Array) -> None:
        """Add gradient steps of all agents, [K] int or bool."""
        for key, own in self.team.by_member(steps).items():
            self.members[key].gradient_steps += own

    def _rng(self) -> np.random.Generator:
        """Return the generator of the team: that of its first agent."""
        return self.members[ALONE].rngs("update")[0]

    def in_pass(self, columns: Columns) -> Team:
        """Return the team with rows and the present weights, as `JointAlgorithm.prepare_team` gets it."""
        hyper = {key: member.hyper.tensors() for key, member in self.members.items()}
        return self.team.in_pass(self.backend.ops, self.team.nets, columns, hyper)

    def _after_turn(self, columns: Columns, active: Array) -> dict[str, Any]:
        """Return the columns of the team that its algorithm computes after the turn of some agents, [K] bool."""
        learned = [self.backend.tensor(own) for own in self.team.by_member(active).values()]
        with self.backend.no_gradient():
            changed: dict[str, Any] = self.team.algorithm.after_turn(  # type: ignore[attr-defined]
                self.backend.ops, self.in_pass(columns), learned
            )
        return changed


def _without_weight(columns: Mapping[str, Any]) -> dict[str, Any]:
    return {name: column for name, column in columns.items() if name != "weight"}
