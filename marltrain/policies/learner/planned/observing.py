"""Observing: the normalized observations of planned updates."""

from __future__ import annotations

import numpy as np

from marltrain.core.layout import Array
from marltrain.jit.views import address_of
from marltrain.policies.batches.batch import Transitions
from marltrain.policies.batches.normalization import NORMALIZED, RunningStatistics
from marltrain.policies.compiled.observation_kernel import OBSERVING
from marltrain.policies.interface.algorithm import OBSERVATION


class Observing:
    """Arguments of `observation_kernel.observe`.

    address: of the OBSERVING record.
    """

    def __init__(self, statistics: RunningStatistics) -> None:
        """Write the addresses of the statistics, which stay where they are."""
        self._statistics = statistics
        self._record = np.zeros(1, OBSERVING)
        self._record["agents"], self._record["width"] = statistics.mean.shape
        moments = np.zeros((2, statistics.mean.shape[1]))
        digits = statistics.digits()
        self._write(
            **statistics.values(), high=digits["mean"], rest=digits["rest"], deviation=digits["deviation"],
            moments=moments,
        )  # fmt: skip
        self._moments = moments  # kept alive, as others: compiled code has only addresses
        self.address = address_of(self._record)

    def set_rows(self, rows: Transitions, weight: Array | None) -> None:
        """Set the rows whose observations are normalized in place, [K, B, V], and their weights [K, B]; None: all 1."""
        size = rows.cells.shape[1]
        columns = [getattr(rows, name) for name in NORMALIZED[OBSERVATION] if hasattr(rows, name)]
        self._kept = np.array([address_of(column) for column in columns], np.int64), np.zeros((2, size)), rows, weight
        (column, (share, terms), *_) = self._kept
        self._write(column=column, share=share, terms=terms)
        self._record["rows"], self._record["columns"] = size, len(columns)
        self._record["weights"] = 0 if weight is None else address_of(weight)

    def _write(self, **arrays: Array) -> None:
        for name, array in arrays.items():
            self._record[name] = address_of(array)
