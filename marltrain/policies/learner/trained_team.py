"""TrainedTeam: the agents whose networks a gradient step changes; agents alone are a team with one member."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from marltrain.core.layout import Array
from marltrain.policies.backends.base import Backend, Network, Optimizer
from marltrain.policies.batches.tensor_batch import TensorBatch
from marltrain.policies.interface.algorithm import Algorithm, Phase
from marltrain.policies.interface.joint import Member, Team
from marltrain.policies.learner.weights import Weights

if TYPE_CHECKING:  # loads numba
    from marltrain.jit.threads import Threads

ALONE = "0"
"""Name of the only member of agents that learn alone."""
OF_TEAM = "team"
"""Name of the networks and columns of the team, beside the numbers of the members."""
Columns = dict[str, dict[str, Any]]
"""Columns of rows as tensors: [K_i, B_i, ...] of each member by its number, and [1, B, ...] of the team."""


class Stack(Protocol):
    """K agents of one algorithm with stacked networks, as a gradient step reads them."""

    algorithm: Algorithm
    backend: Backend
    weights: Weights
    num_agents: int


class TrainedTeam:
    """Agents that are trained together, K in all, in the order of their members.

    members: agents with equal spaces, which are stacked.  seats: [members], seats of each agent.
    weights: the networks of the team; None for agents alone, each of which has a loss of its own.
    order: places of the environment's players, in their order, among the seats of the members.
    nets, optimizers: those of all members, "0/actor", and of the team, "team/mixer".
    is_joint: whether the agents have one loss, or read each other's rows.
    own: the agents of each member among all.
    """

    def __init__(
        self, members: Sequence[Stack], weights: Weights | None = None, seats: Sequence[int] | None = None,
        order: Sequence[int] | None = None,
    ) -> None:  # fmt: skip
        """Store the members; without `seats` and `order`, each agent has a seat, in the order of the agents."""
        self.members, self.weights = {str(i): member for i, member in enumerate(members)}, weights
        self.is_joint = weights is not None
        self.algorithm, self.backend = members[0].algorithm, members[0].backend
        self._hyper = {key: member.algorithm.numbers() for key, member in self.members.items()}
        self.agents = [member.num_agents for member in members]
        self.num_agents = sum(self.agents)
        self.seats = list(seats or [1] * len(members))
        players = [agents * held for agents, held in zip(self.agents, self.seats, strict=True)]
        self.order = list(range(sum(players)) if order is None else order)
        ranks = np.argsort(self.order)
        self.places = [own.tolist() for own in np.split(ranks, np.cumsum(players)[:-1])]
        ends = np.cumsum(self.agents).tolist()
        self.own = [slice(end - agents, end) for agents, end in zip(self.agents, ends, strict=True)]
        self.nets: dict[str, Network] = {}
        self.optimizers: dict[str, Optimizer] = {}
        for key, held in self._every():
            self.nets |= {f"{key}/{name}": net for name, net in held.nets.items()}
            self.optimizers |= {f"{key}/{name}": optimizer for name, optimizer in held.optimizers.items()}

    def _every(self) -> list[tuple[str, Weights]]:
        of_team = [] if self.weights is None else [(OF_TEAM, self.weights)]
        return [*((key, member.weights) for key, member in self.members.items()), *of_team]

    def numbers(self) -> dict[str, Array]:
        """Return the weights of the networks, and the moments and step counts of their optimizers, as arrays.

        These are "weights/0/actor", "first/0/actor" and so on: the same objects in each call, with the present numbers.
        """
        arrays = {f"weights/{name}": net.numbers() for name, net in self.nets.items()}
        for name, optimizer in self.optimizers.items():
            arrays |= {f"{slot}/{name}": value for slot, value in optimizer.numbers().items()}
        return arrays

    @cached_property
    def threads(self) -> Threads:
        """The threads of compiled calls, at most as many as the backend's."""
        from marltrain.jit.threads import Threads

        return Threads()

    def fetch(self) -> None:
        """Update `numbers` by what the framework has changed, before a program reads them."""
        if not self.backend.shares_memory:
            self.numbers()

    def settle(self) -> None:
        """Update the tensors of weights and moments that programs have changed as arrays; before a graph reads them."""
        for net in self.nets.values():
            net.settle()
        for optimizer in self.optimizers.values():
            optimizer.settle()

    def targets(self) -> list[tuple[str, str]]:
        """Return the names of each target network and of the network that it follows."""
        return [(f"{key}/target_{name}", f"{key}/{name}") for key, held in self._every() for name in held.target]

    def trained_by(self, phase: Phase) -> list[str]:
        """Return the names of the networks that a phase trains."""
        own = [f"{key}/{name}" for key in self.members for name in phase.trains]
        return [*own, *(f"{OF_TEAM}/{name}" for name in phase.team_trains)]

    def by_member(self, values: Array) -> dict[str, Array]:
        """Return the values of the agents of each member, from those of all agents [K]."""
        return {key: values[own] for key, own in zip(self.members, self.own, strict=True)}

    def counts_of(self, active: Array, counts: Array) -> Array:
        """Return the passes [..., K] that decide which phases are due: of a team, those of its agent with most.

        active: [..., K] bool, the agents that make a pass.  counts: [..., K] int64, their passes before.
        """
        if not self.is_joint:
            return counts
        most = counts.max(-1, where=active, initial=0, keepdims=True)
        return np.broadcast_to(most, counts.shape)

    def hyper(self, numbers: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
        """Return the hyperparameters of each member by name, [K_i, 1], from [H, K_i, 1] of each."""
        return {
            key: dict(zip(names, self.backend.ops.unstack(numbers[key]), strict=True))
            for key, names in self._hyper.items()
        }

    def arguments(self, ops: Any, nets: Mapping[str, Any], columns: Columns, hyper: Mapping[str, Any]) -> Any:
        """Return what the functions of a phase get after `ops`: (networks, batch, hyper), or (team,)."""
        if self.is_joint:
            return (self.in_pass(ops, nets, columns, hyper),)
        return under(nets, ALONE), TensorBatch(**columns[ALONE]), hyper[ALONE]

    def in_pass(self, ops: Any, nets: Mapping[str, Any], columns: Columns, hyper: Mapping[str, Any]) -> Team:
        """Return the team with the columns of rows.  nets: member/name -> network.  hyper: see `hyper`."""
        members = [
            Member(member.algorithm, under(nets, key), TensorBatch(**columns[key]), hyper[key], seats, places)
            for (key, member), seats, places in zip(self.members.items(), self.seats, self.places, strict=True)
        ]
        first = {name: number[:1] for name, number in hyper[ALONE].items()}
        rows = TensorBatch(**columns[OF_TEAM])
        return Team(ops, members, under(nets, OF_TEAM), rows, first, self.order)


def under(nets: Mapping[str, Any], key: str) -> dict[str, Any]:
    """Return the networks of a member, or of the team, by their own names."""
    return {name.removeprefix(f"{key}/"): net for name, net in nets.items() if name.startswith(f"{key}/")}
