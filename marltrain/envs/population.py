"""PopulationVectorEnv: independent copies of an environment, side by side, as one environment with more players.

A trainer that trains the players of N copies as independent agents trains N groups of agents at once, and agents of
equal kind are rows of one learner. Every copy has its own seed, and plays the episodes that an environment of that seed
plays alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from typing import Any

import numpy as np

from marltrain.core.errors import ConfigError
from marltrain.core.layout import Array, map_tree
from marltrain.core.settings import check_flags
from marltrain.core.spec import BY_ENV, EnvSpec, Step
from marltrain.envs.native.batch import GameBatch
from marltrain.envs.python.action_log import check_action_log
from marltrain.envs.python.chunk import Chunk
from marltrain.envs.registry import Source
from marltrain.envs.vector import VectorEnv
from marltrain.storage.state import State


def population_of(source: Source, seeds: Sequence[int]) -> Source:
    """Return the Source of copies of an environment, one for each seed; raises ConfigError without a seed."""
    if not seeds or source.copies:
        raise ConfigError(f"a population needs the seed of at least one copy of a plain environment, got {seeds!r}")
    return replace(source, copies=tuple(seeds))


def copy_name(player: str, copy: int) -> str:
    """Return the name of a player of a copy."""
    return f"{player}:{copy}"


def population_spec(plain: EnvSpec, copies: int) -> EnvSpec:
    """Return the specification of `copies` copies: player p of copy n has the index p * copies + n.

    Rows of a group's arrays [P * copies, E] are then rows of [P, copies * E], without a copy.
    """
    players = [replace(p, name=copy_name(p.name, n)) for p in plain.players for n in range(copies)]
    return EnvSpec.of(plain.name, players, turn_based=plain.turn_based, reproducible=plain.reproducible)


def plain_names(names: Sequence[str], copies: int) -> tuple[str, ...]:
    """Return the players' names of one copy, for the names of a population; copies=0: of a plain environment."""
    return tuple(name.removesuffix(copy_name("", 0)) for name in names[::copies]) if copies else tuple(names)


class PopulationVectorEnv(VectorEnv):
    """Copies of an environment in this process, each in E environments; `Source.copies` holds their seeds.

    In its Steps the episodes of the copies end and begin independently: `terminated`, `truncated` and `final_*` report
    the ends, `ended` is False and `episode` always 0. `joined` tells them apart.
    A Step of `restore` reports `ended` in the environments that start their episodes again.

    joined: the Step of the plain environment, with the copies joined along the environments: copy n has the columns
      n * E to (n + 1) * E.
    plain: the specification of one copy.
    """

    def __init__(self, source: Source, num_envs: int, *, role: str = "train", recording: bool = False) -> None:
        """Build E = num_envs environments of every copy; see VectorEnv. A fault of one is always an error."""
        check_flags("PopulationVectorEnv", recording=recording)
        super().__init__(replace(source, copies=()), num_envs)
        self.seeds, self.plain = source.copies, self.spec
        self.joined = Step.empty(self.plain, len(self.seeds) * num_envs)
        self.spec = population_spec(self.plain, len(self.seeds))
        self._step = spread(self.joined, len(self.seeds), num_envs)
        self._sent: tuple[Array, ...] = ()
        self._batch: GameBatch | None = None
        self._chunks: list[Chunk] = []
        if self.source.game is not None:
            game = self.source.game(**self.source.arguments)
            columns = len(self.seeds) * num_envs
            self._batch = GameBatch(game, self.plain, self.joined, num_envs=columns, role=role)
        else:
            for own in self._columns:
                part = self.joined.part(own.start, own.stop)
                self._chunks.append(
                    Chunk(self.source, self.plain, part, num_envs=num_envs, role=role, recording=recording)
                )

    @property
    def _columns(self) -> list[slice]:
        """The columns of each copy in `joined`."""
        return [slice(n * self.num_envs, (n + 1) * self.num_envs) for n in range(len(self.seeds))]

    def reset(self, seed: int) -> Step:
        """Start episode 0 in all environments of every copy, on the copy's own seed; `seed` is not used."""
        if self._batch is not None:
            self._batch.reset_each([(own, e) for own in self.seeds for e in range(self.num_envs)])
        for own, chunk in zip(self.seeds, self._chunks, strict=False):
            chunk.reset(own)
        return self._step

    def send(self, actions: tuple[Array, ...]) -> None:
        """See VectorEnv."""
        columns = len(self.seeds) * self.num_envs
        self._sent = tuple(own.reshape(-1, columns, *own.shape[2:]) for own in actions)

    def recv(self) -> Step:
        """See VectorEnv; raises EnvError if an environment raised or broke its contract."""
        self._step.ended[...] = False  # `restore` may have set it
        if self._batch is not None:
            self._batch.step(self._sent)
        for own, chunk in zip(self._columns, self._chunks, strict=False):
            chunk.step(tuple(sent[:, own] for sent in self._sent))
        return self._step

    def close(self) -> None:
        """See VectorEnv."""
        for chunk in self._chunks:
            chunk.close()
        if self._batch is not None:
            self._batch.close()

    def _snapshot(self) -> dict[str, Array]:
        if self._batch is not None:
            return self._batch.snapshot()
        parts = enumerate(chunk.snapshot() for chunk in self._chunks)
        return {f"{n}/{name}": array for n, own in parts for name, array in own.items()}

    def _check_log(self, saved: State) -> None:
        for n in range(len(self._chunks)):
            own = {name.removeprefix(f"{n}/"): a for name, a in saved.arrays.items() if name.startswith(f"{n}/")}
            check_action_log(State({}, own, saved.place(str(n))), self.plain, self.num_envs)

    def _restore(self, saved: Mapping[str, Array]) -> list[tuple[int, str]]:
        """See VectorEnv; where an environment of one copy starts its episode again, those of all copies do."""
        if self._batch is not None:
            return self._batch.restore(saved)
        found: list[dict[int, str]] = []
        for n, chunk in enumerate(self._chunks):
            part = {name.removeprefix(f"{n}/"): a for name, a in saved.items() if name.startswith(f"{n}/")}
            found.append(dict(chunk.restore(part)))
        reasons = {e: reason for own in reversed(found) for e, reason in own.items()}
        for chunk, own in zip(self._chunks, found, strict=True):
            for e in reasons.keys() - own.keys():
                chunk.restart(e)
        self._step.ended[list(reasons)] = True  # state carried from step to step must be cleared
        return sorted(reasons.items())


def spread(joined: Step, copies: int, num_envs: int) -> Step:
    """Return views [P * copies, E, ...] of a Step's arrays [P, copies * E, ...]; `ended` and `episode` are new."""

    def spread(array: Array) -> Array:
        return array.reshape(len(array) * copies, num_envs, *array.shape[2:])

    def each(value: Any) -> Any:
        return tuple(map_tree(spread, own) for own in value) if isinstance(value, tuple) else map_tree(spread, value)

    views = {f.name: each(getattr(joined, f.name)) for f in fields(Step) if f.name not in BY_ENV}
    ended, episode = np.zeros(num_envs, bool), np.zeros(num_envs, np.int64)
    return Step(**views, ended=ended, episode=episode, state=None, final_state=None)
