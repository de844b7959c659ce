"""Windows: the newest rows that may be drawn, by number, by share, by a function, or by the effective sample size."""

from __future__ import annotations

import math

import numpy as np

from marltrain.core.errors import AgentError
from marltrain.core.layout import Array
from marltrain.policies.memory.config import Replay
from marltrain.policies.memory.memory_numbers import MemoryNumbers

FOREVER = 2**62
CHECKS = 100
"""How often the effective sample size is checked while as many rows arrive as the memory holds."""


class Windows:
    """The windows of K agents over one ring, in batch steps of `num_envs` env steps.

    newest: [K] int64, the newest batch steps that each agent may draw.
    clear_every: batch steps between two moments at which all rows are dropped; 0: never.
    """

    def __init__(self, replay: Replay, numbers: MemoryNumbers, num_envs: int, agents: int) -> None:
        """Start with all rows; `numbers` are the agents' own."""
        self.replay, self.numbers, self.num_envs = replay, numbers, num_envs
        self.newest = np.full(agents, FOREVER, np.int64)
        self.clear_every = 0 if replay.clear_every is None else self.batch_steps(replay.clear_every)
        self._capacity = self.batch_steps(replay.capacity or 1)
        self._every = max(1, self._capacity // CHECKS)
        self._checked = 0

    def batch_steps(self, env_steps: float) -> int:
        """Return a number of env steps as batch steps, rounded up, at least 1."""
        return max(1, math.ceil(min(env_steps, FOREVER) / self.num_envs))

    def set(self, now: int, first: Array) -> None:
        """Compute each agent's window at batch step `now`; raises AgentError for a function that keeps nothing.

        first: [K] int64, the oldest batch steps that can still be drawn.
        """
        replay, decide = self.replay, self.replay.window_function
        if decide is not None:
            for k, oldest in enumerate(first.tolist()):
                held = (now - oldest) * self.num_envs
                kept = decide(held) if held else 1
                if not isinstance(kept, int | float | np.integer | np.floating) or not kept >= 1:
                    raise AgentError(
                        f"memory: window({held}) must return the number of env steps to keep, at least 1, got {kept!r}"
                    )
                self.newest[k] = self.batch_steps(float(kept))
        elif replay.window is not None:
            for k, value in enumerate(self.numbers.values("window").tolist()):
                self.newest[k] = self.batch_steps(self._env_steps(value))

    def check(self, now: int) -> tuple[int, int, int] | None:
        """Return the batch steps (start, stop, kept) if the effective sample size is due to be checked, else None.

        The rows from `start` to before `stop` count; those since `kept` stay in any case. `stop` is a multiple of
        the batch steps between two checks, and `start` and `kept` have fixed distances from it, so that the three
        numbers do not depend on the batch step of the call.
        """
        stop = now // self._every * self._every
        if stop <= self._checked:
            return None
        self._checked = stop
        kept = stop - self.batch_steps(self._env_steps(self.replay.effective_low))
        return max(0, stop + self._every - self._capacity), stop, kept

    def restore(self, now: int) -> None:
        """Continue from batch step `now`, up to which everything was checked."""
        self._checked = now // self._every * self._every

    def _env_steps(self, value: float) -> float:
        """Return a share of the capacity (up to 1) or a number of env steps (above 1) as a number."""
        return value * (self.replay.capacity or 1) if value <= 1 else value
