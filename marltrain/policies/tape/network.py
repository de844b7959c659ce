"""Networks whose weights are views of one recorded leaf."""

from __future__ import annotations

from typing import Any

from marltrain.policies.networks.specs import Plan
from marltrain.policies.tape import ops
from marltrain.policies.tape.symbols import Symbol, Tape


class RecordedNetwork:
    """K networks of one plan; a call records the forward pass.

    name: by which a recording knows the weights.
    leaf: the weights [K, N] of all parameters and members, in the order of `StackedNetwork.flat`.
    """

    def __init__(self, tape: Tape, name: str, plan: Plan, agents: int) -> None:
        """Record the weights of K = `agents` networks."""
        self.name, self.plan = name, plan
        self.leaf = tape.node("weights", (), (agents, plan.members * plan.size), "float", (name,))
        pieces = ops.split(self.leaf.reshape(-1, plan.size), [parameter.size for parameter in plan.parameters])
        shapes = [parameter.shape for parameter in plan.parameters]
        self.weights = [piece.reshape(len(piece), *shape) for piece, shape in zip(pieces, shapes, strict=True)]

    def __call__(self, *inputs: Any) -> list[Symbol]:
        """Return the output of each head, see `Plan.forward`; without gradients in `Tape.no_gradient`."""
        frozen = self.leaf.tape.frozen
        weights = [weight.detach() for weight in self.weights] if frozen else self.weights
        return self.plan.forward(ops, weights, *inputs)
