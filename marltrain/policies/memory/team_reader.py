"""Reader of a team: the rows of all its players at the same batch steps."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from marltrain.core.errors import AgentError, SaveError
from marltrain.core.layout import Array
from marltrain.core.remedies import unequal_rewards
from marltrain.policies.backends.row_memory import RowMemory
from marltrain.policies.batches.batch import TeamBatch
from marltrain.policies.memory.choice import SCAN_BELOW
from marltrain.policies.memory.needs import Needs
from marltrain.policies.memory.one_reward import compare
from marltrain.policies.memory.other_players import OtherPlayers
from marltrain.policies.memory.readers import Reader
from marltrain.policies.memory.streams import Streams
from marltrain.policies.memory.team_players import Found, Players, goes_on
from marltrain.storage.state import State

CHECKED = 4096
"""Batch steps of a memory whose rewards are checked at once."""


class TeamReader(Reader):
    """Reader that draws batch steps of a simultaneous game uniformly, with the rows of all players of a team.

    A batch step of an environment can be drawn if an agent may learn from a player's decision in it: the player's seat
    learned then and learns now (`Streams.learning`), and the row is closed. The rows of the other players come with it;
    see `TeamRows.learned`. Rewards are summed over up to `Needs.n_step` batch steps. For recurrent networks
    (`Needs.block`), the following batch steps of the episode come after each one that is drawn.
    """

    def __init__(
        self, streams: Streams, members: Sequence[Sequence[Sequence[int]]], needs: Sequence[Needs], *, one_reward: bool
    ) -> None:
        """Find the players' rows.

        members: the players of the agents, [K][S] for each member of the team; see `TeamBatch`.
        needs: those of each member.
        one_reward: whether the players must have equal rewards.
        """
        self.members = [Players(streams, seats, own) for seats, own in zip(members, needs, strict=True)]
        super().__init__(self.members[0].ring, [row.tolist() for row in self.members[0].seats], needs[0])
        self.one_reward = one_reward
        ends = np.cumsum([len(member.seats) for member in self.members]).tolist()
        self._agents, self._own = ends[-1], [slice(*both) for both in pairwise([0, *ends])]
        team = {player for held in members for seats in held for player in seats}
        self.others = OtherPlayers(streams.spec, self.ring.every, team) if needs[0].joint_actions else None

    def mirror(self, memory: RowMemory) -> None:
        """See `Reader`; the team has one device."""
        super().mirror(memory)
        for member in self.members:
            member.mirror(memory)

    def size(self) -> Array:
        """Return the number of rows that each agent may learn from, of its player that has most, [K] int64."""
        return np.concatenate([member.size() for member in self.members])

    def sample(self, rngs: Sequence[np.random.Generator | None], gamma: Array, batch_size: int) -> TeamBatch:
        """Draw `batch_size` batch steps with the first generator that is not None.  gamma: [K], of all agents.

        With `Needs.block`, these are sequences of so many batch steps; one that ends early is filled with rows of
        weight 0.
        Raises AgentError if no row is closed, or if the players' rewards must be equal, and they or the discounts are
        not.
        """
        rng = next((rng for rng in rngs if rng is not None), None)
        if rng is None or not self.size().any():
            raise AgentError("no agent of the team has a closed row to learn from yet; ask `size()` first")
        if not self.needs.block:
            return self.at(*self._draw(rng, batch_size), gamma)
        drawn = self._draw(rng, -(-batch_size // (self.needs.block - self.needs.burn_in)))
        times, envs, valid, learned = self._continued(*drawn)
        batch = self._batch(times, envs, [member.found(times, envs, valid) for member in self.members], gamma)
        batch.weight *= learned
        for member in batch.members:
            member.weight *= np.tile(learned, member.weight.shape[1] // len(learned))
        return batch

    def at(self, times: Array, envs: Array, gamma: Array) -> TeamBatch:
        """Return the batch steps `times` [B] of environments `envs` [B]; the errors are those of `sample`."""
        every = np.ones(len(times), bool)
        return self._batch(times, envs, [member.found(times, envs, every) for member in self.members], gamma)

    def _batch(self, times: Array, envs: Array, found: Sequence[Found], gamma: Array) -> TeamBatch:
        """Return the batch steps `times` [B] of environments `envs` [B], with the rows that each member has found."""
        if self.one_reward and (gamma != gamma[0]).any():
            raise AgentError(
                "the agents of a team have one discount, and gamma is "
                f"{', '.join(f'{g:g}' for g in np.unique(gamma))}: set agent.hyper.gamma to one value for all of them, "
                "or give make_agents one gamma="
            )
        in_time = np.concatenate([each.in_time for each in found])
        known = in_time & np.concatenate([each.learned for each in found])
        last = self._walk(times, envs, found, gamma)
        going_on = goes_on(last.found)
        others = next_others = None
        unknown = np.zeros(len(times), bool)
        if self.others:
            others, next_others = self.others.at(times, envs)[None], self.others.at(last.times + 1, envs)[None]
            next_others = np.where(going_on[:, None], next_others, np.float32(0))
            unknown = self.others.unknown_next(last.times, envs, going_on)
        rows = [
            member.rows(each, last.found[i], last.times, envs, going_on, unknown, last.reward[i], last.discount[own])
            for i, (member, each, own) in enumerate(zip(self.members, found, self._own, strict=True))
        ]
        valued = np.concatenate([member.next_present.reshape(-1, len(times)) for member in rows]).any(0)
        state = next_state = None
        if self.needs.state is not None:
            states = self.ring.states[self.needs.state.kind]
            places = states.places_of(times, envs)[None], states.places_following(last.times, envs)[None]
            state, next_state = (self.mirrored or states).states(*places)
        return TeamBatch(
            members=rows, reward=last.team_reward[None],
            discount=np.where(valued, last.discount[0], 0.0).astype(np.float32)[None],
            weight=np.asarray(known.any(0), np.float32)[None], state=state, next_state=next_state,
            others=others, next_others=next_others,
        )  # fmt: skip

    def _walk(self, times: Array, envs: Array, found: Sequence[Found], gamma: Array) -> Walked:
        """Follow the team from batch steps `times` [B] over up to n of them, and sum the rewards.

        A sum stops early where the team does not go on, where a player's part of the episode is truncated, and before
        a batch step that could not be drawn.
        """
        factor, times = np.repeat(np.asarray(gamma, np.float64)[:, None], len(times), 1), times.copy()
        rewards = [member.reward(each).astype(np.float64) for member, each in zip(self.members, found, strict=True)]
        team = self._team_reward(found, envs).astype(np.float64)
        for _ in range(1, self.needs.n_step):
            go = self._continues(times, envs, found)
            if not go.any():
                break
            times += go
            found = [member.found(times, envs, np.ones(len(times), bool)) for member in self.members]
            for i, (member, own) in enumerate(zip(self.members, self._own, strict=True)):
                rewards[i] += np.where(go, np.repeat(factor[own], member.num_seats, 0) * member.reward(found[i]), 0.0)
            team += np.where(go, factor[0] * self._team_reward(found, envs), 0.0)
            factor *= np.where(go, gamma[:, None], 1.0)
        return Walked(times, found, [each.astype(np.float32) for each in rewards], team.astype(np.float32), factor)

    def _continues(self, times: Array, envs: Array, found: Sequence[Found]) -> Array:
        """Return whether a sum of rewards goes on after batch steps, [B] bool."""
        cut = [member.truncated(each).any(0) for member, each in zip(self.members, found, strict=True)]
        going: Array = goes_on(found) & ~np.logical_or.reduce(cut) & self._drawable(times + 1, envs)
        return going

    def _draw(self, rng: np.random.Generator, count: int) -> tuple[Array, Array]:
        """Return the batch steps and environments [count] that are drawn, uniformly and with replacement."""
        oldest, envs = max(member.ring.oldest for member in self.members), self.ring.num_envs
        if self.others is not None:
            oldest = max(oldest, self.others.oldest)
        places = (self.ring.now - oldest) * envs
        if self.size().max() < SCAN_BELOW * count:
            every = np.arange(places)
            every = every[self._drawable(oldest + every // envs, every % envs)]
            found = every[rng.integers(len(every), size=count)]
        else:
            found = np.zeros(0, np.int64)
            while len(found) < count:
                tried = rng.integers(places, size=int(1.1 * (count - len(found))) + 8)
                found = np.concatenate([found, tried[self._drawable(oldest + tried // envs, tried % envs)]])[:count]
        return oldest + found // envs, found % envs

    def _continued(self, first: Array, envs: Array) -> tuple[Array, Array, Array, Array]:
        """Return consecutive batch steps around each of `first` [n], and their environments, [n * length].

        `Needs.burn_in` of them come before the first, and the others from it on. Also returns, [n * length] bool,
        whether they are in the same episode and in the memory, and whether they are learned from.
        """
        length, burn_in = self.needs.block, self.needs.burn_in
        places = np.arange(length) - burn_in
        times, envs = (first[:, None] + places).reshape(-1), np.repeat(envs, length)
        there = np.clip(times, max(member.ring.oldest for member in self.members), self.ring.now - 1)
        found = [member.found(there, envs, np.ones(len(there), bool)) for member in self.members]
        going_on = goes_on(found).reshape(-1, length)
        valid = (self._drawable(there, envs) & (times == there)).reshape(-1, length)
        valid[:, burn_in + 1 :] &= going_on[:, burn_in:-1]
        valid[:, burn_in:] = np.logical_and.accumulate(valid[:, burn_in:], 1)
        valid[:, :burn_in] &= going_on[:, :burn_in]
        valid[:, :burn_in] = np.logical_and.accumulate(valid[:, :burn_in][:, ::-1], 1)[:, ::-1]
        return there, envs, valid.reshape(-1), np.tile(places >= 0, len(first))

    def _drawable(self, times: Array, envs: Array) -> Array:
        """Return whether an agent may learn from a closed row of the batch steps, [B] bool."""
        return np.logical_or.reduce([member.drawable(times, envs).any(0) for member in self.members])

    def check(self) -> None:
        """See `Reader`; raises AgentError for rewards of the team's players that differ and must be equal."""
        _, difference = self._unequal()
        if difference:
            raise _refusal(difference)

    def restore(self, state: State) -> None:
        """See `Reader`; raises SaveError for rewards of the team's players that differ and must be equal."""
        where, difference = self._unequal()
        if difference:
            raise SaveError(f"the memory {where}: the players of a team have one reward, and {difference}")

    def _unequal(self) -> tuple[str, str]:
        """Return where in the memory rewards differ that must be equal, and which, in words; empty without any."""
        oldest, envs = max(member.ring.oldest for member in self.members), self.ring.num_envs
        for first in range(oldest, self.ring.now, CHECKED) if self.one_reward else ():
            last = min(first + CHECKED, self.ring.now)
            times, env = np.repeat(np.arange(first, last), envs), np.tile(np.arange(envs), last - first)
            valid = self._drawable(times, env)
            found = [member.found(times, env, valid) for member in self.members]
            rewards = [
                member.ring.read(member.ring.reward, own.cells) for member, own in zip(self.members, found, strict=True)
            ]
            _, difference = self._one_reward(
                np.concatenate(rewards), np.concatenate([own.in_time for own in found]), env
            )
            if difference:
                return f"from batch step {first} to {last}", difference
        return "", ""

    def _team_reward(self, found: Sequence[Found], envs: Array) -> Array:
        """Return the one reward of the team, [B] float32, or 0; raises AgentError if its players' rewards differ."""
        if not self.one_reward:
            return np.zeros(len(envs), np.float32)
        rewards = np.concatenate([member.reward(each) for member, each in zip(self.members, found, strict=True)])
        in_time = np.concatenate([each.in_time for each in found])
        high, difference = self._one_reward(rewards, in_time, envs)
        if difference:
            raise _refusal(difference)
        return np.where(in_time.any(0), high, 0.0).astype(np.float32)

    def _one_reward(self, rewards: Array, in_time: Array, envs: Array) -> tuple[Array, str]:
        """Return the largest of the rewards [N, B] of the players in time, and where they differ in words, or ""."""
        high, b = compare(rewards, in_time)
        if b is None:
            return high, ""
        names = [name for member in self.members for name in member.names]
        rewarded = [f"{name} {rewards[i, b]:g}" for i, name in enumerate(names) if in_time[i, b]]
        return high, f"theirs differ in environment {envs[b]}: {', '.join(rewarded)}"


def _refusal(difference: str) -> AgentError:
    """Return the error of rewards that differ."""
    return AgentError(f"the players of a team learn from one reward, and {difference}. {unequal_rewards()}")


class Walked(NamedTuple):
    """The ends of sums of rewards that begin at B batch steps, for K agents.

    times: [B], the last batch steps.  found: their rows, of each member.
    reward: [N, B] float32 of each member, the discounted sums.  team_reward: [B] float32, that of the team.
    discount: [K, B] float64, gamma to the power of the number of rewards.
    """

    times: Array
    found: Sequence[Found]
    reward: list[Array]
    team_reward: Array
    discount: Array
