"""The networks, target networks, optimizers and running statistics of K agents."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from marltrain.core.errors import SaveError
from marltrain.core.layout import Array
from marltrain.core.seeds import generator
from marltrain.policies.backends.base import Backend, Network
from marltrain.policies.batches.normalization import RunningStatistics
from marltrain.policies.interface.algorithm import Algorithm, Phase


class Weights:
    """The parameters that updates change, for K agents.

    online: name -> network.  target: name -> target network.  nets: both; targets are named "target_<name>".
    optimizers: network name -> optimizer; networks that only solving phases train have none.
    statistics: name -> running statistics.
    custom: whether any network is a custom module.
    """

    def __init__(self, algorithm: Algorithm, backend: Backend, num_agents: int, seeds: Sequence[int] | None) -> None:
        """Build networks and optimizers.

        seeds: [K] seeds of the initial weights; None if `load` or `assign` sets the weights.
        """
        self.backend, self._who = backend, algorithm.name
        self.online: dict[str, Network] = {}
        for name, definition in algorithm.networks().items():
            rngs = None if seeds is None else [generator(seed, "weights", name) for seed in seeds]
            self.online[name] = backend.network(definition, rngs, num_agents)
        self.target = {name: self.online[name].copy() for name in algorithm.targets()}
        self.nets: dict[str, Network] = {**self.online, **{f"target_{name}": net for name, net in self.target.items()}}
        self.custom = any(backend.is_module(definition.spec) for definition in algorithm.networks().values())
        self.statistics = {n: RunningStatistics(num_agents, width) for n, width in algorithm.statistics().items()}
        kind, epsilon = algorithm.settings.optimizer, algorithm.optimizer_epsilon
        solved = solved_networks(algorithm.phases)
        self._move_targets = backend.captured(self.move_targets)
        self.optimizers = {
            name: backend.optimizer(kind, net, epsilon) for name, net in self.online.items() if name not in solved
        }

    def update_targets(self, share: Array) -> None:
        """Move the target networks towards the online networks by `share` [K]; 1 copies."""
        self._move_targets(self.backend.argument(share.astype("float32")))

    def move_targets(self, share: Any) -> None:
        """Do the same for `share` as a tensor; part of a compiled pass."""
        for name, target in self.target.items():
            target.move_toward(self.online[name], share)

    def rescale(self, network: str, head: int, scale: Array, shift: Array) -> None:
        """Change the last layer of a network's head, so that its outputs become scale * output + shift.

        The network is one of a NetworkSpec.  scale, shift: [K].
        """
        net, weight, bias = self.online[network], f"head{head}.weight", f"head{head}.bias"
        for row in range(len(scale)):
            arrays = net.arrays(row)
            arrays[weight] = (arrays[weight] * scale[row]).astype(np.float32)
            arrays[bias] = (arrays[bias] * scale[row] + shift[row]).astype(np.float32)
            net.load(row, arrays)

    def trained(self, *, targets: bool = False) -> dict[str, Array]:
        """Return the weights, moments and step counts, each [K, ...]; `targets` includes the target networks.

        Also the other arrays of users' models, see `Network.kept`.
        """
        nets = self.nets if targets else self.online
        result = {f"net/{name}": self.backend.numpy(net.flat) for name, net in nets.items()}
        for name, optimizer in self.optimizers.items():
            for slot, value in optimizer.state().items():
                result[f"optimizer/{name}/{slot}"] = self.backend.numpy(value)
        for name, net in nets.items():
            result.update({f"kept/{name}/{key}": array for key, array in net.kept().items()})
        return result

    def assign(self, arrays: Mapping[str, Array]) -> None:
        """Copy the arrays that `trained` of other weights returned."""
        for kind, held in grouped(arrays).items():
            group, _, name = kind.partition("/")
            if group == "net":
                self.nets[name].assign(self.backend.tensor(held[""]))
                self.nets[name].discard_copies()
            elif group == "kept":
                self.nets[name].keep(held)
            else:
                for slot, value in self.optimizers[name].state().items():
                    self.backend.overwrite(value, held[slot])
                self.optimizers[name].discard_copies()

    def export(self, row: int) -> dict[str, Array]:
        """Return the arrays of one agent by name."""
        arrays: dict[str, Array] = {}
        for name, net in self.nets.items():
            arrays.update({f"net/{name}/{key}": value for key, value in net.arrays(row).items()})
        for name, optimizer in self.optimizers.items():
            arrays.update({f"optimizer/{name}/{key}": value for key, value in optimizer.arrays(row).items()})
        for name, statistics in self.statistics.items():
            arrays.update({f"statistics/{name}/{key}": value for key, value in statistics.arrays(row).items()})
        return arrays

    def load(self, row: int, arrays: Mapping[str, Array]) -> None:
        """Load one agent's arrays; raises SaveError for those of another kind of agent."""
        groups = grouped(arrays)
        held: dict[str, Mapping[str, Any]] = {
            "net": self.nets,
            "optimizer": self.optimizers,
            "statistics": self.statistics,
        }
        expected = {f"{kind}/{name}" for kind, parts in held.items() for name in parts}
        if set(groups) != expected:
            raise SaveError(f"saved agent holds {sorted(groups)}, a {self._who} agent {sorted(expected)}")
        for name, net in self.nets.items():
            net.load(row, groups[f"net/{name}"])
        for name, optimizer in self.optimizers.items():
            optimizer.load(row, groups[f"optimizer/{name}"])
        for name, statistics in self.statistics.items():
            statistics.load(row, groups[f"statistics/{name}"])

    def load_some(self, row: int, arrays: Mapping[str, Array]) -> None:
        """Load some of one agent's online networks and statistics, and copy these networks to their targets."""
        for kind, held in grouped(arrays).items():
            group, _, name = kind.partition("/")
            if group == "statistics":
                self.statistics[name].load(row, held)
                continue
            self.online[name].load(row, held)
            if name in self.target:
                self.target[name].load(row, self.online[name].arrays(row))


def solved_networks(phases: Iterable[Phase]) -> set[str]:
    """Return the networks that are trained by phases with `Phase.natural`, and by no others."""
    by_solving = {solves: set[str]() for solves in (True, False)}
    for phase in phases:
        by_solving[phase.natural is not None].update(phase.trains)
    return by_solving[True] - by_solving[False]


def grouped(arrays: Mapping[str, Array]) -> dict[str, dict[str, Array]]:
    """Split names "kind/network/key" into {"kind/network": {key: array}}."""
    groups: dict[str, dict[str, Array]] = {}
    for name, array in arrays.items():
        kind, network, key = (*name.split("/", 2), "", "")[:3]
        groups.setdefault(f"{kind}/{network}", {})[key] = array
    return groups
