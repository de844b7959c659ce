"""The random generator of custom agents."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np

from marltrain.core.errors import AgentError
from marltrain.core.seeds import fresh_seed, generator


class RngMixin:
    """Mixin for the generator `rng` of an agent; training, tests and use outside a run have separate streams."""

    seed: int | None = None
    _rng: np.random.Generator | None = None
    _given_rng: np.random.Generator | None = None

    @property
    def rng(self) -> np.random.Generator:
        """The generator to draw from in `act`, `observe` and `update`.

        Agents without their own seed get one from the run's seed, a different one in each seat. A run has a stream for
        training, which its checkpoints store, and a stream for tests, which is reseeded at every test. If the property
        is set to a generator, that generator is used everywhere. Raises AgentError before the agent has a seed.
        """
        if self._given_rng is not None:
            return self._given_rng
        if self._rng is None:
            self._rng = generator(self._known_seed(), "act")
        return self._rng

    @rng.setter
    def rng(self, rng: np.random.Generator) -> None:
        self._given_rng = rng

    @contextmanager
    def drawing_from(self, rng: np.random.Generator) -> Iterator[None]:
        """Use this generator as `rng` inside the context."""
        before, self._rng = self._rng, rng
        try:
            yield
        finally:
            self._rng = before

    def _known_seed(self) -> int:
        """Return the seed, or a fresh seed for an agent made with spaces and used outside a run; else AgentError."""
        if self.seed is None and getattr(self, "layout", None) is None:
            raise AgentError(
                f"rng: this {type(self).__name__} has no seed yet: a run gives it one with its seat. Draw from rng in "
                "act, observe or update, or set seed first"
            )
        return fresh_seed() if self.seed is None else self.seed
