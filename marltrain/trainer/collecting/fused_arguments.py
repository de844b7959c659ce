"""FusedArguments: arguments of the fused kernel that are the same however agents act."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from marltrain.core.layout import VECTOR, Array
from marltrain.core.spec import Step
from marltrain.jit.threads import give_way
from marltrain.jit.views import address_of, entry
from marltrain.policies.memory.compiled.reservoir_kernel import offer_program, offers
from marltrain.policies.memory.compiled.ring_kernel import ring_record, takes
from marltrain.policies.memory.compiled.states_kernel import StatesTable
from marltrain.policies.memory.ring import Ring
from marltrain.policies.memory.states import OWN, GlobalStates
from marltrain.trainer.collecting.ended_episodes import EndedTable
from marltrain.trainer.collecting.episodes import RunningEpisodes
from marltrain.trainer.collecting.fused_games import FusedGames, native_games
from marltrain.trainer.collecting.fused_kernel import COUNTS, FUSED, MOST
from marltrain.trainer.collecting.rollout import SyncCollector
from marltrain.trainer.collecting.shared_rewards import SharedRewards
from marltrain.trainer.seats.team_reward import TeamRewards


def can_record(sync: SyncCollector) -> bool:
    """Return whether compiled code steps the environments and writes the ring buffers."""
    envs, streams = sync.envs, sync.recorder.streams
    if native_games(envs) is None or len(envs.spec.groups) > MOST:
        return False
    if not all(takes(ring) for ring in streams.rings.values()):
        return False
    only_vectors = all(list(group.layout.shapes) == [VECTOR] for group in envs.spec.groups)
    return len(streams.states) <= 1 and (only_vectors or not records_joined(sync))


def records_joined(sync: SyncCollector) -> bool:
    """Return whether joined observations are recorded as global states."""
    return any(states.kind != OWN for states in sync.recorder.streams.states.values())


def records_fields(sync: SyncCollector) -> bool:
    """Return whether fields of native games are recorded when episodes end."""
    native = native_games(sync.envs)
    return native is not None and native.batch.records_fields


class FusedArguments:
    """The record of arguments, with the games, the ring buffers and the list of ended episodes.

    record: one FUSED; address: its address.  counts: one COUNTS.  games, rings, ended: what it points to.
    """

    def __init__(
        self, sync: SyncCollector, episodes: RunningEpisodes, team_rewards: TeamRewards | None, plain: int
    ) -> None:
        """Fill in the arguments that stay the same.

        episodes: the running ones.  plain: which steps compiled code records, see FUSED.
        team_rewards: the rewards to learn from, not computed by a function; None: the players' own.
        """
        self._recorder, self._team_rewards = sync.recorder, team_rewards
        self.games, self.ended = FusedGames(sync.envs), EndedTable(episodes)
        self.rings = list(sync.recorder.streams.rings.values())
        self._ring_tables: list[Array] = []
        self._capacities: list[tuple[int, int]] = []
        self._one, self.counts = np.zeros(1, FUSED), np.zeros(1, COUNTS)
        self.record, spec, envs = self._one[0], sync.envs.spec, sync.envs.num_envs
        self.wrong = np.empty(0, np.int64)
        record = self.record
        record["game"], record["batch"] = self.games.batch.entry, self.games.batch.address
        record["columns"], record["rotation"] = self.games.columns, self.games.rotation
        record["envs"], record["players"], record["plain"] = envs, len(spec.players), plain
        record["low"], record["high"] = 0, envs
        record["episodes"] = self.ended.address
        record["rings"], record["groups"] = len(self.rings), len(spec.groups)
        record["counts"], record["give_way"] = address_of(self.counts), give_way()
        self.address = address_of(self._one)

    @property
    def room(self) -> int:
        """Number of batch steps that compiled code can record before a reader must have read."""
        return min((ring.room for ring in self.rings), default=2**62)

    @property
    def outdated(self) -> bool:
        """Whether a ring buffer or its end table has grown since the last `refresh`."""
        return self._capacities != self._sizes()

    def _sizes(self) -> list[tuple[int, int]]:
        stored: list[Ring | GlobalStates] = [*self.rings, *self._recorder.streams.states.values()]
        return [(each.capacity, len(each.ends.time)) for each in stored]

    def refresh(self, step: Step) -> None:
        """Set the addresses of arrays that may be reallocated: grown ring buffers and ends."""
        record, self._capacities = self.record, self._sizes()
        self._ring_tables = [self._table(ring, step) for ring in self.rings]
        self.fill("ring", [address_of(table) for table in self._ring_tables])
        self._set_reservoirs()
        for states in self._recorder.streams.states.values():
            self._states_table = StatesTable(states, step, self._recorder.streams.spec)
            record["states"] = self._states_table.address
        self.fill("turn", [address_of(turn) for turn in step.turn])
        self.fill("size", [turn.size for turn in step.turn])
        self.ended.set_step(self.games.joined(step))
        for name in ("ended", "terminated", "truncated"):
            record[name] = address_of(getattr(step, name))
        record["learned"] = address_of(step.reward)
        if self._team_rewards is not None:
            self._shared = SharedRewards(self._team_rewards, step.reward)
            record["shared"], record["learned"] = self._shared.address, address_of(self._shared.rewards)

    def _set_reservoirs(self) -> None:
        """Set the arguments by which decisions are offered to the reservoirs of the rings."""
        offered = [None if ring.reservoir is None else offers(ring, ring.reservoir) for ring in self.rings]
        self._offered = offered  # kept alive: compiled code has only addresses
        self.fill("reservoir", [0 if own is None else address_of(own) for own in offered])
        if any(own is not None for own in offered):
            self.record["offer"] = entry(offer_program(), 2)

    def start(self, episodes: int) -> None:
        """Begin a call from the newest rows; it ends after a batch step with which `episodes` have ended."""
        self.ended.start(episodes)
        for ring, table in zip(self.rings, self._ring_tables, strict=True):
            table["open"] = address_of(ring.open)
        self.fill("time", [ring.now for ring in self.rings])
        self._recorder.streams.torn = True  # an interrupt may occur between the call and the counts

    def leave(self) -> None:
        """End a call that has made no batch step."""
        self._recorder.streams.torn = False

    def finish(self, decided: int, begun: int) -> None:
        """Count rows that compiled code has written: those with decisions, and those begun after the newest one."""
        for ring in self.rings:
            ring.advanced(decided, begun)
        for states in self._recorder.streams.states.values():
            states.advanced(begun)
        self._recorder.streams.torn = False
        self.games.stepped(int(self.wrong.max()))

    @property
    def special(self) -> bool:
        """Whether Python must record the last batch step."""
        return bool(self.counts["special"][0])

    @property
    def last(self) -> bool:
        """Whether the call ends with the last batch step: enough episodes have ended, or an update was not finite."""
        return bool(self.counts["last"][0])

    def divide(self, wrong: Array) -> None:
        """Divide the environments into blocks.  wrong: return values of the game kernel, [blocks] int64."""
        self.wrong = wrong
        self.record["blocks"], self.record["wrong"] = len(wrong), address_of(wrong)

    def phases(self, parts: Sequence[int]) -> None:
        """Set the phases of a batch step."""
        self.record["phases"] = len(parts)
        self.fill("parts", parts)

    def fill(self, name: str, values: Sequence[int]) -> None:
        """Set the first numbers of a list of the record."""
        self.record[name][: len(values)] = values

    def _table(self, ring: Ring, step: Step) -> Array:
        return ring_record(ring, step, self.games.actions[ring.index], self._recorder.extras[ring.index])
