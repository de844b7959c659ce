"""Batches as tensors: what losses and `Algorithm.prepare` get."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from marltrain.core.layout import Array
from marltrain.policies.batches.batch import Batch
from marltrain.policies.batches.normalization import RunningStatistics
from marltrain.policies.batches.row_draws import Draw


class TensorBatch:
    """Columns as attributes; each is a framework tensor [K, B, ...], a mapping of such tensors, or None.

    Losses get `weight`, the columns that the batch names in `Batch.loss_columns`, and those that `prepare` added. In a
    gradient pass the weights of an agent's rows sum to 1. A weighted sum is therefore a mean, and the sums over parts
    of the rows add up to it.

    From a rollout, losses get `obs, legal, action, state, others` but not the other columns (`reward`, `discount`,
    `extras`, `cut`, ...). If a loss needs one of these, `prepare` adds it under another name.
    """

    columns: dict[str, Any]
    """All columns by name: a plain mapping, which every version of torch's compiler traces."""

    def __init__(self, **columns: Any) -> None:
        """Store the columns; further columns may be added."""
        object.__setattr__(self, "columns", columns)

    def __getattr__(self, name: str) -> Any:
        """Return a column; raises AttributeError for one that the batch does not have."""
        if name == "columns" or name not in self.columns:  # the former while a copy is being made
            raise AttributeError(f"the batch has no column {name!r}")
        return self.columns[name]

    def __setattr__(self, name: str, value: Any) -> None:
        """Set or add a column."""
        self.columns[name] = value


class WholeBatch(TensorBatch):
    """All columns of a batch as tensors, for `Algorithm.prepare`, which adds columns.

    The attributes below are no columns.

    metrics: name -> [K], values that `prepare` reports.
    to_tensor, to_numpy: convert an array to a tensor of the framework, and back.
    draw: draws random numbers for the rows, (function) -> tensors by name; see `row_draws.Draw`.
    statistics: the running statistics that `Algorithm.statistics` names; `prepare` updates them.
    rescale: changes the last layer of a network's head before the gradient passes, so that its outputs become
        scale * output + shift: (network, number of the head, scale [K], shift [K]).
    """

    batch: Batch
    metrics: dict[str, Array]
    to_tensor: Callable[[Any], Any]
    to_numpy: Callable[[Any], Array]
    draw: Callable[[Draw], dict[str, Any]]
    statistics: Mapping[str, RunningStatistics]
    rescale: Callable[[str, int, Array, Array], None]

    def __init__(
        self,
        batch: Batch,
        to_tensor: Callable[[Any], Any],
        to_numpy: Callable[[Any], Array],
        draw: Callable[[Draw], dict[str, Any]],
        statistics: Mapping[str, RunningStatistics],
        rescale: Callable[[str, int, Array, Array], None],
    ) -> None:
        """Convert the columns of `batch` that losses get; the others are converted when they are first read."""
        super().__init__(**to_tensor({name: getattr(batch, name) for name in batch.loss_columns}))
        vars(self).update(
            batch=batch, to_tensor=to_tensor, to_numpy=to_numpy, draw=draw, statistics=statistics, rescale=rescale,
            metrics={},
        )  # fmt: skip

    def __getattr__(self, name: str) -> Any:
        """Return a column, converted if need be; raises AttributeError for one that the batch does not have."""
        columns = vars(self).get("columns", {})  # none while a copy is being made
        if name not in columns and name not in WholeBatch.__annotations__ and name in vars(self.batch):
            columns[name] = self.to_tensor(getattr(self.batch, name))
        return columns[name] if name in columns else super().__getattr__(name)

    def __setattr__(self, name: str, value: Any) -> None:
        """Set an attribute of the class, or else a column."""
        if name in WholeBatch.__annotations__:
            object.__setattr__(self, name, value)
        else:
            super().__setattr__(name, value)

    def for_losses(self) -> dict[str, Any]:
        """Return the columns that losses get, without `weight`: those that the batch names, and added ones."""
        given, every = self.batch.loss_columns, vars(self.batch)
        return {name: value for name, value in self.columns.items() if name in given or name not in every}


def memory_of(batch: Any, network: str) -> tuple[Any, ...]:
    """Return the last inputs of a network that may be recurrent, for the rows of a batch: (carry, begins) or ().

    A loss calls `nets[network](batch.obs, *memory_of(batch, network))`. Of a recurrent network, the call then returns
    the carries after the rows, [K, B, carry width], after its outputs.

    batch: tensors of B rows, as losses, `Algorithm.prepare` and `Phase.targets` get them.  network: its name.
    Returns carry: [K, B, carry width] float32, of each row; begins: [K, B] bool, rows that start from their own carry.
    """
    carry = getattr(batch, "carry", {}).get(network)
    return () if carry is None else (carry, batch.begins)


def shares_of(weight: Array) -> Array:
    """Return weights [..., B] scaled to a sum of 1 over the last axis; all zeros stay zeros."""
    return weight / np.maximum(weight.sum(-1, keepdims=True), 1e-8)
