"""GradientPass: all phases of an off-policy pass as one function of tensors."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from marltrain.core.layout import Array
from marltrain.policies.backends.started import Started
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
        self._function = self._backend.starting(self._pass, compiled=True)

    def __call__(
        self, columns: Columns, numbers: Mapping[str, Any], due: Sequence[Array], share: Array,
        drawn: Callable[[GradientStep, Array], Mapping[str, Any]],
    ) -> tuple[Started | None, list[tuple[GradientStep, Array]]]:  # fmt: skip
        """Start the pass; return its metrics, those [M, K] of one phase that was due after another, and these phases.

        The latter are (step, due [K] bool); without any, there are no metrics.
        numbers: see `GradientStep`.  due: [K] bool, of each step.  share: [K], see `Weights.update_targets`.
        drawn: (step, due) -> random numbers of the rows, which the losses of the step get.
        """
        made = [(step, own) for step, own in zip(self.steps, due, strict=True) if np.count_nonzero(own)]
        if not made:
            self._weights.update_targets(share)
            return None, []
        added = {step.phase.name: drawn(step, own) for step, own in made}
        agents = {step.phase.name: step.due(own) for step, own in made}
        moved = self._backend.argument(share.astype(np.float32)) if np.count_nonzero(share) else None
        extra = self.steps[0].optimizer_numbers(numbers)
        return self._function(columns, added, dict(numbers), agents, moved, extra), made

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
