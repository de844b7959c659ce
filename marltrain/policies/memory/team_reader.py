"""Reader of a team: the rows of all its players at the same batch steps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields, replace
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from marltrain.core.errors import AgentError, SaveError
from marltrain.core.layout import Array, Obs, map_tree
from marltrain.core.remedies import unequal_rewards
from marltrain.policies.batches.batch import TeamBatch, TeamRows
from marltrain.policies.memory.choice import SCAN_BELOW
from marltrain.policies.memory.needs import Needs
from marltrain.policies.memory.one_reward import compare
from marltrain.policies.memory.other_players import OtherPlayers
from marltrain.policies.memory.readers import Reader
from marltrain.policies.memory.streams import Streams
from marltrain.storage.state import State

CHECKED = 4096
"""Batch steps of a memory whose rewards are checked at once."""


class TeamReader(Reader):
    """Reader that draws batch steps of a simultaneous game uniformly, with the rows of all players of a team.

    A batch step of an environment can be drawn if an agent may learn from a player's decision in it: the player's seat
    learned then and learns now (`Streams.learning`), and the row is closed. The rows of the other players come with it;
    see `TeamRows.learned`. For recurrent networks (`Needs.block`), the following batch steps of the episode come after
    each one that is drawn.
    """

    def __init__(
        self, streams: Streams, members: Sequence[Sequence[Sequence[int]]], needs: Sequence[Needs], *, one_reward: bool
    ) -> None:
        """Find the players' rows.

        members: the players of the agents, [K][S] for each member of the team; see `TeamBatch`.
        needs: those of each member.
        one_reward: whether the players must have equal rewards.
        """
        self.members = [_Players(streams, seats, own) for seats, own in zip(members, needs, strict=True)]
        super().__init__(self.members[0].ring, [row.tolist() for row in self.members[0].seats], needs[0])
        self.one_reward = one_reward
        ends = np.cumsum([len(member.seats) for member in self.members]).tolist()
        self._agents, self._own = ends[-1], [slice(*both) for both in pairwise([0, *ends])]
        team = {player for held in members for seats in held for player in seats}
        self.others = OtherPlayers(streams.spec, self.ring.every, team) if needs[0].joint_actions else None

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
        in_time, going_on = np.concatenate([each.in_time for each in found]), goes_on(found)
        known = in_time & np.concatenate([each.learned for each in found])
        others = next_others = None
        unknown = np.zeros(len(times), bool)
        if self.others:
            others, next_others = self.others.at(times, envs)[None], self.others.at(times + 1, envs)[None]
            next_others = np.where(going_on[:, None], next_others, np.float32(0))
            unknown = self.others.unknown_next(times, envs, going_on)
        rows = [
            member.rows(each, times, envs, going_on, unknown, gamma[own])
            for member, each, own in zip(self.members, found, self._own, strict=True)
        ]
        reward = self._reward(rows, in_time, envs) if self.one_reward else np.zeros(len(times), np.float32)
        valued = np.concatenate([member.next_present.reshape(-1, len(times)) for member in rows]).any(0)
        state = next_state = None
        if self.needs.state is not None:
            state, next_state = (each[None] for each in self.ring.states[self.needs.state.kind].at_times(times, envs))
        return TeamBatch(
            members=rows, reward=reward[None], discount=np.where(valued, gamma[0], 0.0).astype(np.float32)[None],
            weight=np.asarray(known.any(0), np.float32)[None], state=state, next_state=next_state,
            others=others, next_others=next_others,
        )  # fmt: skip

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

    def _reward(self, rows: Sequence[TeamRows], in_time: Array, envs: Array) -> Array:
        """Return the reward of the team, [B] float32; raises AgentError if its players' rewards differ."""
        rewards = np.concatenate([member.reward.reshape(-1, len(envs)) for member in rows])
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


class Found(NamedTuple):
    """Rows of N players at B batch steps: cells, `next` and more, each [N, B].

    present: the player acted.  in_time: it acted, and its row was closed by the next batch step.
    learned: the agent may learn from the decision, if there is one; see `TeamRows`.
    """

    cells: Array
    pointers: Array
    present: Array
    in_time: Array
    learned: Array


def goes_on(found: Sequence[Found]) -> Array:
    """Return whether a player of the team that acted acts at the next batch step, too, [B] bool."""
    return np.asarray(np.concatenate([each.in_time & (each.pointers >= 0) for each in found]).any(0))


class _Players(Reader):
    """The players of agents with equal spaces: K agents of S seats each, N = K * S players of one group.

    names: the players' names, [N].
    since: [N] int64, no agent learns from a player's decisions before this batch step.
    """

    def __init__(self, streams: Streams, players: Sequence[Sequence[int]], needs: Needs) -> None:
        spec = streams.spec
        places = [[spec.place[player] for player in held] for held in players]
        super().__init__(streams.rings[places[0][0][0]], [[row for _, row in held] for held in places], needs)
        self.names = [spec.names[player] for held in players for player in held]
        self.since = np.zeros(len(self.names), np.int64)

    def size(self) -> Array:
        """See `TeamReader`; `since` is not considered."""
        ring, players = self.ring, self._players
        most: Array = (ring.drawable_count[players] * ring.learning[players]).reshape(len(self.seats), -1).max(1)
        return most

    def may_learn(self, cells: Array, times: Array) -> Array:
        """Return whether the agents may learn from the decisions at cells [N, B] of batch steps [B], [N, B] bool.

        The players' seats learned when they were made, and learn now.
        """
        learned: Array = self.ring.may_learn(cells) & self.ring.learning[self._players][:, None]
        return learned & (times >= self.since[:, None]) if self.since.any() else learned

    def drawable(self, times: Array, envs: Array) -> Array:
        """Return whether the agents may learn from closed rows at batch steps of environments, [N, B] bool."""
        cells = self.cells(times, envs)
        drawable: Array = self.ring.drawable(cells) & self.may_learn(cells, times)
        return drawable

    def cells(self, times: Array, envs: Array) -> Array:
        """Return the cells of all players at batch steps `times` [B] of environments `envs` [B], [N, B]."""
        ring = self.ring
        slots = self._players[:, None] * ring.capacity + times % ring.capacity
        cells: Array = slots * ring.num_envs + envs
        return cells

    def found(self, times: Array, envs: Array, valid: Array) -> Found:
        """Return the players' rows at batch steps of environments; no player is present where `valid` [B] is False."""
        ring, cells = self.ring, self.cells(times, envs)
        pointers, present = ring.read(ring.next, cells), ring.read(ring.acted, cells) & valid
        in_time = present & (ring.closed_at(pointers) == times + 1)
        return Found(cells, pointers, present, in_time, self.may_learn(cells, times))

    def rows(self, found: Found, times: Array, envs: Array, going_on: Array, unknown: Array, gamma: Array) -> TeamRows:
        """Return the columns of the rows.

        gamma: [K], of the agents.
        going_on: [B] bool, whether a player of the team acts at the next batch step, too. A player that joins it there
        has a value, although it was absent before; not in sequences, which know no carry of it.
        unknown: [B] bool, whether next values are unknown: the rows that need one get weight 0.
        """
        ring, cells, present, learned = self.ring, found.cells, found.present, found.learned
        joins = ~present & going_on & (self.needs.block == 0)
        if np.count_nonzero(joins):
            joins &= self._acts(times + 1, envs)
        next_present = joins | (found.in_time & ~ring.read(ring.terminated, cells))
        next_obs, next_legal = self._after(cells, np.where(present, found.pointers, times + 1))
        columns = TeamRows(
            obs=_zero_where_not(present, self._obs(cells)), legal=_legal_where_not(present, ring.legal_at(cells)),
            action=ring.read(ring.action, cells),
            reward=np.where(found.in_time, ring.read(ring.reward, cells), np.float32(0)),
            discount=np.where(next_present, np.repeat(gamma, len(self.seats[0]))[:, None], 0.0).astype(np.float32),
            weight=(found.in_time & learned & ~(next_present & unknown)).astype(np.float32),
            extras=self._extras(cells), next_obs=_zero_where_not(next_present, next_obs),
            next_legal=_legal_where_not(next_present, next_legal),
            cells=cells, present=present, next_present=next_present,
            learned=learned if np.count_nonzero(present & ~learned) else None,
            begins=self._begins(found, times, envs) if self.needs.block else None,
        )  # fmt: skip
        return self._by_agent(columns)

    def _acts(self, times: Array, envs: Array) -> Array:
        """Return whether the players act at batch steps, [N, B] bool; those of the newest have not acted yet."""
        ring = self.ring
        newest = ring.turn[self._players[:, None], envs]
        acts: Array = np.where(times == ring.now, newest, ring.read(ring.acted, self.cells(times, envs)))
        return acts

    def _begins(self, found: Found, times: Array, envs: Array) -> Array:
        """Return whether rows of sequences do not follow the one before them in the batch, [N, B] bool.

        A row that is learned from begins anew after one that is not: the gradient would flow back into that decision.
        No gradient flows from the rows of a burn-in.
        """
        begins, learned = np.ones(found.present.shape, bool), found.learned
        begins[:, 1:] = ~found.in_time[:, :-1] | (found.pointers[:, :-1] != times[1:]) | (envs[1:] != envs[:-1])
        after_burn_in = np.arange(1, len(times)) % self.needs.block > self.needs.burn_in
        begins[:, 1:] |= learned[:, 1:] & ~learned[:, :-1] & after_burn_in
        return begins

    def _by_agent(self, rows: TeamRows) -> TeamRows:
        """Return columns [N, B, ...] as [K, S * B, ...]."""
        agents, seats = len(self.seats), len(self.seats[0])
        if seats == 1:
            return rows

        def joined(array: Array) -> Array:
            return array.reshape(agents, seats * array.shape[1], *array.shape[2:])

        return replace(rows, **{f.name: map_tree(joined, getattr(rows, f.name)) for f in fields(rows)})


def _zero_where_not(valid: Array, obs: Obs) -> Obs:
    """Return observations with zeros where `valid` [N, B] is False: losses multiply them by 0, also if not finite."""
    if np.count_nonzero(valid) == valid.size:
        return obs
    zeroed: Obs = map_tree(
        lambda x: np.where(valid.reshape(*valid.shape, *[1] * (x.ndim - 2)), x, x.dtype.type(0)), obs
    )
    return zeroed


def _legal_where_not(valid: Array, legal: Array | None) -> Array | None:
    """Return legal actions [N, B, n]; all where `valid` [N, B] is False, since losses need at least one."""
    return None if legal is None else legal | ~valid[..., None]
