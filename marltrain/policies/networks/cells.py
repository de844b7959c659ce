"""Cells of recurrent networks, written with `ops` for all frameworks.

A cell reads an input and the state of the row before, and returns the next state, whose first part is its output. The
carry of a row [K, B, carry_width] is the state before the row: all parts, one after another. It is zero at the start.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

from marltrain.policies.networks.parameters import Parameter
from marltrain.policies.ops import Ops

State = tuple[Any, ...]
"""The parts of a state, each [K, B, units]."""


@dataclass(frozen=True)
class Cell(ABC):
    """A cell with `units` outputs; `gates` sums of inputs and of outputs of the row before; `parts` of a state."""

    units: int
    gates: ClassVar[int]
    parts: ClassVar[int]

    @property
    def carry_width(self) -> int:
        """Number of values of a carry."""
        return self.parts * self.units

    def parameters(self, width: int) -> list[Parameter]:
        """Return weights and biases of the inputs [width], then of the outputs of the row before.

        The columns of the gates are side by side.
        """
        columns = self.gates * self.units
        return [
            Parameter("cell.input.weight", (width, columns)),
            Parameter("cell.input.bias", (columns,), constant=0.0),
            Parameter("cell.carry.weight", (self.units, columns)),
            Parameter("cell.carry.bias", (columns,), constant=0.0),
        ]

    @abstractmethod
    def _next(self, ops: Ops, given: Any, before: Any, state: State) -> State:
        """Return the next state.

        given, before: [K, B, gates * units], sums of the inputs and of the outputs of the row before.
        """

    def step(self, ops: Ops, weights: Iterator[Any], x: Any, carry: Any) -> tuple[Any, Any]:
        """Return (output [K, B, units], next carry) of rows x [K, B, width] with their carries."""
        given = ops.linear(x, next(weights), next(weights))
        state = self._split(ops, carry)
        state = self._next(ops, given, ops.linear(state[0], next(weights), next(weights)), state)
        return state[0], self._joined(ops, state)

    def unrolled(
        self, ops: Ops, weights: Iterator[Any], length: int, x: Any, carry: Any, begins: Any, burn_in: int = 0
    ) -> tuple[Any, Any]:
        """Return (output [K, B, units], next carry) of each row, over sequences of `length` rows one after another.

        A row that `begins` [K, B] bool starts from its `carry`, as the first row of each sequence does; the carries of
        the others are not read. No gradient flows through the first `burn_in` rows of a sequence to later ones.
        """
        given = ops.time_steps(ops.linear(x, next(weights), next(weights)), length)
        starts = zip(*(ops.time_steps(part, length) for part in self._split(ops, carry)), strict=True)
        weight, bias = next(weights), next(weights)
        states: list[State] = []
        anew = ops.time_steps(begins[..., None], length)
        for i, (now, start) in enumerate(zip(given, starts, strict=True)):
            state = start
            if states:
                before = [ops.stop_gradient(part) for part in states[-1]] if i == burn_in else states[-1]
                state = tuple(ops.where(anew[i], s, p) for s, p in zip(start, before, strict=True))
            states.append(self._next(ops, now, ops.linear(state[0], weight, bias), state))
        parts = [ops.joined_steps(part) for part in zip(*states, strict=True)]
        return parts[0], self._joined(ops, parts)

    def _split(self, ops: Ops, carry: Any) -> State:
        return (carry,) if self.parts == 1 else tuple(ops.split(carry, [self.units] * self.parts))

    def _joined(self, ops: Ops, state: Any) -> Any:
        return state[0] if self.parts == 1 else ops.concat(list(state), -1)


def carries_apart(ops: Ops, carry: Any, members: int) -> Any:
    """Return the carries of the members of ensembles: [K, B, members * C] -> [K * members, B, C]."""
    own = carry.shape[-1] // members
    return ops.fold_agents(ops.stack(list(ops.split(carry, [own] * members)), 1))


def carries_joined(ops: Ops, carry: Any) -> Any:
    """Put the carries of the members of ensembles side by side: [K, members, B, C] -> [K, B, members * C]."""
    return ops.concat([carry[:, i] for i in range(carry.shape[1])], -1)


class GRUCell(Cell):
    """Gated recurrent unit: Cho et al. 2014 (arXiv:1406.1078), with the reset gate after the product, as in cuDNN.

    r, z = sigmoid(W x + U h), n = tanh(W_n x + r * U_n h), next h = (1 - z) * n + z * h, each U h and W x with a bias.
    The columns of the gates are in the order r, z, n, as in `torch.nn.GRU`.
    """

    gates, parts = 3, 1

    def _next(self, ops: Ops, given: Any, before: Any, state: State) -> State:
        (h,) = state
        given, new = ops.split(given, [2 * self.units, self.units])
        before, held = ops.split(before, [2 * self.units, self.units])
        r, z = ops.split(ops.sigmoid(given + before), [self.units, self.units])
        n = ops.tanh(new + r * held)
        return (n + z * (h - n),)


class LSTMCell(Cell):
    """Long short-term memory: Hochreiter and Schmidhuber 1997, with the forget gate of Gers et al. 2000.

    i, f, o = sigmoid(W x + U h), g = tanh(W_g x + U_g h), next c = f * c + i * g, next h = o * tanh(next c), each sum
    with two biases. The columns of the gates are in the order i, f, o, g. The state is h, then c.
    """

    gates, parts = 4, 2

    def _next(self, ops: Ops, given: Any, before: Any, state: State) -> State:
        _, c = state
        sums, new = ops.split(given + before, [3 * self.units, self.units])
        i, f, o = ops.split(ops.sigmoid(sums), [self.units] * 3)
        c = f * c + i * ops.tanh(new)
        return o * ops.tanh(c), c
