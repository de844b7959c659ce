"""ActingLearner: a learner acts in a runner, with weights that were sent to it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from marltrain.core.layout import Array
from marltrain.core.seeds import restored, state_of
from marltrain.policies.backends import make_backend
from marltrain.policies.batches.batch import Acted, ActInputs
from marltrain.policies.hyperparameters.stacked import StackedHyperparameters
from marltrain.policies.learner.actor import Actor
from marltrain.policies.learner.row_errors import RowErrors
from marltrain.policies.learner.weights import Weights
from marltrain.trainer.cluster.columns import Columns
from marltrain.trainer.cluster.messages import Acting, ActingTask


class ActingLearner:
    """Acting of one learner in a runner's environments."""

    def __init__(self, task: ActingTask, columns: Columns) -> None:
        """Build the networks; `load` sets their weights."""
        algorithm, backend = task.algorithm(), make_backend(task.backend, "cpu")
        self.weights = Weights(algorithm, backend, task.num_agents, None)
        self.hyper = StackedHyperparameters(algorithm.settings, algorithm.name, task.num_agents, backend)
        self.actor = Actor(algorithm, backend, self.hyper, None)
        self.actor.use(self.weights.nets, self.weights.statistics)
        self._generators: list[np.random.Generator] = []
        self.actor.noise = self.actor.noise.by(columns.cut(algorithm.noise, task.players))

    def load(self, acting: Acting) -> None:
        """Set the weights, statistics, hyperparameters and counts of a fragment."""
        backend = self.weights.backend
        for name, flat in acting.nets.items():
            self.weights.nets[name].assign(backend.tensor(flat))
            self.weights.nets[name].discard_copies()
        for name, values in acting.statistics.items():
            for key, value in self.weights.statistics[name].values().items():
                value[...] = values[key]
        self.hyper.adapt(acting.hyper, np.ones(self.actor.counts.shape[0], bool))
        self.actor.counts[...] = acting.counts

    def settle(self) -> None:
        """Reset the generators of acts that are ahead of the numbers used."""
        self.actor.noise.settle()

    @property
    def counts(self) -> Array:
        """See `Actor`."""
        return self.actor.counts

    def draw_from(self, states: Sequence[dict[str, Any]]) -> list[np.random.Generator]:
        """Take the states of the generators; return the generators of the acts."""
        self.settle()
        self._generators = [restored(state) for state in states]
        return self._generators

    @property
    def generators(self) -> list[dict[str, Any]]:
        """States of the generators."""
        return [state_of(rng) for rng in self._generators]

    @property
    def rate(self) -> RowErrors:
        """The errors of transitions, computed with the weights of `load`."""
        return RowErrors(self.actor.algorithm, self.weights.backend, self.weights, self.hyper)

    def rngs(self, purpose: str) -> list[np.random.Generator]:
        """Return the generators."""
        return self._generators

    def act(self, inputs: ActInputs, *, turn: Array, rngs: Any) -> Acted:
        """See `AlgorithmLearner`."""
        return self.actor.act(inputs, rngs)
