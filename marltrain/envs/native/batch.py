"""A batch of environments of one native game: one record each, stepped by one compiled call, written into a Step."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from marltrain.envs.native.game import Game
from marltrain.envs.native.records import check, store, take_back
from marltrain.envs.python.contract import Contract
from marltrain.errors import ConfigError, EnvError
from marltrain.layout import Array, Obs
from marltrain.random import sequence
from marltrain.spec import EnvSpec, Step, empty_actions

STEP, RESET, BEGIN, PUBLISH, LOOK = range(5)
"""What `kernel.run` can do; the same numbers as there."""
FINE = -1
"""What it answers where every action was legal."""
_HASH_START, _HASH_FACTOR = 0x43B0D7E5, 0x931E8875


class GameBatch:
    """Environments `first_index` to `first_index + num_envs` of a run, written into `out` (their columns only).

    Does for a native game what `chunk.Chunk` does for objects, with the same episode seeds.

    actions: those that are taken next, a copy of what was sent.  address: of the table that `kernel.run` is given.
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
    ) -> None:
        """Compile the game, or load it from disk, and lay out its records.

        threads: how many share the work.  restart: whether an environment whose episode ended starts the next one.
        """
        from marltrain.envs.native.compiling import program, table_of  # loads numba

        if not 1 <= threads <= num_envs:
            raise ConfigError(f"threads must be between 1 and num_envs ({num_envs}), got {threads}")
        self.game = game
        self.num_envs = num_envs
        self.records = np.zeros(num_envs, game.fields)
        self.actions = empty_actions(spec, num_envs)
        self._spec, self._out, self._first, self._role, self._seed = spec, out, first_index, role, 0
        self._restart = restart
        self._run = program(game)
        self._table = self._fill(np.zeros(1, table_of(len(spec.players))))
        self.address = int(self._table.ctypes.data)
        self._queues: dict[int, Array] = {}
        cuts = [num_envs * i // threads for i in range(threads + 1)]
        self._parts = list(itertools.pairwise(cuts))
        self._pool = ThreadPoolExecutor(threads) if threads > 1 else None

    # What a chunk does

    def reset(self, seed: int) -> None:
        """Start episode 0 of a run everywhere."""
        self._seed = seed
        for e in range(self.num_envs):
            self.records["branch"][e], self.records["stir"][e] = _branch(seed, self._role, self._first + e)
        self._clear_events()
        self.run(RESET)

    def step(self, actions: tuple[Array, ...]) -> None:
        """Take one env step everywhere; environments whose episode ended start the next one at once.

        Raises EnvError for an action that is not legal.
        """
        for own, sent in zip(self.actions, actions, strict=True):
            own[...] = sent
        if self._pool is None:
            wrong = self._run(self.address, STEP, 0, self.num_envs, 0)
        else:
            calls = [self._pool.submit(self._run, self.address, STEP, low, high, 0) for low, high in self._parts]
            wrong = max(call.result() for call in calls)
        self.check(wrong)

    def check(self, answer: int) -> None:
        """Raise EnvError where `kernel.run` answered that an action was not legal."""
        if answer != FINE:
            self._complain(answer % self.num_envs)

    @property
    def entry(self) -> int:
        """Where compiled code can call `kernel.run`, which it gives `address` and what this class gives it."""
        from marltrain.addresses import entry

        return entry(self._run, 5)

    def close(self) -> None:
        """End the threads."""
        if self._pool is not None:
            self._pool.shutdown()

    # Single environments

    def run(self, what: int, low: int = 0, high: int | None = None, number: int = 0) -> None:
        """Do one of the things that `kernel.run` can do, to environments low to high (default: to all)."""
        self._run(self.address, what, low, self.num_envs if high is None else high, number)

    def begin(self, e: int, seed: int) -> None:
        """Start an episode on a seed in environment `e`."""
        self.run(BEGIN, e, e + 1, seed)

    def get_state(self, e: int) -> dict[str, Any]:
        """Return copies of all that environment `e` remembers, by name."""
        return {name: np.array(self.records[name][e]) for name in self.game.saved}

    def set_state(self, e: int, values: Mapping[str, Any]) -> None:
        """Set some of what environment `e` remembers, and publish what is to be acted on in it.

        Raises ConfigError for an unknown name, another shape, or what the rules could not go on from; nothing is
        written then.
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
        """Queue what chance gives in environment `e` from now on, in the order in which the game asks."""
        self._queues[e] = np.array(outcomes, np.float64)
        self.records["queue"][e] = self._queues[e].ctypes.data
        self.records["queued"][e] = len(outcomes)

    def chances_left(self, e: int) -> int:
        """Return how many of the queued outcomes were not asked for yet."""
        return int(self.records["queued"][e])

    # The whole batch

    def snapshot(self) -> dict[str, Array]:
        """Return copies of all that the batch remembers: field -> [E, ...]."""
        return {name: self.records[name].copy() for name in self.game.saved}

    def restore(self, saved: Mapping[str, Array]) -> list[tuple[int, str]]:
        """Continue where `snapshot` was taken, with as many environments; the Step then tells of no event.

        Returns the environments that could not, as `Chunk.restore` does: none. Raises ConfigError where one of them
        holds what the rules could not go on from, or what is saved is of other fields or shapes; nothing is written
        then.
        """
        changed = self.records.copy()
        take_back(self.game, changed, saved, self._first, may_be_over=not self._restart)
        self.records[...] = changed
        self._clear_events()
        self.run(PUBLISH)
        return []

    # Addresses and errors

    def _fill(self, table: Array) -> Array:
        """Write down where everything is."""
        out, spec, t = self._out, self._spec, table[0]
        t["num_envs"], t["restart"] = self.num_envs, self._restart
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

    def _complain(self, e: int) -> None:
        fault = Contract(self._spec).sent(self.actions, self._out)
        message = fault.message if fault else "a wrong action"
        episode, seed, length = (int(self.records[name][e]) for name in ("episode", "seed", "steps"))
        kind = "test environment" if self._role == "test" else "environment"
        raise EnvError(
            f"{kind} {self._first + e} ({self._spec.name}), episode {episode} (seed {seed}), step {length}: {message}"
        )


def _branch(seed: int, role: str, index: int) -> tuple[int, int]:
    """What the seeds of an environment's episodes have in common, so that `chance.episode_seed` adds only the number.

    Of numpy's SeedSequence: the first word of its pool, and its hash constant, which was multiplied four times a word.
    """
    words = max(4, -(-int(seed).bit_length() // 32)) + 3
    stir = _HASH_START * pow(_HASH_FACTOR, 4 * words, 2**32) % 2**32
    return int(sequence(seed, "episode", role, index).pool[0]), stir


def _row(array: Obs | None, row: int) -> Array | None:
    if array is None:
        return None
    if isinstance(array, dict):
        raise EnvError("a native game observes one vector")
    return array[row]


def _address(array: Array | None) -> int:
    """Where an array begins; 0 for none."""
    if array is None:
        return 0
    if not array.flags.c_contiguous:
        raise EnvError(f"a native batch writes rows that lie in one piece, not strides {array.strides}")
    return int(array.ctypes.data)
