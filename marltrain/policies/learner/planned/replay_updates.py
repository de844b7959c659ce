"""Planned updates of agents that learn alone, from a replay buffer."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np

from marltrain.core.layout import Array
from marltrain.jit.compiling import compiled, program
from marltrain.jit.views import address_of, call, copy, entry, f32, f64, i64, next_double, record_at
from marltrain.policies.batches.batch import Transitions
from marltrain.policies.batches.tensor_batch import shares_of
from marltrain.policies.compiled.reward_kernel import SCALING
from marltrain.policies.learner.planned.planned_updates import PlannedLearner, PlannedUpdates
from marltrain.policies.learner.planned.rounds_kernel import ROUNDS, of_round, rounds_at, scale_drawn
from marltrain.policies.learner.programs.program_steps import ProgramSteps
from marltrain.policies.learner.reward_scaling import RewardScaling
from marltrain.policies.learner.trained_team import ALONE, Columns
from marltrain.policies.memory.compiled.priority_kernel import (
    PRIORITIES,
    draw_rows,
    follow_ring,
    set_priorities,
    share_out,
    trees_at,
)
from marltrain.policies.memory.compiled.replay_kernel import READING, Draws, draw, read, reading_at
from marltrain.policies.memory.priorities import PrioritizedChoice
from marltrain.policies.memory.readers import UniformReader

_ONE = (
    "reading",  # address of a READING
    "trees", "beta",  # address of PRIORITIES, or 0 (uniform draws); float64 [R, K]
    "random", "chosen", "importance",  # work arrays of draws by priorities: float64, int64 and float32 [K, B]
    "weight", "scale", "errors",  # columns that they write, [K, B] and [K]; errors [K, B] that they read
    "draw_kept", "kept",  # address of `reservoir_kernel.draw_kept`; of a KEPT, or 0: there is no reservoir
)  # fmt: skip
DRAWING = np.dtype([(name, np.int64) for name in _ONE])
"""Arguments of `draw_transitions` and `learn_priorities`, beside ROUNDS: numbers and addresses."""


class ReplayUpdates(PlannedUpdates):
    """The updates of agents alone with a reader of transitions for which `reads` is true."""

    def __init__(
        self, learner: PlannedLearner, steps: ProgramSteps, reader: UniformReader, rewards: RewardScaling,
        batch_size: int,
    ) -> None:  # fmt: skip
        """Write the constant fields of the arguments."""
        self._choice = reader.choice
        self._drawing = np.zeros(1, DRAWING)
        super().__init__(learner, steps, reader, rewards, batch_size, draw_program)
        self._draws = Draws(reader, self._reading)
        self._record["drawing"] = address_of(self._drawing)
        self._drawing["reading"] = self._reading.address
        if isinstance(self._choice, PrioritizedChoice):
            self._drawing["trees"] = self._choice.address

    def resize(self, batch_size: int) -> None:
        """See `PlannedUpdates`."""
        super().resize(batch_size)
        shape = self.learner.num_agents, batch_size
        self._rows = self._new_rows(*shape)
        self._rows.weight = np.ascontiguousarray(shares_of(self._rows.weight))
        self._scale = np.ones(shape[0], np.float32)
        kinds = {"random": np.float64, "chosen": np.int64, "importance": np.float32}
        work: dict[str, Array] = {name: np.zeros(shape, kind) for name, kind in kinds.items()}
        self._written = work | {"weight": self._rows.weight, "scale": self._scale}
        columns = {name: getattr(self._rows, name) for name in (*self._rows.loss_columns, "weight")}
        self._given = {ALONE: columns | ({"scale": self._scale} if self.learner.algorithm.prioritized else {})}

    def _new_rows(self, agents: int, rows: int) -> Transitions:
        """Return uninitialized transitions [agents, rows], with weights of 1."""
        return self._reading.new_transitions(agents, rows)

    def can_draw(self, learn: Array) -> bool:
        """See `PlannedUpdates`."""
        return self._draws.can_draw(learn)

    def _columns(self, learn: Array) -> Columns:
        """See `PlannedUpdates`."""
        return self._given

    def _set_rows(self, rngs: Sequence[np.random.Generator | None], gamma: Array, env_steps: Sequence[int]) -> None:
        """See `PlannedUpdates`; also the powers of the importance weights in each round, [R, K]."""
        self._reading.set_outputs(self._rows, gamma)
        self._draws.set_generators(rngs)
        memory = self.learner.memory
        if memory is not None and isinstance(self._choice, PrioritizedChoice):
            self._beta = np.ascontiguousarray(memory.values_at("beta", env_steps))
            for name, array in {**self._written, "beta": self._beta, "errors": self._phases.errors}.items():
                self._drawing[name] = address_of(array)

    def _weight(self) -> Array | None:
        """See `PlannedUpdates`."""
        return self._written["importance"] if isinstance(self._choice, PrioritizedChoice) else None

    def prepare_call(self, steps: int) -> None:
        """See `PlannedUpdates`."""
        super().prepare_call(steps)
        self._draws.refresh()
        if isinstance(self._choice, PrioritizedChoice):
            self._choice.follow()
            if not self._record["learn"][0]:
                self._record["learn"] = entry(learn_program(), 1)


@compiled
def draw_transitions(address: int, now: int) -> int:
    """Draw and read transitions for the ROUNDS at an address; return 1."""
    u = rounds_at(address)
    d = record_at(u.drawing, DRAWING)
    r = reading_at(d.reading)
    r.gamma = of_round(u, u.gamma, 8 * u.agents)
    if d.trees:
        copy(of_round(u, d.beta, 8 * u.agents), trees_at(d.trees).beta, 8 * u.agents)
        draw_prioritized(d, r, now)
    else:
        draw(r, now)
    read(r)
    if d.kept:
        call(d.draw_kept, (d.kept, d.reading, u.round - 1))
    scale_drawn(u, r.to_reward, d.importance if d.trees else 0, u.learns, r.rows)
    return 1


@compiled
def draw_prioritized(d: Any, r: Any, now: int) -> None:
    """Draw cells as `PrioritizedChoice.draw` does, and write the shares and scales of the rows' weights."""
    t, rows = trees_at(d.trees), r.rows
    follow_ring(t, now)
    generators, doubles = i64(r.generator, r.agents), i64(r.draw_double, r.agents)
    cells, firsts = i64(r.cells, r.agents * rows), i64(r.first_seat, r.agents)
    for k in range(r.agents):
        if generators[k] == 0:
            cells[k * rows : (k + 1) * rows] = i64(r.seats + 8 * firsts[k], 1)[0]
            continue
        random = f64(d.random + 8 * k * rows, rows)
        for i in range(rows):
            random[i] = next_double(doubles[k], generators[k])
        weights = f32(d.importance + 4 * k * rows, rows)
        draw_rows(t, k, random, cells[k * rows : (k + 1) * rows], weights, i64(d.chosen + 8 * k * rows, rows))
        f32(d.scale, r.agents)[k] = share_out(weights, f32(d.weight + 4 * k * rows, rows))


@compiled
def learn_priorities(address: int) -> int:
    """Set the priorities of the rows drawn last for the ROUNDS at an address; return 0 if an error is not finite."""
    d = record_at(rounds_at(address).drawing, DRAWING)
    r, fine = reading_at(d.reading), True
    rows, generators = r.rows, i64(r.generator, r.agents)
    for k in range(r.agents):
        if generators[k] != 0:
            errors = f32(d.errors + 4 * k * rows, rows)
            chosen = i64(d.chosen + 8 * k * rows, rows)
            fine = set_priorities(trees_at(d.trees), k, chosen, errors, False) and fine
    return 1 if fine else 0


@functools.cache
def draw_program() -> Any:
    """Return the compiled `draw_transitions`, from the disk cache if it is there."""
    return program(draw_transitions, DRAWING, PRIORITIES, READING, ROUNDS, SCALING)


@functools.cache
def learn_program() -> Any:
    """Return the compiled `learn_priorities`, from the disk cache if it is there."""
    return program(learn_priorities, DRAWING, PRIORITIES, READING, ROUNDS)
