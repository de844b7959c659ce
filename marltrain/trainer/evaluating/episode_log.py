"""The seeds and actions of a test's episodes, which play them again."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from marltrain.core.layout import Array
from marltrain.core.seeds import child_seed
from marltrain.core.spec import EnvSpec, Step
from marltrain.envs.python.action_log import ActionLog


class PlayedEpisode(NamedTuple):
    """An episode: the seed of its reset, and per group of players the actions [T, P, ...] of its env steps."""

    seed: int
    moves: tuple[Array, ...]


class EpisodeLog:
    """Collects the finished episodes of a test.

    episodes: number of the episode in the test -> `PlayedEpisode`.  numbers: [episodes] int64, the numbers of the
    episodes of the `TestResult`, in its order; a test that is cut leaves some out.
    """

    def __init__(self) -> None:
        """Start empty."""
        self.episodes: dict[int, PlayedEpisode] = {}
        self.numbers: Array = np.zeros(0, np.int64)

    def start(self, spec: EnvSpec, step: Step, seed: int) -> None:
        """Take the first Step of a test, whose environments were reset with the run's seed."""
        self._log, self._seed, self._running = ActionLog(spec, len(step.ended)), seed, step.episode.copy()

    def add(self, actions: tuple[Array, ...]) -> None:
        """Add the actions of one env step, per group [P, E, ...]."""
        self._log.add(actions)

    def follow(self, step: Step, numbers: Array, counts: Array) -> None:
        """Take the Step after these actions.

        numbers: [E] int64, the test's episode that each environment has played.  counts: [E] bool, whether it counts.
        """
        for e in np.flatnonzero(step.ended).tolist():
            if counts[e]:
                seed = child_seed(self._seed, "episode", "test", e, int(self._running[e]))
                moves = tuple(moves.copy() for moves in self._log.of(e))
                self.episodes[int(numbers[e])] = PlayedEpisode(seed, moves)
            self._log.begin(e)
            self._running[e] = step.episode[e]
