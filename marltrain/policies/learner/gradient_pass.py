"""GradientPass: all phases of an off-policy pass as one function of tensors."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from marltrain.core.layout import Array
from marltrain.policies.learner.gradient_step import GradientStep
from marltrain.policies.learner.trained_team import ALONE, Columns


class GradientPass:
    """The gradient steps of all phases on the same rows, then the step of the target networks, in a single call.

    For small networks, a call of a compiled function costs about as much as its computation
    (`benchmarks/continuous.py`).
    """

    def __init__(self, steps: Sequence[GradientStep]) -> None:
        """Store the steps of the phases of agents alone, in order."""
        self.steps = list(steps)
        self._weights, self._backend = steps[0].team.members[ALONE].weights, steps[0].backend
        self.retrace()

    def retrace(self) -> None:
        """Trace the steps anew, because they measure other quantities."""
        self._function = self._backend.function(self._pass)

    def __call__(
        self, columns: Columns, numbers: Mapping[str, Any], due: Array, share: Array,
        drawn: Callable[[GradientStep, Array], Mapping[str, Any]],
    ) -> list[tuple[GradientStep, Any, Array]]:  # fmt: skip
        """Make the pass; return (step, metrics [M, K], due [K] bool) of each phase that was due.

        numbers: see `GradientStep`.  due: [F, K] bool, of each step.  share: [K], see `Weights.update_targets`.
        drawn: (step, due) -> random numbers of the rows, which the losses of the step get.
        """
        made = [(step, own) for step, own in zip(self.steps, due, strict=True) if np.count_nonzero(own)]
        if not made:
            self._weights.update_targets(share)
            return []
        added = {step.phase.name: drawn(step, own) for step, own in made}
        agents = {step.phase.name: step.due(own) for step, own in made}
        moved = self._backend.tensor(share.astype(np.float32)) if np.count_nonzero(share) else None
        extra = self.steps[0].optimizer_numbers(numbers)
        measured = self._backend.numpy(self._function(columns, added, dict(numbers), agents, moved, extra))
        ends = np.cumsum([len(step.metrics) for step, _ in made])
        return [(step, values, own) for (step, own), values in zip(made, np.split(measured, ends[:-1]), strict=True)]

    def _pass(
        self, columns: Columns, added: Mapping[str, Mapping[str, Any]], numbers: Mapping[str, Any],
        due: Mapping[str, Mapping[str, Any]], share: Any, extra: Mapping[str, Any],
    ) -> Any:  # fmt: skip
        measured = [
            step.compute({ALONE: {**columns[ALONE], **added[step.phase.name]}}, numbers, due[step.phase.name], extra)
            for step in self.steps
            if step.phase.name in due
        ]
        if share is not None:
            self._weights.move_targets(share)
        return self._backend.ops.concat(measured, 0)
