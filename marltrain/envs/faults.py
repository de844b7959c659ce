"""Faults of environments: their description, which faults are survived, and how many."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from marltrain.core.errors import EnvError, SaveError
from marltrain.core.layout import Array
from marltrain.core.seeds import MOST_SEED
from marltrain.core.settings import setting, validate
from marltrain.storage.checks import MOST_COUNTED, counted, of_type
from marltrain.storage.json_files import parse_json

LOGGER = logging.getLogger("marltrain")
EXCEPTION, CONTRACT, TIMEOUT, DIED = "exception", "contract", "timeout", "died"
"""Kinds of faults: the environment raised, it broke the contract, its worker hung, its worker ended."""
ON_FAULT = ("raise", "restart")
MAX_RESTARTS = 20
WINDOW = 10_000
"""Env steps, summed over all environments, within which at most `max_env_restarts` faults are survived."""


class Fault(NamedTuple):
    """One fault of an environment or a worker.

    kind: "exception", "contract", "timeout" or "died".
    env, episode, seed, step: the environment, its episode, the episode's seed, and the env step that failed (0 for the
      reset). All are -1 for a worker that died outside the steps and resets of its environments.
    message: the fault in words.  traceback: the environment's traceback, if it raised.
    cut: the environments whose running episode was abandoned; empty if an episode failed to start.
    """

    kind: str
    env: int
    episode: int
    seed: int
    step: int
    message: str
    traceback: str = ""
    cut: tuple[int, ...] = ()


FIELDS: dict[str, type] = {
    "kind": str, "env": int, "episode": int, "seed": int, "step": int, "message": str, "traceback": str, "cut": list,
}  # fmt: skip


def location(name: str, role: str, env: int, episode: int, seed: int, step: int) -> str:
    """Return the environment, episode, seed and step in words."""
    kind = "test environment" if role == "test" else "environment"
    return f"{kind} {env} ({name}), episode {episode} (seed {seed}), step {step}"


def encode_faults(faults: Sequence[Fault]) -> bytes:
    """Return faults as JSON."""
    return json.dumps(faults).encode()


def decode_faults(data: bytes) -> list[Fault]:
    """Return the faults that `encode_faults` encoded."""
    return [_fault(values) for values in json.loads(data)]


def _fault(values: Sequence[Any]) -> Fault:
    return Fault._make([*values[:-1], tuple(values[-1])])


def _restored_fault(one: Any, clock: int) -> tuple[int, Fault]:
    """Return a saved fault and its env step; raises SaveError for anything else."""
    what = "a fault of an environment"
    if len(of_type(what, one, list)) != 2 or len(of_type(what, one[1], list)) != len(FIELDS):
        raise SaveError(f"{what} must have the fields {', '.join(FIELDS)}, got {one!r:.80}")
    since, values = one
    for (name, kind), value in zip(FIELDS.items(), values, strict=True):
        of_type(f"{what}, {name}", value, kind)
    for number in (*(value for value in values if type(value) is int), *values[-1]):
        counted(what, number, -1, MOST_SEED)
    return clock + counted(f"{what}: env steps", since, -MOST_COUNTED, 0), _fault(values)


def cut_by(faults: Iterable[Fault]) -> Array:
    """Return the environments whose running episode was abandoned, [n] int64, in order."""
    return np.array(sorted({e for fault in faults for e in fault.cut}), np.int64)


@dataclass(frozen=True)
class FaultPolicy:
    """Settings for the reaction to faults; see `make_vector`. Raises ConfigError for invalid values.

    The default of `on_fault`, "raise", holds for vector environments without a trainer. The trainer passes None unless
    the user sets it: an exception or a broken contract is then an error until the environment has finished an episode,
    and every other fault is survived.
    """

    on_fault: str | None = setting("raise", doc="what an environment's fault does", choices=ON_FAULT)
    max_env_restarts: int = setting(MAX_RESTARTS, doc=f"faults that are survived within {WINDOW:,} env steps", low=0)
    env_timeout: float | None = setting(None, doc="seconds that a worker's env step may take", above=0)

    def __post_init__(self) -> None:
        """Check the values."""
        validate(self, "make_vector")

    def survives(self, kind: str, *, proven: bool) -> bool:
        """Return whether a fault is survived; `proven`: the environment has finished an episode before."""
        if self.on_fault is not None:
            return self.on_fault == "restart"
        return proven or kind in (TIMEOUT, DIED)

    def too_many(self, faults: int) -> bool:
        """Return whether this number of faults is too large.

        Only FaultLog decides, over the last `WINDOW` env steps. `Chunk` and `WorkerVectorEnv` ask for one call's
        faults, so that they stop restarting an environment when FaultLog will raise an error anyway.
        """
        return faults > self.max_env_restarts


class FaultLog:
    """The faults of the last `WINDOW` env steps: logs each fault and raises EnvError if they are too many."""

    def __init__(self, policy: FaultPolicy) -> None:
        """Start with an empty log."""
        self._policy = policy
        self._recent: list[tuple[int, Fault]] = []

    def clear(self) -> None:
        """Remove all faults."""
        self._recent = []

    def add(self, faults: Sequence[Fault], clock: int) -> None:
        """Add the faults of the batch step that ends at env step `clock`; raises EnvError if there are too many."""
        for fault in faults:
            follows = ". A new episode begins" if fault.env >= 0 or fault.cut else ""
            LOGGER.warning("%s%s%s", fault.message, follows, f"\n{fault.traceback}" if fault.traceback else "")
        recent = [(time, fault) for time, fault in self._recent if clock - time < WINDOW]
        self._recent = recent + [(clock, fault) for fault in faults]
        if self._policy.too_many(len(self._recent)):
            raise EnvError(self._summary())

    def full(self, clock: int) -> bool:
        """Return whether one more fault at env step `clock` would be too many."""
        recent = [time for time, _ in self._recent if clock - time < WINDOW]
        return self._policy.too_many(len(recent) + 1)

    def state(self, clock: int) -> Array:
        """Return the state for `restore`, as bytes of JSON."""
        entries = [(time - clock, fault) for time, fault in self._recent]
        return np.frombuffer(json.dumps(entries).encode(), np.uint8)

    def restore(self, saved: Array, clock: int) -> None:
        """Restore a result of `state`, at env step `clock`; raises SaveError for invalid data."""
        try:
            entries = parse_json(saved.tobytes())
        except ValueError as error:
            raise SaveError(f"the faults of environments are not JSON: {error}") from error
        self._recent = [_restored_fault(one, clock) for one in of_type("the faults of environments", entries, list)]

    def _summary(self) -> str:
        """Return the recent faults in words, including the last traceback."""
        faults, limit = [fault for _, fault in self._recent], self._policy.max_env_restarts
        last = next((fault.traceback for fault in reversed(faults) if fault.traceback), "")
        return "\n".join([
            f"{len(faults)} faults within {WINDOW:,} env steps; max_env_restarts={limit} are survived:",
            *(f"  {fault.message}" for fault in faults),
            "Correct the environment, or raise max_env_restarts.",
            *([f"\nThe last traceback:\n{last}"] if last else []),
        ])  # fmt: skip
