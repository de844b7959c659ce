"""ActProgram: the acts of K agents by a program, called by its address from compiled loops or from Python."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import numpy as np

from marltrain.core.layout import Array, Obs, map_tree
from marltrain.jit.compiling import compiled, program
from marltrain.jit.views import address_of, bools, copy, entry, f32, i64, record_at, u8
from marltrain.policies.backends.base import Network
from marltrain.policies.batches.batch import Acted, ActInputs
from marltrain.policies.batches.normalization import RunningStatistics
from marltrain.policies.exploration.discrete import ACTION_COUNTS
from marltrain.policies.learner.programs.act_table import (
    ACTION,
    CARRY,
    EXPLORE,
    EXTRA,
    HYPER,
    LEGAL,
    NEXT,
    NOISE,
    OBS,
    PLAYER,
    STATISTICS,
    ActTables,
)
from marltrain.policies.learner.programs.recorded_step import arrays_in
from marltrain.policies.tape.instructions import SEGMENTS
from marltrain.policies.tape.interpreter.runs import RUN, carry_out_part, move_to

ACTING = np.dtype([(name, np.int64) for name in (
    "arguments", "blocks", "noises", "noise",
    "counts", "counted", "choices", "agents", "rows", "explore", "action", "buffers",
    "carries", "carry", "turn", "over", "cut",
)])  # fmt: skip
"""Arguments of `act_by_program`: numbers and addresses.

arguments: of the RUN.  blocks: those of each agent, see `ActTable`.  buffers: of how many parts there are buffers.
noises, noise: the number of arrays of noise, and of each: number of its segment, address, bytes from act to act.
counts, counted: int64 and float32 [K, choices], how often exploring rows with a turn chose each action; 0: they are not
  counted. Then one part has all rows.  agents, rows, explore, action: what is counted, [K, rows].
carries, carry: the number of arrays of carries, and of each: address, address of the next carries, bytes of a row.
turn: bool [K, rows], rows whose decisions count, and that carry on what the act gives; 0: all.
over, cut: bool [K, rows], rows whose carries are 0 before the next act; 0: there are none.
"""
NOTHING: Mapping[str, Array] = MappingProxyType({})


@compiled
def act_by_program(address: int, at: int, low: int, high: int, envs: int) -> int:
    """Choose actions for a part of the rows of the ACTING at an address, with the noise of act number `at`; return 0.

    low, high, envs: as of `compiled.acting.act`. They name the part: the parts of all environments together are all
    rows, but a part does not have the rows of its environments. Parts are computed at the same time, with buffers of
    their own.
    """
    u = record_at(address, ACTING)
    run = record_at(u.arguments, RUN)
    bases, noise = i64(run.bases, SEGMENTS), i64(u.noise, 3 * u.noises)
    for i in range(u.noises):
        bases[noise[3 * i]] = noise[3 * i + 1] + at * noise[3 * i + 2]
    each = u.blocks + (run.rest < run.after)
    first, end, buffer = low * u.agents * each // envs, high * u.agents * each // envs, -(-low * u.buffers // envs)
    if u.counts:
        first, end = 0, 0 if low else u.agents * each
    for i in range(first, end):
        agent, block = i // each, i % each
        first_row, rows = block * run.block_rows, run.block_rows if block < u.blocks else run.rest_rows
        if u.over and u.carries:
            restart(u, agent, first_row, rows)
        segments = move_to(run, buffer, 0, agent, first_row)
        if block < u.blocks:
            carry_out_part(run, run.block, run.rest, segments)
        else:
            carry_out_part(run, run.rest, run.after, segments)
        carry_on(u, agent, first_row, rows)
    if u.counts and low == 0:
        count(u)
    return 0


@compiled
def restart(u: Any, agent: int, first: int, rows: int) -> None:
    """Set the carries of rows of an agent to zero whose player's part ended in the last step."""
    over, cut, carry = bools(u.over, u.agents * u.rows), bools(u.cut, u.agents * u.rows), i64(u.carry, 3 * u.carries)
    for row in range(agent * u.rows + first, agent * u.rows + first + rows):
        if over[row] or cut[row]:
            for i in range(u.carries):
                size = carry[3 * i + 2]
                u8(carry[3 * i] + row * size, size)[:] = 0


@compiled
def carry_on(u: Any, agent: int, first: int, rows: int) -> None:
    """Replace the carries of rows of an agent that have a turn by the next ones."""
    carry, start = i64(u.carry, 3 * u.carries), agent * u.rows + first
    for i in range(u.carries):
        size = carry[3 * i + 2]
        for row in range(start, start + rows):
            if u.turn == 0 or bools(u.turn, row + 1)[row]:
                copy(carry[3 * i + 1] + row * size, carry[3 * i] + row * size, size)


@compiled
def count(u: Any) -> None:
    """Count the actions of exploring rows that have a turn."""
    size = u.agents * u.rows
    explore, action = bools(u.explore, size), i64(u.action, size)
    counts, counted = i64(u.counts, u.agents * u.choices), f32(u.counted, u.agents * u.choices)
    for i in range(size):
        if explore[i] and (u.turn == 0 or bools(u.turn, size)[i]):
            place = i // u.rows * u.choices + action[i]
            counts[place] += 1
            counted[place] = np.float32(counts[place])


@functools.cache
def act_program() -> Any:
    """Return the compiled `act_by_program`, from the disk cache if it is there."""
    return program(act_by_program, ACTING, RUN)


class ActProgram:
    """K agents that act by a program; it has the interface of `compiled.acting.CompiledActing`.

    The weights and settings are read where they are.

    extras: names of the outputs beside the action in training -> their shapes.
    address: of the ACTING record.  entry: of `act_by_program`.
    """

    reads_other_rows = True

    def __init__(
        self, tables: ActTables, nets: Mapping[str, Network], statistics: RunningStatistics | None,
        sample: Mapping[str, Any], row: int | None = None,
    ) -> None:  # fmt: skip
        """Record an act of one row; raises an exception of any type if it cannot be recorded.

        statistics: normalize the observations; None: they are not normalized.
        sample: inputs of an act of one row of one agent; their shapes and types count.  row: act for this agent only.
        """
        self._tables, self._nets, self._statistics = tables, nets, statistics
        self._rows = slice(None) if row is None else slice(row, row + 1)
        self.agents = len(next(iter(nets.values())).flat) if row is None else 1
        digits = {} if statistics is None else statistics.digits()
        self._digits = {name: array[self._rows] for name, array in digits.items()}
        self._sample = {**sample, STATISTICS: self._digits}
        self.entry, self.extras = entry(act_program(), 5), tables.of(self._sample, training=True).extras
        self._record, self._parts = np.zeros(1, ACTING), 1
        self.address = address_of(self._record)
        self._single: Any = None  # rows of single acts, whether they have a mask, and whether they are in training
        self._inputs: list[Array] = []  # their arrays

    @property
    def rows(self) -> int:
        """Number of rows of an act."""
        return int(self._record["rows"][0])

    def set_arrays(
        self, *, obs: Obs, legal: Array | None, explore: Array, action: Array, player: Array | None = None,
        extras: Mapping[str, Array] = NOTHING, training: bool = True,
    ) -> None:  # fmt: skip
        """Read and write these arrays from the next act on, [K, rows, ...] each.

        player: one-hots [K, rows, P] of the players that observe, which are not in `obs`; None: they are, if any.
        extras: those that are not given are written to arrays of its own.  training: see `ActInputs`.
        """
        given = {**self._sample, OBS: obs, PLAYER: player, LEGAL: legal, EXPLORE: explore}
        table, shape = self._tables.of(given, training=training), explore.shape
        self._segments = {segment.name for segment in table.program.table.segments}
        self._execution = table.program.execution(agents=self.agents, blocks=table.blocks, rests=table.rests)
        self._carry = {n: np.zeros((*shape, *a.shape[2:]), a.dtype) for n, a in self._sample[CARRY].items()}
        following = {name: np.zeros_like(array) for name, array in self._carry.items()}
        self._extras = {n: np.zeros((*shape, *own), np.float32) for n, own in table.extras.items()} | dict(extras)
        bound = {OBS: obs, PLAYER: player, LEGAL: legal, EXPLORE: explore, CARRY: self._carry}
        self._bind({**bound, STATISTICS: self._digits, ACTION: action, NEXT: following, EXTRA: self._extras})
        self._action, self._explore = action, explore
        self._noise: Mapping[str, Array] | None = None
        self._settings: Mapping[str, Array] | None = None
        self._weights: dict[str, Array | None] = {
            name: None for name in self._nets if f"weights/{name}" in self._segments
        }
        record = self._record[0]
        record["arguments"], record["blocks"] = self._execution.address, table.blocks
        record["rows"], record["agents"] = shape[1], shape[0]
        record["explore"], record["action"] = address_of(explore), address_of(action)
        carries = [(address_of(a), address_of(following[n]), a[0, 0].nbytes) for n, a in self._carry.items()]
        self._carries, self._following = np.array(carries, np.int64).reshape(-1, 3), following
        record["carries"], record["carry"] = len(carries), address_of(self._carries)
        record["turn"] = record["over"] = record["cut"] = 0
        self.divide(self._parts)

    def set_turn(self, turn: Array) -> None:
        """Carry on, and count, only the decisions of rows where this array [K, rows] bool is True."""
        self._record["turn"] = address_of(turn)

    def restart_where(self, over: Array, cut: Array) -> None:
        """Let each act begin with zeros where `over` or `cut` is True; their first numbers are [K, rows] bool."""
        self._record["over"], self._record["cut"] = address_of(over), address_of(cut)

    def divide(self, parts: int) -> None:
        """Allocate buffers for this number of parts at the same time, see `act_by_program`."""
        self._parts = self._record["buffers"] = parts
        self._execution.reserve(parts)

    def start_from(self, carry: Mapping[str, Array] | None, counts: Array | None = None) -> None:
        """Set the carry with which the next act decides, [K, rows, ...]; None: zeros.

        counts: [K, A] int64, to which acts add the actions of exploring rows, and to the settings; None: they do not.
        """
        for name, array in self._carry.items():
            array[...] = 0 if carry is None else carry[name]
        record = self._record[0]
        record["counts"] = 0
        if counts is not None and counts.size and self._settings is not None:
            record["counts"], record["choices"] = address_of(counts), counts.shape[1]
            record["counted"] = address_of(self._settings[ACTION_COUNTS])

    def carried(self) -> dict[str, Array] | None:
        """Return the carry of the last act; None if acts carry nothing on."""
        return {name: array.copy() for name, array in self._carry.items()} or None

    def refresh(self, noise: Mapping[str, Array], settings: Mapping[str, Array]) -> None:
        """Bind the noise of several acts [K, acts, rows, ...], the weights and the settings, name -> [K, ...]."""
        if settings is not self._settings:
            self._settings = settings
            self._bind({HYPER: {name: column[self._rows] for name, column in settings.items()}})
        for name, before in self._weights.items():
            if (weights := self._nets[name].numbers()) is not before:
                self._weights[name] = weights
                self._execution.bind({f"weights/{name}": weights[self._rows]})
        if self._statistics is not None:
            self._statistics.digits()
        if noise is not self._noise:
            self._noise = noise
            self._set_noise({f"{NOISE}/{name}": array for name, array in noise.items()})
        self._execution.prepare()

    def _set_noise(self, noise: Mapping[str, Array]) -> None:
        plain = {name: array if array[0, 0].flags.c_contiguous else array.copy("C") for name, array in noise.items()}
        self._bind({name: array[:, 0] for name, array in plain.items()})
        drawn = [(self._execution.number(name), address_of(array), array.strides[1])
                 for name, array in plain.items() if name in self._segments]  # fmt: skip
        self._drawn, self._read = np.array(drawn, np.int64).reshape(-1, 3), plain
        self._record["noises"], self._record["noise"] = len(drawn), address_of(self._drawn)

    def act(
        self, inputs: ActInputs, noise: Mapping[str, Array], at: int, settings: Mapping[str, Array],
        counts: Array | None = None,
    ) -> Acted:  # fmt: skip
        """Choose actions [K, B, ...], the equivalent of `Algorithm.act` and `Algorithm.to_units`.

        noise, settings: see `refresh`.  at: number of the act among those of the noise.
        counts: [K] int64, rows of each agent that count; all are computed.
        """
        kind = inputs.explore.shape[1], inputs.legal is None, inputs.training
        if kind != self._single:
            self._set_own_arrays(inputs)
            self._single = kind
        for array, given in zip(self._inputs, _arrays_of(inputs), strict=True):
            np.copyto(array, given)
        self.start_from(inputs.carry)
        self.refresh(noise, settings)
        act_program()(self.address, at, 0, 1, 1)
        return Acted(self._action.copy(), self.carried(), {name: a.copy() for name, a in self._extras.items()})

    def _set_own_arrays(self, inputs: ActInputs) -> None:
        """Allocate the arrays of single acts of as many rows."""
        shape = inputs.explore.shape
        obs = map_tree(lambda array: np.zeros((*shape, *array.shape[2:]), array.dtype), self._sample[OBS])
        legal = None if inputs.legal is None else np.zeros(inputs.legal.shape, np.bool_)
        own = ActInputs(obs, legal, np.zeros(shape, np.bool_))
        self._inputs = _arrays_of(own)
        given = {**self._sample, OBS: obs, LEGAL: legal, EXPLORE: own.explore}
        kind, each = self._tables.of(given, training=inputs.training).action
        action = np.zeros((*shape, *each), kind)
        self.set_arrays(obs=obs, legal=legal, explore=own.explore, action=action, training=inputs.training)

    def _bind(self, tree: Mapping[str, Any]) -> None:
        """Bind arrays by the names of inputs and results, as far as the program has them."""
        arrays = {name: array for kind, part in tree.items() for name, array in arrays_in(part, kind).items()}
        self._execution.bind({name: array for name, array in arrays.items() if name in self._segments})


def _arrays_of(inputs: ActInputs) -> list[Array]:
    """Return the arrays of observations, masks and flags."""
    given = {OBS: inputs.obs, LEGAL: inputs.legal, EXPLORE: inputs.explore}
    return [array for kind, tree in given.items() for array in arrays_in(tree, kind).values()]
