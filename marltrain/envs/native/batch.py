"""A batch of environments of one native game: one record each, stepped by one compiled call that fills a Step."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any

import numpy as np

from marltrain.core.errors import ConfigError, EnvError
from marltrain.core.layout import Array, Obs
from marltrain.core.seeds import sequence
from marltrain.core.spec import EnvSpec, Step, empty_actions
from marltrain.envs.faults import location
from marltrain.envs.native.game import Game
from marltrain.envs.native.records import check, restore_records, store
from marltrain.envs.python.contract import Contract
from marltrain.envs.recorded import Recorded, flat_values

STEP, RESET, BEGIN, PUBLISH, VIEW = range(5)
"""Commands of `kernel.run`, with the same numbers as there."""
FINE = -1
"""The result of `kernel.run` if all actions are legal."""
_HASH_START, _HASH_FACTOR = 0x43B0D7E5, 0x931E8875


class GameBatch:
    """Environments `first_index` to `first_index + num_envs` of a run, written into `out` (their columns only).

    The counterpart of `chunk.Chunk` for a native game, with the same episode seeds.

    actions: the next actions, a copy of the sent arrays.  address: address of the table that `kernel.run` takes.
    recorded: the values recorded in the last step.
    """

    def __init__(
        self,
        game: Game,
        spec: EnvSpec,
        out: Step,
        *,
        num_envs: int,
        first_index: int = 0,
        role: str = "train",
        threads: int = 1,
        restart: bool = True,
        record: Sequence[str] = (),
    ) -> None:
        """Compile the game, or load it from disk, and allocate its records.

        threads: number of threads.  restart: whether an environment starts the next episode when an episode ends.
        record: fields that are recorded when an episode ends.
        """
        from marltrain.envs.native.compiling import program, table_of  # loads numba

        if not 1 <= threads <= num_envs:
            raise ConfigError(f"threads must be between 1 and num_envs ({num_envs}), got {threads}")
        self.game = game
        self.num_envs = num_envs
        self.records = np.zeros(num_envs, game.fields)
        self.actions = empty_actions(spec, num_envs)
        self._spec, self._out, self._first, self._role = spec, out, first_index, role
        self._restart, self._record = restart, tuple(record)
        self.recorded: list[Recorded] = []
        if role == "train":
            game.for_training()
        self._run = program(game)
        self._table = self._fill(np.zeros(1, table_of(len(spec.players))))
        self.address = int(self._table.ctypes.data)
        self._queues: dict[int, Array] = {}
        cuts = [num_envs * i // threads for i in range(threads + 1)]
        self._parts = list(itertools.pairwise(cuts))
        self._pool = ThreadPoolExecutor(threads) if threads > 1 else None

    # Interface of a chunk

    def reset(self, seed: int) -> None:
        """Start episode 0 of a run in all environments."""
        self.reset_each([(seed, self._first + e) for e in range(self.num_envs)])

    def reset_each(self, places: Sequence[tuple[int, int]]) -> None:
        """Start episode 0 in every environment, as environment `index` of the run `seed` for its (seed, index)."""
        for e, (seed, index) in enumerate(places):
            self.records["branch"][e], self.records["stir"][e] = _branch(seed, self._role, index)
        self._clear_events()
        self.run(RESET)

    def step(self, actions: tuple[Array, ...]) -> None:
        """Take one env step in all environments; an environment whose episode ends starts the next one at once.

        Raises EnvError for an illegal action.
        """
        for own, sent in zip(self.actions, actions, strict=True):
            own[...] = sent
        if self._pool is None:
            wrong = self._run(self.address, STEP, 0, self.num_envs, 0)
        else:
            calls = [self._pool.submit(self._run, self.address, STEP, low, high, 0) for low, high in self._parts]
            wrong = max(call.result() for call in calls)
        self.check(wrong)
        if self.records_fields:
            self.record_ends()

    @property
    def records_fields(self) -> bool:
        """Whether fields are recorded; then `record_ends` must follow a step that compiled code makes."""
        return bool(self._record)

    def record_ends(self) -> None:
        """Record fields of the environments whose episode has ended, then start their next one."""
        self.recorded = []
        for e in np.flatnonzero(self._out.ended).tolist():
            values = {key: value for name in self._record for key, value in flat_values(name, self.records[name][e])}
            self.recorded.append((self._first + e, values))
            if self._restart:
                self.records["episode"][e] += 1
                self.begin(e, seed_of(self.records[e]))

    def check(self, answer: int) -> None:
        """Raise EnvError if `answer`, the result of `kernel.run`, reports an illegal action."""
        if answer != FINE:
            self._raise_illegal(answer % self.num_envs)

    @property
    def entry(self) -> int:
        """Address at which compiled code calls `kernel.run`, with `address` and the other arguments used here."""
        from marltrain.jit.views import entry

        return entry(self._run, 5)

    def close(self) -> None:
        """End the threads."""
        if self._pool is not None:
            self._pool.shutdown()

    # Single environments

    def run(self, command: int, low: int = 0, high: int | None = None, number: int = 0) -> None:
        """Run a command of `kernel.run` in environments low to high (default: all)."""
        self._run(self.address, command, low, self.num_envs if high is None else high, number)

    def begin(self, e: int, seed: int) -> None:
        """Start an episode with a seed in environment `e`."""
        self.run(BEGIN, e, e + 1, seed)

    def get_state(self, e: int) -> dict[str, Any]:
        """Return copies of all saved fields of environment `e`, by name."""
        return {name: np.array(self.records[name][e]) for name in self.game.saved}

    def set_state(self, e: int, values: Mapping[str, Any]) -> None:
        """Set fields of environment `e`, and write its columns of the Step that the next actions depend on.

        Raises ConfigError for an unknown name, a wrong shape, or a state that the rules cannot continue from. In that
        case nothing is written.
        """
        changed = self.records[e : e + 1].copy()
        for name, value in values.items():
            if name not in self.game.saved:
                raise ConfigError(f"{self.game.name} has no field {name!r}; it has {', '.join(self.game.saved)}")
            expected = changed[name].shape[1:]
            if np.shape(value) != expected:
                raise ConfigError(f"{self.game.name}, field {name!r}: shape {np.shape(value)}, expected {expected}")
            store(self.game, changed, name, np.asarray(value)[None], self._first + e)
        check(self.game, changed, values, self._first + e, may_be_over=not self._restart)
        self.records[e : e + 1] = changed
        self.run(PUBLISH, e, e + 1)

    def set_chances(self, e: int, outcomes: Sequence[float]) -> None:
        """Queue the next random outcomes of environment `e`, in the order in which the game draws them."""
        self._queues[e] = np.array(outcomes, np.float64)
        self.records["queue"][e] = self._queues[e].ctypes.data
        self.records["queued"][e] = len(outcomes)

    def chances_left(self, e: int) -> int:
        """Return the number of queued outcomes that were not drawn yet."""
        return int(self.records["queued"][e])

    # The whole batch

    def snapshot(self) -> dict[str, Array]:
        """Return copies of all saved fields: field -> [E, ...]."""
        return {name: self.records[name].copy() for name in self.game.saved}

    def restore(self, saved: Mapping[str, Array]) -> list[tuple[int, str]]:
        """Continue from a snapshot of as many environments; the Step then reports no reward and no event.

        Returns the environments that were not restored, as `Chunk.restore` does: none. Raises ConfigError for a record
        that the rules cannot continue from, and for other fields or shapes. In that case nothing is written.
        """
        changed = self.records.copy()
        restore_records(self.game, changed, saved, self._first, may_be_over=not self._restart)
        self.records[...] = changed
        self._clear_events()
        self.run(PUBLISH)
        return []

    # Addresses and errors

    def _fill(self, table: Array) -> Array:
        """Fill the table with the addresses and sizes of the batch's arrays."""
        out, spec, t = self._out, self._spec, table[0]
        t["num_envs"], t["restart"] = self.num_envs, self._restart and not self._record
        t["records"], t["rules"] = _address(self.records), _address(self.game.rules)
        t["state_size"] = self.game.state_size
        for name in ("state", "final_state", "ended", "episode"):
            t[name] = _address(getattr(out, name))
        for p, (g, row) in enumerate(spec.place):
            group = spec.groups[g]
            t["action"][p] = _address(self.actions[g][row])
            t["choices"][p] = group.action_shape[0] if group.action_shape else group.action_space.n  # type: ignore[attr-defined]
            t["width"][p] = group.layout.vector_size
            for name in ("obs", "legal", "final_obs", "final_legal", "turn", "alive"):
                t[name][p] = _address(_row(getattr(out, name)[g], row))
            for name in ("reward", "terminated", "truncated"):
                t[name][p] = _address(getattr(out, name)[p])
        return table

    def _clear_events(self) -> None:
        out = self._out
        out.reward[...] = 0
        for events in (out.terminated, out.truncated, out.ended):
            events[...] = False

    def _raise_illegal(self, e: int) -> None:
        fault = Contract(self._spec).sent(self.actions, self._out)
        message = fault.message if fault else "a wrong action"
        episode, seed, length = (int(self.records[name][e]) for name in ("episode", "seed", "steps"))
        where = location(self._spec.name, self._role, self._first + e, episode, seed, length)
        raise EnvError(f"{where}: {message}")


def _branch(seed: int, role: str, index: int) -> tuple[int, int]:
    """Return the common part of an environment's episode seeds; `chance.episode_seed` adds only the episode's number.

    The values are the first word of the pool of numpy's SeedSequence, and its hash constant, which is multiplied four
    times per word.
    """
    words = max(4, -(-int(seed).bit_length() // 32)) + 3
    stir = _HASH_START * pow(_HASH_FACTOR, 4 * words, 2**32) % 2**32
    return int(sequence(seed, "episode", role, index).pool[0]), stir


def seed_of(record: Any) -> int:
    """Return the seed of a record's episode."""
    from marltrain.envs.native.chance import episode_seed  # loads numba

    shared = SimpleNamespace(branch=int(record["branch"]), stir=int(record["stir"]))
    function: Any = episode_seed
    with np.errstate(over="ignore"):  # unsigned numbers of 64 bits, as in compiled code
        return int(function.py_func(shared, int(record["episode"])))


def _row(array: Obs | None, row: int) -> Array | None:
    if array is None:
        return None
    if isinstance(array, dict):
        raise EnvError("a native game observes one vector")
    return array[row]


def _address(array: Array | None) -> int:
    """Return the address of an array's first element; 0 for None."""
    if array is None:
        return 0
    if not array.flags.c_contiguous:
        raise EnvError(f"a native batch writes rows that lie in one piece, not strides {array.strides}")
    return int(array.ctypes.data)
