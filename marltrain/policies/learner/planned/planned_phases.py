"""PlannedPhases: the programs of the phases of planned updates, their random numbers and their metrics."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from marltrain.core.layout import Array
from marltrain.jit.views import address_of
from marltrain.policies.learner.planned.rounds_kernel import DRAW, PHASE
from marltrain.policies.learner.programs.program_steps import ProgramSteps
from marltrain.policies.learner.programs.recorded_step import COLUMNS, arrays_in
from marltrain.policies.learner.programs.step_program import StepProgram
from marltrain.policies.learner.trained_team import ALONE, Columns

Draws = Mapping[int, Mapping[str, Any]]
"""Arrays of random numbers by name, for the numbers of phases; see `PhaseDraws`."""


class PlannedPhases:
    """The programs of all phases of an update, which read the columns of a batch where they are.

    record: [F] PHASE.  measured: number of all phases' metrics.  names: of the metrics, each once.
    errors: [K, B], those of the rows of the last update; empty if no phase gives any.
    """

    def __init__(self, programs: Sequence[StepProgram], example: Draws) -> None:
        """Write the sizes of the records.  example: random numbers as those of an update."""
        self.programs, self._example = programs, example
        self.record = np.zeros(len(programs), PHASE)
        self._metrics = [(name, f) for f, program in enumerate(programs) for name in program.metrics]
        self.names = tuple(dict.fromkeys(name for name, _ in self._metrics))
        self.measured = len(self._metrics)
        found = (errors for program in programs if (errors := program.errors) is not None)
        self.errors: Array = next(found, np.zeros((0, 0), np.float32))
        self._norms = [_norms_of(program) for program in programs]
        self._draws = [np.zeros(len(arrays_in(example.get(f, {}), "")), DRAW) for f in range(len(programs))]
        for phase, program, norms, draws in zip(self.record, programs, self._norms, self._draws, strict=True):
            phase["metrics"], phase["measured"] = address_of(program.measured), len(program.metrics)
            phase["norms"], phase["norm"] = len(norms), address_of(norms)
            phase["draws"], phase["draw"] = len(draws), address_of(draws)
            phase["due"], phase["computed"] = program.due_addresses()

    def bind(self, columns: Columns, numbers: Array, learn: Array) -> None:
        """Bind the columns of a batch and the hyperparameters [H, K, 1]."""
        for f, (phase, program) in enumerate(zip(self.record, self.programs, strict=True)):
            given = list(arrays_in(with_draws(columns, self._example, f), COLUMNS).values())
            phase["run"] = program.prepare(given, {ALONE: numbers}, learn)
            for draw, name in zip(self._draws[f], arrays_in(self._example.get(f, {}), ""), strict=True):
                draw["base"] = program.address_at(f"{COLUMNS}/{ALONE}{name}")

    def set_draws(self, drawn: Draws) -> None:
        """Let the programs read random numbers [U, K, B, ...], those of one update after another."""
        self._drawn = drawn  # kept alive: compiled code has only addresses
        for f, draws in enumerate(self._draws):
            for draw, array in zip(draws, arrays_in(drawn.get(f, {}), "").values(), strict=False):
                draw["start"], draw["step"] = address_of(array), array.strides[0]

    def results(self, measured: Array, due: Array) -> Array:
        """Return the values [U, names, K] float64 of metrics [U, measured, K]; NaN where no step was made.

        due: [U, F, K] bool.  Of several phases with a metric of one name, the last that was due counts.
        """
        phases = [f for _, f in self._metrics]
        values = np.where(due[:, phases], measured.astype(np.float64), np.nan)
        if len(self.names) == len(phases):
            return values
        result = np.full((len(values), len(self.names), values.shape[2]), np.nan)
        made = np.logical_or.reduce(due, -1)
        for i, (name, f) in enumerate(self._metrics):
            result[made[:, f], self.names.index(name)] = values[made[:, f], i]
        return result

    def skipped(self, due: Array, learn: Array) -> dict[str, Array]:
        """Return the agents that learn and for which a metric was not computed, name -> [K] bool.  due: [F, K] bool."""
        made = {name: np.zeros(len(learn), bool) for name in self.names}
        for name, f in self._metrics:
            made[name] |= due[f]
        return {name: learn & ~own for name, own in made.items()}


def planned_phases(steps: ProgramSteps, columns: Columns, example: Draws) -> PlannedPhases | None:
    """Return the phases for columns of the shapes of these arrays; None if one of them has no program."""
    made = [step.program_for(with_draws(columns, example, f)) for f, step in enumerate(steps)]
    programs = [program for program in made if program is not None]
    return PlannedPhases(programs, example) if len(programs) == len(made) else None


def with_draws(columns: Columns, draws: Draws, phase: int) -> Columns:
    """Return the columns that a phase gets: those of the batch, and its random numbers."""
    return {**columns, ALONE: {**columns[ALONE], **draws.get(phase, {})}}


def _norms_of(program: StepProgram) -> Array:
    """Return which metrics are NaN after a loss or a gradient that is not finite, [norms] int64."""
    return np.array([i for i, name in enumerate(program.metrics) if name.startswith("grad_norm/")], np.int64)
