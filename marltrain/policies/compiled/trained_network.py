"""A network and its optimizer as arguments of compiled gradient steps, and the work arrays of a gradient step."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any

import numpy as np

from marltrain.core.layout import Array
from marltrain.jit.compiling import python_function
from marltrain.jit.views import address_of
from marltrain.policies.backends.base import Backend, Optimizer, StackedNetwork
from marltrain.policies.compiled.network import largest, widths_of, write_network
from marltrain.policies.compiled.optimizers import LANES
from marltrain.policies.optimizers import OPTIMIZERS


class TrainedNetwork:
    """The networks of K agents and their optimizers, in the fields of a record.

    record: the record: fields of NETWORK, weights, gradient, moments, count and epsilon.
    agents: K.  widths: sizes of the observation and of each layer's outputs.  weights: [K, size], those that it trains.
    """

    def __init__(self, record: Any, network: StackedNetwork, optimizer: Optimizer, rule: str, backend: Backend) -> None:
        """Write the constant fields of `record`."""
        plan = network.plan
        write_network(record, plan)
        self.record, self.widths, self.agents = record, [plan.vector_width, *widths_of(plan)], network.num_agents
        moments = {name: backend.numpy(value) for name, value in optimizer.state().items()}
        weights, epsilon = network.numbers(), np.array([optimizer.epsilon])
        gradient = np.zeros(weights.shape, np.float32)
        self.weights = weights
        self._kept = gradient, epsilon, *moments.values()  # keeps them alive: compiled code has only addresses
        record["weights"], record["gradient"], record["epsilon"] = map(address_of, (weights, gradient, epsilon))
        for name in (*OPTIMIZERS[rule].moments, "count"):
            record[name] = address_of(moments[name])

    def work_sizes(self, rows: int) -> dict[str, int]:
        """Return the sizes of the work arrays of a gradient step over `rows` rows."""
        size = python_function(largest)  # not compiled: compilation takes longer than these calls
        most = max(size(rows, *pair) for pair in itertools.pairwise(self.widths))
        return {
            "activations": rows * sum(self.widths[1:]), "transposed": int(self.record["size"]),
            "zeros": max(self.widths), "scratch": max(LANES, most),
        }  # fmt: skip


def allocate(record: Any, sizes: Mapping[str, int]) -> list[Array]:
    """Allocate float32 arrays of zeros, write their addresses to the fields of a record, and return the arrays."""
    arrays = [np.zeros(size, np.float32) for size in sizes.values()]
    for name, array in zip(sizes, arrays, strict=True):
        record[name] = address_of(array)
    return arrays
