"""Errors of transitions by the networks of K agents, without an update; see `Prioritized.initial`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from marltrain.core.errors import ConfigError
from marltrain.core.layout import Array, map_tree
from marltrain.policies.backends.base import Backend
from marltrain.policies.batches.batch import Transitions
from marltrain.policies.batches.normalization import NORMALIZED, normalized_batch
from marltrain.policies.batches.tensor_batch import TensorBatch
from marltrain.policies.hyperparameters.stacked import StackedHyperparameters
from marltrain.policies.interface.algorithm import REWARD, Algorithm, Phase
from marltrain.policies.learner.reward_scaling import RewardScaling
from marltrain.policies.learner.weights import Weights


class RowErrors:
    """Computes the sizes of transitions' errors (`Phase.row_error`), as an update does, but for two things.

    The online networks stand for their target networks: actors have no others (Ape-X, section 3). The random numbers of
    the losses (noisy networks, sampled next actions) are 0, so that no generator is used and equal rows have equal
    errors.
    """

    def __init__(self, algorithm: Algorithm, backend: Backend, weights: Weights, hyper: StackedHyperparameters) -> None:
        """Store the parts of a learner, which `check_initial_errors` accepts."""
        self._algorithm, self._backend, self._hyper = algorithm, backend, hyper
        self._phase = _phase_with_errors(algorithm)
        online = weights.online
        self._nets = {**online, **{f"target_{name}": online[name] for name in weights.target}}
        self._statistics = {name: weights.statistics[name] for name in NORMALIZED if name in weights.statistics}
        self._rewards = RewardScaling(len(self.gammas()), weights.statistics.get(REWARD))
        self._function = self._errors if backend.jit_compile else backend.function(self._errors)
        self._drawn: dict[tuple[int, ...], Any] = {}

    def gammas(self) -> Array:
        """Return each agent's discount, [K]."""
        return self._hyper.values["gamma"]

    def __call__(self, batch: Transitions) -> Array:
        """Return the sizes of the errors of transitions, [K, B] float32."""
        shape, tensor = batch.weight.shape, self._backend.tensor
        if self._statistics:
            batch = normalized_batch(self._statistics, batch)  # type: ignore[assignment]
        columns = {name: tensor(getattr(batch, name)) for name in batch.loss_columns}
        if (scale := self._hyper.values.get("reward_scale")) is not None:
            none = np.zeros(len(scale), bool)
            columns["reward"] = tensor(self._rewards(batch.reward, batch.weight, none, scale))
        columns["weight"] = tensor(np.full(shape, 1 / shape[1], np.float32))
        errors: Array = self._backend.numpy(self._function({**columns, **self._zeros(shape)}, self._hyper.tensors()))
        return errors

    def _errors(self, columns: Mapping[str, Any], hyper: Mapping[str, Any]) -> Any:
        """Return the errors as a function of tensors."""
        ops, batch = self._backend.ops, TensorBatch(**columns)
        with self._backend.no_gradient():
            if self._phase.targets is not None:
                self._phase.targets(ops, self._nets, batch, hyper)
            self._phase.loss(ops, self._nets, batch, hyper)
            return self._phase.row_error(ops, batch)  # type: ignore[misc]

    def _zeros(self, shape: tuple[int, ...]) -> Any:
        """Return zeros in place of the random numbers that the phase draws for rows [K, B]."""
        if self._phase.draw is None:
            return {}
        if shape not in self._drawn:
            drawn = dict(self._phase.draw([np.random.default_rng(0) for _ in range(shape[0])], shape[1]))
            self._drawn[shape] = self._backend.tensor({name: map_tree(np.zeros_like, v) for name, v in drawn.items()})
        return self._drawn[shape]


def check_initial_errors(algorithm: Algorithm, *, custom: bool) -> None:
    """Raise ConfigError for a memory with initial="error" if the errors cannot be computed without an update.

    custom: whether a network is a user's module.
    """
    needs = algorithm.needs()
    if needs.on_policy or needs.replay is None or not needs.replay.initial_errors:
        return
    kind = type(algorithm)
    hindered = {
        "its networks are modules of your own, which may draw random numbers or change in each call": custom,
        "its losses read triplets, which reach beyond the n steps of a row": needs.replay.triplets is not None,
        "it defines `prepare`, which may change more than a batch": kind.prepare is not Algorithm.prepare,
        "it defines `over_rows`, which needs all rows of a batch": kind.over_rows is not Algorithm.over_rows,
    }
    for why, holds in hindered.items():
        if holds:
            raise ConfigError(
                f'{algorithm.name}: Prioritized(initial="error") computes the errors of new rows outside of updates, '
                f"and {why}: leave initial= out"
            )


def _phase_with_errors(algorithm: Algorithm) -> Phase:
    """Return the phase whose errors make priorities."""
    return next(phase for phase in algorithm.phases if phase.row_error is not None)
