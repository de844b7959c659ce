"""The random generator of agents with code of their own."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np

from marltrain.errors import AgentError
from marltrain.random import fresh_seed, generator


class RngMixin:
    """An agent's generator, `rng`: in training, in tests and outside a run it is another stream of the agent's seed."""

    seed: int | None = None
    _rng: np.random.Generator | None = None
    _given_rng: np.random.Generator | None = None

    @property
    def rng(self) -> np.random.Generator:
        """The generator to draw from in `act`, `observe` and `update`.

        Agents without a seed of their own draw from the run's, in each seat something else. A run has one stream for
        training, which its checkpoints hold, and one for tests, which begins anew at every test. It may be set, to a
        generator of your own: then that one is drawn from everywhere. Raises AgentError before there is a seed.
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
        """Let `rng` be this stream for a while."""
        before, self._rng = self._rng, rng
        try:
            yield
        finally:
            self._rng = before

    def _known_seed(self) -> int:
        """Return its seed, or a fresh one for an agent that was made with spaces and is used outside of a run."""
        if self.seed is None and getattr(self, "layout", None) is None:
            raise AgentError(
                f"rng: this {type(self).__name__} has no seed yet: a run gives it one with its seat. Draw from rng in "
                "act, observe or update, or set seed first"
            )
        return fresh_seed() if self.seed is None else self.seed
