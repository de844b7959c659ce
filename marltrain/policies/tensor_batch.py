"""Batches as tensors: what losses and `Algorithm.prepare` get."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from marltrain.layout import Array
from marltrain.policies.batch import Batch
from marltrain.policies.normalisation import RunningStatistics
from marltrain.policies.row_draws import Draw


class TensorBatch:
    """Columns as attributes; each is a framework tensor [K, B, ...], a mapping of such tensors, or None.

    Losses get `weight`, the columns that the batch names in `Batch.loss_columns`, and those that `prepare` added. In a
    gradient pass the weights of an agent's rows sum to 1. A weighted sum is therefore a mean, and the sums over parts
    of the rows add up to it.

    From a rollout, losses get `obs, legal, action, state, others` but not the other columns (`reward`, `discount`,
    `extras`, `cut`, ...). If a loss needs one of these, `prepare` adds it under another name.
    """

    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            """Return a column."""

        def __setattr__(self, name: str, value: Any) -> None:
            """Set a column."""

    def __init__(self, **columns: Any) -> None:
        """Store the columns as attributes; further columns may be added."""
        vars(self).update(columns)


class WholeBatch(TensorBatch):
    """All columns of a batch as tensors, for `Algorithm.prepare`, which adds columns.

    metrics: name -> [K], values that `prepare` reports.
    to_tensor, to_numpy: convert an array to a tensor of the framework, and back.
    draw: draws random numbers for the rows, (function) -> tensors by name; see `row_draws.Draw`.
    statistics: the running statistics that `Algorithm.statistics` names; `prepare` updates them.
    rescale: changes the last layer of a network's head before the gradient passes, so that its outputs become
        scale * output + shift: (network, number of the head, scale [K], shift [K]).
    """

    __slots__ = (
        "batch",
        "draw",
        "metrics",
        "rescale",
        "statistics",
        "to_numpy",
        "to_tensor",
    )  # no columns: those are in `vars`

    def __init__(
        self,
        batch: Batch,
        to_tensor: Callable[[Any], Any],
        to_numpy: Callable[[Any], Array],
        draw: Callable[[Draw], dict[str, Any]],
        statistics: Mapping[str, RunningStatistics],
        rescale: Callable[[str, int, Array, Array], None],
        names: Iterable[str],
    ) -> None:
        """Convert the columns of `batch` with these names."""
        super().__init__(**{name: to_tensor(getattr(batch, name)) for name in names})
        self.batch, self.to_tensor, self.to_numpy = batch, to_tensor, to_numpy
        self.draw, self.statistics, self.rescale = draw, statistics, rescale
        self.metrics: dict[str, Array] = {}

    def for_losses(self) -> dict[str, Any]:
        """Return the columns that losses get, without `weight`: those that the batch names, and added ones."""
        given, every = self.batch.loss_columns, vars(self.batch)
        return {name: value for name, value in vars(self).items() if name in given or name not in every}
