"""Acting of K agents of one algorithm, in compiled code, numpy or tensors, with their noise."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from marltrain.layout import Array, Obs
from marltrain.policies.algorithms.base import Algorithm
from marltrain.policies.backends import numpy_ops
from marltrain.policies.backends.base import Backend, Forward, Network
from marltrain.policies.batch import Acted
from marltrain.policies.learner.hyperparameters import StackedHyperparameters
from marltrain.policies.learner.noise import Noise

if TYPE_CHECKING:
    from marltrain.policies.compiled.acting import CompiledActing

Rngs = Sequence[np.random.Generator]


class Actor:
    """Acting of K agents with the networks set by `use`, without changing the networks.

    nets: name -> network used for acting.
    hyper: the agents' settings.
    noise: noise that is drawn ahead, or None if each act draws its own. A custom model is seeded from the same stream
      at every act, so its noise must not be drawn ahead.
    """

    nets: Mapping[str, Network]

    def __init__(
        self,
        algorithm: Algorithm,
        backend: Backend,
        hyper: StackedHyperparameters,
        seeded: Callable[[np.random.Generator], AbstractContextManager[None]] | None,
    ) -> None:
        """Store the parts that acting needs.

        hyper: the agents' settings.  seeded: function that returns the seeding context of a custom model, or None.
        """
        self.algorithm, self.backend, self.hyper, self._seeded = algorithm, backend, hyper, seeded
        ahead = seeded is None and vouched(algorithm, "noise", "noise_by_rows")
        self.noise = Noise(algorithm.noise) if ahead else None
        self._in_numpy: Mapping[str, Forward] | None = None
        self._natives: dict[int | None, CompiledActing | None] = {}

    def use(self, nets: Mapping[str, Network]) -> None:
        """Set the networks used for acting."""
        views = {name: view for name, net in nets.items() if (view := net.in_numpy()) is not None}
        in_numpy = len(views) == len(nets) and vouched(self.algorithm, "act", "acts_in_numpy")
        self.nets, self._in_numpy = nets, views if in_numpy else None
        self._natives = {}

    def native(self, row: int | None = None) -> CompiledActing | None:
        """Return the compiled acting of one agent or of all agents; None if unsupported."""
        kind = self.algorithm.native() if self.noise is not None and self._in_numpy is not None else None
        if kind is None or "native" not in vars(type(self.algorithm)):  # a subclass may act differently
            return None
        from marltrain.policies.compiled.acting import CompiledActing  # loads numba
        from marltrain.policies.compiled.network import is_known

        network = self.nets[kind.network]
        return CompiledActing(kind, network, row) if is_known(network) else None

    def act(self, obs: Obs, legal: Array | None, explore: Array, rngs: Rngs) -> Acted:
        """Choose actions for observations [K, B, ...]; noise is drawn for every row."""
        draw = self.algorithm.noise if self.noise is None else self.noise.next
        noise = draw(rngs, explore.shape[1])
        return self._decided(None, obs, legal, noise, explore, rngs[0])

    def act_row(self, row: int, obs: Obs, legal: Array | None, explore: Array, rng: np.random.Generator) -> Acted:
        """Choose actions for one agent only, [1, B, ...]."""
        noise = self.algorithm.noise([rng], explore.shape[1])
        return self._decided(row, obs, legal, noise, explore, rng)

    def _decided(
        self, row: int | None, obs: Obs, legal: Array | None, noise: Any, explore: Array, rng: np.random.Generator
    ) -> Acted:
        """Choose actions for one agent or for all agents: in compiled code, else in numpy, else in tensors."""
        if row not in self._natives:
            self._natives[row] = self.native(row)
        if (native := self._natives[row]) is not None:
            return native.act(obs, legal, noise, explore, self.hyper.columns)
        rows = slice(None) if row is None else slice(row, row + 1)
        if self._in_numpy is not None:
            hyper = (
                self.hyper.columns
                if row is None
                else {name: column[rows] for name, column in self.hyper.columns.items()}
            )
            action, extras = self.algorithm.act(
                numpy_ops, _of_row(self._in_numpy, row), obs, legal, noise, explore, hyper
            )
            return Acted(self.algorithm.to_units(action), None, extras)
        with nullcontext() if self._seeded is None else self._seeded(rng):
            return self._in_tensors(row, rows, obs, legal, noise, explore)

    def _in_tensors(
        self, row: int | None, rows: slice, obs: Obs, legal: Array | None, noise: Any, explore: Array
    ) -> Acted:
        backend, algorithm = self.backend, self.algorithm
        tensor, hyper = backend.tensor, {name: value[rows] for name, value in self.hyper.tensors().items()}
        with backend.no_gradient():
            action, extras = algorithm.act(
                backend.ops, _of_row(self.nets, row), tensor(obs), tensor(legal), tensor(noise), tensor(explore), hyper
            )
        kept = {name: backend.numpy(value) for name, value in extras.items()}
        return Acted(algorithm.to_units(backend.numpy(action)), None, kept)


def vouched(algorithm: Algorithm, method: str, flag: str) -> bool:
    """Return whether the class that defines `method` also sets `flag` to True.

    A subclass that overrides the method without the flag does not inherit the flag.
    """
    definer = next(cls for cls in type(algorithm).__mro__ if method in vars(cls))
    return bool(vars(definer).get(flag, False))


def _of_row(nets: Mapping[str, Forward], row: int | None) -> Mapping[str, Forward]:
    """Return the networks of all agents, or those of one agent if `row` is given."""
    return nets if row is None else {name: partial(net, row=row) for name, net in nets.items()}
