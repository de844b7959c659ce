"""A callback: seats act greedily in a part of the training, as they do in tests."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

import marltrain as mt


@dataclass(frozen=True)
class GreedySeats(mt.Callback):
    """Draws the seats that explore anew every `period` env steps; the others act greedily, and agents learn from both.

    Players that block each other end this by a sampled action, so that agents which only sample hardly meet such
    states. Greedy seats meet them as often as tests do. The draws depend on the seed and on the number of env steps
    alone, so that a resumed run equals the uninterrupted one.

    start: number of env steps from which seats are drawn; before, all explore.
    exploring: probability that a seat explores.  period: number of env steps between draws, at least.
    """

    start: int
    exploring: float = 0.5
    period: int = 4096

    def on_collect(self, moment: mt.Moment) -> None:
        """Set the exploration mask of the present period."""
        if moment.env_steps < self.start:
            return
        rng = np.random.default_rng([moment.trainer.seed, moment.env_steps // self.period])
        moment.trainer.exploration_mask = rng.random(len(moment.trainer.exploration_mask)) < self.exploring

    def describe(self) -> dict[str, Any]:
        """Return the settings, for the results."""
        return {"GreedySeats": asdict(self)}
