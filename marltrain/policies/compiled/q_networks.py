"""The Q-networks of K agents, their target networks and their rows as arguments of compiled gradient steps."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from marltrain.core.layout import Array
from marltrain.jit.views import address_of
from marltrain.policies.backends.base import Backend, Optimizer, StackedNetwork
from marltrain.policies.compiled.array_checks import place_of
from marltrain.policies.compiled.optimizers import RULES
from marltrain.policies.compiled.trained_network import TrainedNetwork, allocate

ROWS = {"obs": np.float32, "action": np.int64, "next_obs": np.float32, "next_legal": np.bool_}
"""Columns of a minibatch that the networks read, [K, B, ...]; `next_legal` may be missing."""


class QNetworks:
    """The networks in the fields `Q_NETWORKS` of a record.

    agents: K.  choices: number of actions.  due: [K] bool, the agents that learn, for compiled code.
    """

    def __init__(
        self, record: Any, nets: Mapping[str, StackedNetwork], optimizers: Mapping[str, Optimizer], name: str,
        rule: str, backend: Backend, *, double: bool,
    ) -> None:  # fmt: skip
        """Write the constant fields of `record` for the network `name` and its target network.

        double: whether the online network chooses the next action, instead of the target network.
        """
        self._record = record
        self._network = TrainedNetwork(record, nets[name], optimizers[name], rule, backend)
        self._target = nets[f"target_{name}"].numbers()  # keeps it alive: compiled code has only addresses
        self._work: list[Array] = []
        self.agents, self._widths = self._network.agents, self._network.widths
        self.choices, self.due = self._widths[-1], np.ones(self.agents, bool)
        record["agents"], record["double"], record["rule"] = self.agents, double, RULES[rule]
        record["target"], record["due"] = address_of(self._target), address_of(self.due)

    def places(self, columns: Mapping[str, Array | None], rows: int) -> dict[str, int]:
        """Return the addresses of the columns `ROWS` of a minibatch, [K, rows, ...], by field."""
        axes = {"obs": self._widths[:1], "next_obs": self._widths[:1], "next_legal": self._widths[-1:]}
        return {
            name: 0
            if columns[name] is None and name == "next_legal"
            else place_of(name, columns[name], kind, (self.agents, rows, *axes.get(name, ())))
            for name, kind in ROWS.items()
        }

    def allocate(self, rows: int, *, kept: int = 1, **more: int) -> None:
        """Allocate the work arrays of a gradient step over `rows` rows of each agent.

        kept: number of agents whose activations are kept.  more: sizes of further work arrays, by field.
        """
        sizes = self._network.work_sizes(rows)
        own = {**sizes, "activations": kept * sizes["activations"], "next_activations": sizes["activations"], **more}
        self._work = allocate(self._record, own)
        self._record["rows"] = rows

    def stored(self, rows: int) -> int:
        """Return the size of the activations of an agent."""
        return self._network.work_sizes(rows)["activations"]
