"""E environments behind one `reset / send / recv`: in this process, or spread over worker processes."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, Self

import numpy as np

from marltrain.checks import finite, within
from marltrain.config import check_flags
from marltrain.envs.faults import Fault, FaultLog, Handling, check_timeout
from marltrain.envs.native.batch import GameBatch
from marltrain.envs.python.action_log import check_action_log
from marltrain.envs.python.chunk import Chunk, probe
from marltrain.envs.registry import Source, resolve
from marltrain.errors import ConfigError
from marltrain.files import MOST_COUNTED, State
from marltrain.layout import Array
from marltrain.spec import BY_ENV, EnvSpec, Step


class VectorEnv(ABC):
    """E environments as arrays. Close it when done, or use it in a `with` statement.

    spec: what the environments are.  num_envs: E.  source: how one is built.
    faults: what befell environments, and was survived, in the last `reset`, `recv` or `restore`. An environment whose
      running episode was given up (`cut_by`) tells of no reward and no event, only of `ended`: it has begun anew.
    """

    _step: Step

    def __init__(
        self, source: Source, num_envs: int, *, with_state: bool = False, handling: Handling | None = None
    ) -> None:
        """Look at what `source` builds. Raises ConfigError, EnvError or SpecError.

        handling: which faults are survived (default: none).
        """
        check_flags(type(self).__name__, with_state=with_state)
        if num_envs < 1:
            raise ConfigError(f"num_envs must be at least 1, got {num_envs}")
        self.source = source
        self.num_envs = num_envs
        self.spec: EnvSpec = probe(source, with_state=with_state)
        self.faults: Sequence[Fault] = ()
        self._handling = handling or Handling()
        self._ledger = FaultLog(self._handling.max_env_restarts)
        self._clock = 0  # env steps since the reset

    @abstractmethod
    def reset(self, seed: int) -> Step:
        """Start episode 0 of a run everywhere and return its first Step. Equal seeds give equal episodes."""

    @abstractmethod
    def send(self, actions: tuple[Array, ...]) -> None:
        """Start one env step everywhere; `recv` ends it.

        actions: per group [P, E] int64 (Discrete, from 0), [P, E, D] int64 (MultiDiscrete) or [P, E, A] float32 (Box);
        rows whose player need not act are ignored. Leave the arrays as they are until `recv`.
        """

    @abstractmethod
    def recv(self) -> Step:
        """Return the Step that `send` started: views that the next `send` or `reset` overwrites.

        Raises EnvError when an environment raised or broke its contract, WorkerError when a worker died or hung; where
        such faults are survived, EnvError when they are too many.
        """

    @abstractmethod
    def close(self) -> None:
        """Close every environment and end every worker; closing twice is harmless."""

    def step(self, actions: tuple[Array, ...]) -> Step:
        """`send`, then `recv`."""
        self.send(actions)
        return self.recv()

    def state(self) -> dict[str, Array]:
        """Return what `restore` goes on from, between `recv` and `send`: the last Step, and what led there.

        It is the same however the environments are spread. Environments of Python have to be made with recording=True.
        """
        seen = {f"step/{name}": array.copy() for name, array in self._told().items()}
        led = {f"envs/{name}": array for name, array in self._snapshot().items()}
        return {**seen, **led, "faults": self._ledger.state(self._clock)}

    def restore(self, saved: Mapping[str, Array]) -> tuple[Step, list[tuple[int, str]]]:
        """Go on where `state` was asked, in place of `reset`; return that Step, and the environments that cannot.

        A native game takes its state back. Any other is played again, on the same seeds and moves; one that shows
        something else in the end, or cannot repeat an episode at all, begins its episode anew: its number is returned
        with what was found, and in its columns is the episode's first Step.

        Raises SaveError, or ConfigError, for what `state` cannot have returned.
        """
        known = State({}, dict(saved), "envs")
        seen = {name: known.array(f"step/{name}", a.dtype, a.shape) for name, a in self._told().items()}
        rest = {name.removeprefix("envs/"): array for name, array in saved.items() if name.startswith("envs/")}
        if self.source.game is None:
            check_action_log(State({}, rest, "envs/envs"), self.spec, self.num_envs)
        for name, array in self._told().items():
            array[...] = seen[name]
        self._forget_faults()
        self._ledger.restore(known.any_array("faults"), self._clock)
        lost = self._restore(rest)
        kept = np.setdiff1d(np.arange(self.num_envs), [e for e, _ in lost])
        self._tell_past(seen, kept)
        self._check_acted_on()
        return self._step, lost

    def _check_acted_on(self) -> None:
        """Raise SaveError where a restored Step cannot be acted on, or counts episodes that there cannot be."""
        arrays = self._step.arrays()
        within("envs/step/episode", arrays["episode"], 0, MOST_COUNTED)
        for name, array in arrays.items():
            kind, _, group = name.partition("/")
            if kind == "obs":
                finite(f"envs/step/{name}", array, arrays[f"turn/{group.partition('/')[0]}"])

    def _tell_past(self, seen: Mapping[str, Array], kept: Array) -> None:
        """Restore event columns of a saved Step, and columns of players who need not act, in environments `kept`.

        Who must act, and what is legal then, stays as the environments say: compiled rules trust what was checked so.
        """
        arrays = self._told()
        for name, array in arrays.items():
            kind, _, group = name.partition("/")
            if kind in ("turn", "alive"):
                continue
            columns = (kept,) if name in BY_ENV else (slice(None), kept)
            told = np.where(arrays[f"turn/{group}"][..., None], array, seen[name]) if kind == "legal" else seen[name]
            array[columns] = told[columns]

    def _told(self) -> dict[str, Array]:
        """Return the Step's arrays by name, but for the rewards at the start of episodes: they are counted by now."""
        arrays = self._step.arrays()
        del arrays["start_reward"]
        return arrays

    def _tell(self, faults: Sequence[Fault]) -> None:
        """Tell of faults, beside those of the same step told before; raises EnvError when they are too many."""
        new = sorted(faults, key=lambda fault: fault.env)
        self.faults = [*self.faults, *new]
        if new:
            self._ledger.add(new, self._clock)

    def _forget_faults(self) -> None:
        self.faults, self._clock = (), 0
        self._ledger.clear()

    @abstractmethod
    def _snapshot(self) -> dict[str, Array]:
        """Return what leads to the present Step, arrays whose parts for each environment are joined along axis 0."""

    @abstractmethod
    def _restore(self, saved: Mapping[str, Array]) -> list[tuple[int, str]]:
        """Go on from a snapshot; the Step holds the columns that it led to. See `restore`."""

    def __enter__(self) -> Self:
        """Return the vector environment itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close it."""
        self.close()


class LocalVectorEnv(VectorEnv):
    """All environments in this process, held by one chunk or one native batch, `_held`, which a subclass makes."""

    _held: Chunk | GameBatch
    _sent: tuple[Array, ...] | None = None

    def reset(self, seed: int) -> Step:
        """See VectorEnv."""
        self._sent = None
        self._held.reset(seed)
        return self._step

    def send(self, actions: tuple[Array, ...]) -> None:
        """See VectorEnv."""
        self._sent = actions

    def recv(self) -> Step:
        """See VectorEnv."""
        if self._sent is None:
            raise RuntimeError("recv() without a send() before it")
        return self.step(self._sent)

    def step(self, actions: tuple[Array, ...]) -> Step:
        """See VectorEnv."""
        self._sent = None
        self._held.step(actions)
        return self._step

    def close(self) -> None:
        """See VectorEnv."""
        self._held.close()

    def _snapshot(self) -> dict[str, Array]:
        return self._held.snapshot()

    def _restore(self, saved: Mapping[str, Array]) -> list[tuple[int, str]]:
        self._sent = None
        return self._held.restore(saved)


class DummyVectorEnv(LocalVectorEnv):
    """All environments in this process, stepped one after another."""

    def __init__(
        self,
        source: Any,
        num_envs: int,
        *,
        role: str = "train",
        with_state: bool = False,
        render_mode: str | None = None,
        recording: bool = False,
        handling: Handling | None = None,
    ) -> None:
        """Build `num_envs` environments of `source` (anything that `resolve` takes); see VectorEnv."""
        check_flags("DummyVectorEnv", recording=recording)
        super().__init__(resolve(source), num_envs, with_state=with_state, handling=handling)
        check_timeout(self._handling.env_timeout, vector="dummy", native=False)
        self._step = Step.empty(self.spec, num_envs)
        self._held: Chunk = Chunk(
            self.source, self.spec, self._step, num_envs=num_envs, role=role, render_mode=render_mode,
            recording=recording, handling=self._handling,
        )  # fmt: skip

    def reset(self, seed: int) -> Step:
        """See VectorEnv."""
        self._forget_faults()
        super().reset(seed)
        self._tell(self._held.faults)
        return self._step

    def step(self, actions: tuple[Array, ...]) -> Step:
        """See VectorEnv."""
        self.faults = ()
        super().step(actions)
        self._clock += self.num_envs
        if self._held.faults:
            self._tell(self._held.faults)
        return self._step

    def render(self, e: int = 0) -> Any:
        """Return or show one frame of environment `e`, as the render mode says."""
        return self._held.render(e)

    def _restore(self, saved: Mapping[str, Array]) -> list[tuple[int, str]]:
        lost = super()._restore(saved)
        self._tell(self._held.faults)
        return lost
