"""The tables of acts: `Algorithm.act` and the scale of its actions, recorded for rows of one agent."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from marltrain.core.layout import VECTOR, Array
from marltrain.policies.batches.batch import Acted, ActInputs
from marltrain.policies.batches.normalization import CLIP
from marltrain.policies.distributions import Continuous
from marltrain.policies.learner.programs.recorded_step import DTYPES, arrays_in
from marltrain.policies.networks.specs import Plan
from marltrain.policies.tape import ops
from marltrain.policies.tape.assembly.assemble import assemble
from marltrain.policies.tape.assembly.assembler import Assembler
from marltrain.policies.tape.assembly.table import Role, Section
from marltrain.policies.tape.network import RecordedNetwork
from marltrain.policies.tape.program import Program
from marltrain.policies.tape.recording import Recording
from marltrain.policies.tape.symbols import RecordError, Symbol, Tape

OBS, PLAYER, LEGAL, EXPLORE, CARRY, NOISE = "obs", "player", "legal", "explore", "carry", "noise"
HYPER, STATISTICS = "hyper", "statistics"
"""Inputs of an act, and beginnings of the names of their arrays: "noise/coin", "hyper/epsilon"."""
OF_ROWS, OF_AGENTS = (OBS, PLAYER, LEGAL, EXPLORE, CARRY, NOISE), (HYPER, STATISTICS)
"""Inputs with a row for each decision [K, B, ...], and those of the agents [K, ...]."""
ACTION, EXTRA, NEXT = "action", "extra", "next"
"""Results of an act, and beginnings of the names of their arrays: "extra/log_prob", "next/actor" for the next carry."""
MEAN, REST, DEVIATION = "mean", "rest", "deviation"
"""Statistics of observations, [K, V] float32: the mean is the sum of `mean` and the `rest` of its digits."""
LARGEST = 64
"""Rows that a program computes at once: more are divided into blocks."""
Decide = Callable[[Any, Mapping[str, Any], ActInputs], Acted]
"""(operations, networks, inputs) -> decisions, as `Algorithm.act`."""


@dataclass(frozen=True)
class ActTable:
    """The program of an act for B rows; its table has the sections `block` and `rest` only.

    blocks, rests: blocks of LARGEST rows of an agent, or one of fewer, and one of the rows behind them.
    action: dtype and shape of an action.  extras: name -> shape of the other results.
    """

    program: Program
    blocks: int
    rests: int
    action: tuple[np.dtype[Any], tuple[int, ...]]
    extras: dict[str, tuple[int, ...]]


class ActTables:
    """The tables of the acts of one algorithm, recorded when they are needed: one for each number of rows modulo 64."""

    def __init__(self, decide: Decide, plans: Mapping[str, Plan], units: Continuous | None) -> None:
        """Store what is recorded.

        plans: name of a network -> its plan.  units: scale of the actions, see `Algorithm.units`.
        """
        self._decide, self._plans, self._units = decide, plans, units
        self._made: dict[Any, ActTable] = {}

    def of(self, given: Mapping[str, Any], *, training: bool) -> ActTable:
        """Return the table for inputs with the shapes and types of these arrays, by the names of inputs.

        training: see `ActInputs`.
        Raises an exception of any type for what cannot be recorded.
        """
        rows = given[EXPLORE].shape[1]
        blocks, rest = divmod(rows, LARGEST) if rows > LARGEST else (1, 0)
        sizes: dict[Section, int] = {"block": min(rows, LARGEST), **({"rest": rest} if rest else {})}
        arrays = {name: array for kind, tree in given.items() for name, array in arrays_in(tree, kind).items()}
        kinds = (*sizes.values(), *((name, array.shape[2:], array.dtype.char) for name, array in arrays.items()))
        if (known := self._made.get((kinds, blocks, training))) is None:
            known = self._made[kinds, blocks, training] = self._table(given, arrays, sizes, blocks, training)
        return known

    def _table(
        self, given: Mapping[str, Any], arrays: Mapping[str, Array], sizes: Mapping[Section, int], blocks: int,
        training: bool,
    ) -> ActTable:  # fmt: skip
        recordings = {section: self._recording(given, rows, training) for section, rows in sizes.items()}
        outputs = recordings["block"].outputs
        of_rows = [name for name in arrays if name.split("/")[0] in OF_ROWS]
        roles: dict[str, Role] = dict.fromkeys([*of_rows, *outputs], "rows")
        assembler = Assembler(roles)
        for section, recording in recordings.items():
            assemble(assembler, section, recording)
        action = outputs[ACTION]
        kind = np.dtype(np.int64 if action.node.dtype == "integer" else np.float32)
        extras = {name.split("/", 1)[1]: value.shape[2:] for name, value in outputs.items() if name.startswith(EXTRA)}
        return ActTable(Program(assembler.table()), blocks, len(sizes) - 1, (kind, action.shape[2:]), extras)

    def _recording(self, given: Mapping[str, Any], rows: int, training: bool) -> Recording:
        """Record an act for so many rows of one agent."""
        tape = Tape()
        nets = {name: RecordedNetwork(tape, name, plan, 1) for name, plan in self._plans.items()}
        seen = {kind: _symbols(tape, tree, kind, rows) for kind, tree in given.items()}
        with tape.no_gradient():
            obs = _observed(seen[OBS], seen[PLAYER], seen[STATISTICS])
            inputs = ActInputs(obs, seen[LEGAL], seen[EXPLORE], seen[CARRY], seen[NOISE], seen[HYPER], training)
            acted = self._decide(ops, nets, inputs)
            action: Any = acted.action
            action = action if self._units is None else self._units.in_units(ops, action)
        extras = {f"{EXTRA}/{name}": value for name, value in acted.extras.items()}
        # the next carries are written over the carries, after all other results
        carries = {f"{NEXT}/{name}": _computed(value) for name, value in (acted.carry or {}).items()}
        outputs: dict[str, Any] = {ACTION: action, **extras, **carries}
        return Recording(
            tape, {name: value.broadcast((1, rows, *value.shape[2:])) for name, value in outputs.items()}, ()
        )


def _symbols(tape: Tape, tree: Any, path: str, rows: int) -> Any:
    """Return a tree of tensors like a tree of arrays, of one agent."""
    if tree is None:
        return None
    if isinstance(tree, Mapping):
        return {name: _symbols(tape, part, f"{path}/{name}", rows) for name, part in tree.items()}
    if tree.dtype not in DTYPES:
        raise RecordError(f"{path} of {tree.dtype}: expected float32, int64, bool or uint8")
    shape = (1, rows, *tree.shape[2:]) if path.split("/")[0] in OF_ROWS else (1, *tree.shape[1:])
    return tape.input(path, shape, DTYPES[tree.dtype])


def _observed(obs: Any, player: Symbol | None, statistics: Mapping[str, Symbol]) -> Any:
    """Return observations with the players' one-hots, if there are any, normalized by statistics, if there are any.

    See `player_one_hot.identified` and `normalization.normalized_observations`.
    """
    if player is not None:
        images = {name: part for name, part in obs.items() if name != VECTOR} if isinstance(obs, dict) else {}
        vector = obs.get(VECTOR) if isinstance(obs, dict) else obs
        vector = player if vector is None else ops.concat([vector, player], -1)
        obs = {VECTOR: vector, **images} if images else vector
    if not statistics:
        return obs
    mean, rest, deviation = (statistics[name][:, None] for name in (MEAN, REST, DEVIATION))
    return ops.clip((obs - mean - rest) / deviation, -CLIP, CLIP)


def _computed(value: Symbol) -> Symbol:
    """Return a result that is no view of an input."""
    return value.tape.node("copy", (value,), value.shape, value.dtype) if not value.node.args else value
