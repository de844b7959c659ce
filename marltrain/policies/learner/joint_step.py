"""JointStep: the gradient step of a team's phase, over the networks of all its agents and its own."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from marltrain.core.layout import Array
from marltrain.policies.backends.base import Forward, Network, Optimizer
from marltrain.policies.batches.tensor_batch import TensorBatch
from marltrain.policies.interface.joint import JointAlgorithm, Member, Team
from marltrain.policies.learner.gradient_step import TOTAL
from marltrain.policies.learner.weights import Weights

if TYPE_CHECKING:
    from marltrain.policies.learner.algorithm_learner import AlgorithmLearner

OF_TEAM = "team"
"""Prefix of the names of the team's networks, in place of the number of a part."""


class JointStep:
    """Training step of one phase of a team: targets, one loss, gradients, one clipping, optimizers.

    metrics: the names of the values that a call returns; empty before the first call.
    """

    def __init__(self, number: int, parts: Sequence[AlgorithmLearner], team: Weights, seats: Sequence[int],
                 order: Sequence[int]) -> None:  # fmt: skip
        """Store the parts of the team.

        number: of the phase.  seats: [parts], seats of each agent.  order: see `Team`.
        """
        self.algorithms: list[JointAlgorithm] = [part.algorithm for part in parts]  # type: ignore[misc]
        self.number, self.phase = number, self.algorithms[0].phases[number]
        self.backend, self.seats, self.order = parts[0].backend, seats, order
        self.agents = [part.num_agents for part in parts]
        ranks, counts = np.argsort(order), [k * held for k, held in zip(self.agents, seats, strict=True)]
        self.places = [own.tolist() for own in np.split(ranks, np.cumsum(counts)[:-1])]
        self.nets: dict[str, Network] = {}
        self.optimizers: dict[str, Optimizer] = {}
        for i, weights in [*enumerate(part.weights for part in parts), (OF_TEAM, team)]:
            self.nets |= {f"{i}/{name}": net for name, net in weights.nets.items()}
            self.optimizers |= {f"{i}/{name}": optimizer for name, optimizer in weights.optimizers.items()}
        own = [f"{i}/{name}" for i in range(len(parts)) for name in self.phase.trains]
        self.trains = [*own, *(f"{OF_TEAM}/{name}" for name in self.phase.team_trains)]
        self.metrics: tuple[str, ...] = ()
        self._function = self.backend.function(self.compute)

    def __call__(self, columns: Mapping[str, Any], numbers: Mapping[str, Any], due: Mapping[str, Any],
                 extra: Mapping[str, Any]) -> Any:  # fmt: skip
        """Make one gradient step; returns metrics [M, K] of all K agents.

        columns: those of the rows of each part by its number, and of the team.  numbers: part -> [H, K_i, 1].
        due: part -> [K_i] bool tensor, the agents that learn; None: all of them. The others do not change.
        extra: part -> those numbers that the optimizers read, name -> [K_i, 1].
        After a loss or a gradient that is not finite, no weight changes.
        """
        measured = self._function(dict(columns), dict(numbers), dict(due), dict(extra))
        for name in self.trains:
            self.nets[name].discard_copies()
        return measured

    def compute(self, columns: dict[str, Any], numbers: dict[str, Any], due: dict[str, Any], extra: Any) -> Any:
        """Make the step as a function of tensors."""
        ops = self.backend.ops
        hyper = {
            str(i): dict(zip(algorithm.numbers(), ops.unstack(numbers[str(i)]), strict=True))
            for i, algorithm in enumerate(self.algorithms)
        }
        measured, grads = self.backend.gradients(self._losses, self.nets, self.trains, columns, hyper)
        learns = [due[name.split("/")[0]] for name in self.trains]
        grads = [
            grad if learn is None else ops.where(learn[:, None], grad, 0.0)
            for grad, learn in zip(grads, learns, strict=True)
        ]
        squares = [ops.sum(ops.square(grad), -1) for grad in grads]  # of each agent, [K_i]
        factors, fine = self._clipping(ops, squares, measured.pop(TOTAL), hyper)
        for name, grad in zip(self.trains, grads, strict=True):
            part, network = name.split("/")
            algorithm, own = (self.algorithms[0], "0") if part == OF_TEAM else (self.algorithms[int(part)], part)
            rate = hyper[own][algorithm.rate_name(network)][:, 0]
            rate = rate[:1] if part == OF_TEAM else rate
            safe = ops.where(fine[part][:, None], grad * factors[part][:, None], 0.0)
            moved = ops.where(fine[part], rate, 0.0)
            self.optimizers[name].step(self.nets[name], safe, moved, due[part], **extra[part])
        for network in (*self.phase.trains, *self.phase.team_trains):
            places = ((name.split("/"), square) for name, square in zip(self.trains, squares, strict=True))
            sizes = {part: ops.sqrt(square) for (part, own_name), square in places if own_name == network}
            # NaN reports a loss that is not finite, too
            norms = [ops.where(fine[part], size, np.nan) for part, size in sizes.items()]
            measured[f"grad_norm/{network}"] = ops.concat(norms, 0)
            clipped = [size * factors[part] for part, size in sizes.items()]
            measured[f"grad_norm_clipped/{network}"] = ops.concat(clipped, 0)
        self.metrics = tuple(measured)
        return ops.stack([value + self._zeros(ops, value) for value in measured.values()], 0)

    def _clipping(
        self, ops: Any, squares: Sequence[Any], loss: Any, hyper: Mapping[str, Mapping[str, Any]]
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return the factors of the gradients of each part, and whether they and the losses are finite.

        squares: of the gradients of `trains`, each [K_i].  loss: [1], or that of each agent, [K].
        """
        parts = [name.split("/")[0] for name in self.trains]
        own = {part: sum(s for p, s in zip(parts, squares, strict=True) if p == part) for part in dict.fromkeys(parts)}
        if self.phase.apart:
            norms = {part: ops.sqrt(square) for part, square in own.items()}
            limits = {part: hyper[part]["max_grad_norm"][:, 0] for part in own}
            losses = dict(zip(own, ops.split(loss, self.agents), strict=True))
        else:
            norm, limit = ops.sqrt(sum(ops.sum(square, -1) for square in own.values())), hyper["0"]["max_grad_norm"]
            norms, limits, losses = dict.fromkeys(own, norm), dict.fromkeys(own, limit[:1, 0]), dict.fromkeys(own, loss)
        factors = {part: ops.clip(limits[part] / (norm + 1e-6), 0.0, 1.0) for part, norm in norms.items()}
        return factors, {part: ops.isfinite(losses[part] + norm) for part, norm in norms.items()}

    def _zeros(self, ops: Any, value: Any) -> Any:
        """Return zeros [K], to which the values [1] of a team are added to be those of all agents."""
        return ops.tensor_like(value, [0.0] * sum(self.agents))

    def _losses(self, nets: Mapping[str, Forward], columns: Mapping[str, Any], numbers: Any) -> Any:
        """Return the loss, [1] or [K], and the metrics, [1] or [K].  numbers: part -> name -> [K_i, 1]."""
        ops, team = self.backend.ops, self.team(nets, columns, numbers)
        if self.phase.targets is not None:
            with self.backend.no_gradient():
                self.phase.targets(ops, team)
        loss, metrics = self.phase.loss(ops, team)
        joined = {
            name: ops.concat(value, 0) if isinstance(value, list) else value
            for name, value in {**metrics, TOTAL: loss}.items()
        }
        return joined[TOTAL], joined

    def team(self, nets: Mapping[str, Forward], columns: Mapping[str, Any], numbers: Any) -> Team:
        """Return the team with the columns of rows.  nets: part/name -> network.  numbers: part -> name -> [K_i, 1]."""
        members = [
            Member(
                algorithm, _under(nets, str(i)), TensorBatch(**columns[str(i)]), numbers[str(i)], self.seats[i],
                self.places[i],
            )
            for i, algorithm in enumerate(self.algorithms)
        ]  # fmt: skip
        hyper = {name: number[:1] for name, number in numbers["0"].items()}
        rows = TensorBatch(**columns[OF_TEAM])
        return Team(self.backend.ops, members, _under(nets, OF_TEAM), rows, hyper, self.order)


class JointSteps:
    """The gradient steps of a team, one per phase, in order.

    plannable: whether compiled code can make updates with them between batch steps; see `CompiledUpdates`.
    """

    plannable = False

    def __init__(self, steps: Sequence[Any]) -> None:
        """Store the function of each phase, with the arguments and the result of `JointStep`."""
        self.steps = list(steps)

    def __iter__(self) -> Iterator[Any]:
        """Iterate over the functions of the phases."""
        return iter(self.steps)

    def update_targets(
        self, parts: Sequence[AlgorithmLearner], team: Weights, shares: Sequence[Array], of_team: float
    ) -> None:
        """Move the target networks of the parts towards the online networks by `shares`, each [K_i].

        of_team: the share of the networks of the team.
        """
        for part, share in zip(parts, shares, strict=True):
            if part.weights.target and np.count_nonzero(share):
                part.weights.update_targets(share)
        if team.target and of_team:
            team.update_targets(np.array([of_team]))


def _under(nets: Mapping[str, Any], part: str) -> dict[str, Any]:
    """Return the networks of a part by their own names."""
    return {name.removeprefix(f"{part}/"): net for name, net in nets.items() if name.startswith(f"{part}/")}
