"""Episodes that end within a call of compiled code: the kernel lists them, and restarts their counts."""

from __future__ import annotations

from typing import Any

import numpy as np

from marltrain.core.spec import Step
from marltrain.jit.compiling import compiled
from marltrain.jit.views import address_of, bools, f32, f64, i64, record_at
from marltrain.trainer.collecting.episodes import EndedEpisodes, RunningEpisodes

LEAST_ROOM = 4096
"""Least number of episodes that the list of a call can hold."""
ENDED = np.dtype([(name, np.int64) for name in (
    "players", "envs", "room", "wanted", "count", "step", "env", "number", "length", "following", "returned",
    "reward", "ended", "episode", "returns", "lengths", "numbers",
)])  # fmt: skip
"""Arguments of the kernel: numbers and addresses.

room: episodes that the list can hold.  wanted: number of episodes after which the call ends.  count: those in the list.
step, env, number, length, following, returned: the list, int64 [room], `returned` float64 [P, room].
reward, ended, episode: arrays of the Step.  returns, lengths, numbers: those of `RunningEpisodes`.
"""


class EndedTable:
    """The arguments of the kernel, and the list.

    address: of the ENDED record.
    """

    def __init__(self, episodes: RunningEpisodes) -> None:
        """Allocate the list for the running episodes."""
        players, envs = episodes.returns.shape
        room = max(LEAST_ROOM, 2 * envs)
        self._numbers, self._returns = np.zeros((5, room), np.int64), np.zeros((players, room))
        self._record = np.zeros(1, ENDED)
        record = self._record[0]
        record["players"], record["envs"], record["room"] = players, envs, room
        for name, column in zip(("step", "env", "number", "length", "following"), self._numbers, strict=True):
            record[name] = address_of(column)
        record["returned"] = address_of(self._returns)
        for name in ("returns", "lengths", "numbers"):
            record[name] = address_of(getattr(episodes, name))
        self.address = address_of(self._record)

    def set_step(self, step: Step) -> None:
        """Read the outcomes of this Step from now on."""
        record = self._record[0]
        for name in ("reward", "ended", "episode"):
            record[name] = address_of(getattr(step, name))

    def start(self, wanted: int) -> None:
        """Empty the list; a call ends after the batch step in which it gets `wanted` episodes."""
        self._record["count"], self._record["wanted"] = 0, wanted

    def taken(self) -> EndedEpisodes:
        """Return a copy of the list."""
        count = int(self._record["count"][0])
        steps, envs, numbers, lengths, following = self._numbers[:, :count].copy()
        return EndedEpisodes(steps, envs, numbers, lengths, following, self._returns[:, :count].copy())


@compiled
def ended_at(address: int) -> Any:
    """Return the ENDED record at an address."""
    return record_at(address, ENDED)


@compiled
def list_ended(t: Any, made: int) -> bool:
    """List the episodes that ended in the last of `made` batch steps; return whether the call goes on after it."""
    ended, lengths, numbers = bools(t.ended, t.envs), i64(t.lengths, t.envs), i64(t.numbers, t.envs)
    episode = i64(t.episode, t.envs)
    returns, rewards = f64(t.returns, t.players * t.envs), f32(t.reward, t.players * t.envs)
    returned = f64(t.returned, t.players * t.room)
    for e in range(t.envs):
        if ended[e] and lengths[e] + 1 > 0:  # the others were dropped
            i64(t.step, t.room)[t.count], i64(t.env, t.room)[t.count] = made, e
            i64(t.number, t.room)[t.count], i64(t.length, t.room)[t.count] = numbers[e], lengths[e] + 1
            i64(t.following, t.room)[t.count] = episode[e]
            for p in range(t.players):
                returned[p * t.room + t.count] = returns[p * t.envs + e] + rewards[p * t.envs + e]
            t.count += 1
    return bool(t.count < t.wanted and t.count + t.envs <= t.room)


@compiled
def count_step(t: Any, low: int, high: int) -> None:
    """Add a step to the returns and lengths of the environments `low` to `high`; restart those of ended episodes."""
    ended, lengths, numbers = bools(t.ended, t.envs), i64(t.lengths, t.envs), i64(t.numbers, t.envs)
    episode = i64(t.episode, t.envs)
    for p in range(t.players):
        returns, rewards = f64(t.returns + 8 * p * t.envs, t.envs), f32(t.reward + 4 * p * t.envs, t.envs)
        for e in range(low, high):
            returns[e] = 0.0 if ended[e] else returns[e] + rewards[e]
    for e in range(low, high):
        lengths[e] = 0 if ended[e] else lengths[e] + 1
        numbers[e] = episode[e] if ended[e] else numbers[e]
