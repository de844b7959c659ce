"""Team rewards in compiled code; `trainer.team_reward` computes the same numbers, bit for bit."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import float32

from marltrain.core.layout import Array
from marltrain.jit.compiling import compiled
from marltrain.jit.views import address_of, f32, i64, record_at
from marltrain.trainer.seats.team_reward import TeamRewards

SHARED = np.dtype([(name, np.int64) for name in ("players", "envs", "teams", "mean", "team", "own", "shared")])
"""Arguments of the kernel: numbers and addresses.

players, envs, teams: how many there are.  mean: whether a team gets the mean of its rewards, else their sum.
team: address of the number of each player's team, [P]; -1 for a player without one.
own, shared: addresses of the players' own rewards, and of those that they learn from, [P, E].
"""


class SharedRewards:
    """The rewards to learn from, which compiled code fills in.

    address: of SHARED.  rewards: [P, E] float32.
    """

    def __init__(self, given: TeamRewards, own: Array) -> None:
        """Allocate the rewards.  own: rewards of the players, [P, E] float32.  given: teams, not a function."""
        self.rewards = np.zeros_like(own)
        self._own, self._team = own, np.full(len(own), -1)
        for number, team in enumerate(given.teams):
            self._team[team] = number
        self._record = np.zeros(1, SHARED)
        record = self._record[0]
        record["players"], record["envs"] = own.shape
        record["teams"], record["mean"] = len(given.teams), given.mean
        record["team"], record["own"], record["shared"] = map(address_of, (self._team, own, self.rewards))
        self.address = address_of(self._record)


@compiled
def shared_at(address: int) -> Any:
    """Return the SHARED record at an address."""
    return record_at(address, SHARED)


@compiled
def share(s: Any, low: int, high: int) -> None:
    """Write the rewards to learn from of the environments `low` to `high`."""
    own, shared = f32(s.own, s.players * s.envs), f32(s.shared, s.players * s.envs)
    team = i64(s.team, s.players)
    for p in range(s.players):
        for e in range(low, high):
            shared[p * s.envs + e] = own[p * s.envs + e]
    for t in range(s.teams):
        for e in range(low, high):
            total, size = float32(0.0), 0
            for p in range(s.players):
                if team[p] == t:
                    total = own[p * s.envs + e] if size == 0 else total + own[p * s.envs + e]
                    size += 1
            for p in range(s.players):
                if team[p] == t:
                    shared[p * s.envs + e] = total / float32(size) if s.mean else total
