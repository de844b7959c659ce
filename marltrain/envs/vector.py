"""Vector environments: E environments behind `reset / send / recv`, in this process or in worker processes."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Self

import numpy as np

from marltrain.core.errors import ConfigError
from marltrain.core.layout import Array
from marltrain.core.settings import check_flags
from marltrain.core.spec import BY_ENV, EnvSpec, Step
from marltrain.envs.faults import Fault, FaultLog, FaultPolicy
from marltrain.envs.native.batch import GameBatch
from marltrain.envs.python.action_log import check_action_log
from marltrain.envs.python.chunk import Chunk
from marltrain.envs.python.probe import probe
from marltrain.envs.recorded import Recorded
from marltrain.envs.registry import Source, resolve
from marltrain.storage.checks import MOST_COUNTED, finite, within
from marltrain.storage.state import State


class VectorEnv(ABC):
    """Base class of vector environments: E environments as arrays.

    Close the object after use, or use it in a `with` statement.

    spec: the environments' specification.  num_envs: E.  source: how to build one environment.
    faults: the faults survived in the last `reset`, `recv` or `restore`. An environment whose running episode was
      abandoned (`cut_by`) reports no reward and no event except `ended`, and has started a new episode.
    recorded: the attributes recorded at the end of episodes in the last `recv`, see `make_vector`.
    on_faults: called with new faults as soon as they are known, also before an error is raised because of them.
    """

    _step: Step

    def __init__(
        self, source: Source, num_envs: int, *, with_state: bool = False, handling: FaultPolicy | None = None
    ) -> None:
        """Probe the environment that `source` builds. Raises ConfigError, EnvError or SpecError.

        handling: which faults are survived (default: none).
        """
        check_flags(type(self).__name__, with_state=with_state)
        if num_envs < 1:
            raise ConfigError(f"num_envs must be at least 1, got {num_envs}")
        self.source = source
        self.num_envs = num_envs
        self.spec: EnvSpec = probe(source, with_state=with_state)
        self.faults: Sequence[Fault] = ()
        self.recorded: Sequence[Recorded] = ()
        self.on_faults: Callable[[Sequence[Fault]], Any] = lambda faults: None
        self._fault_policy = handling or FaultPolicy()
        self._fault_log = FaultLog(self._fault_policy)
        self._env_steps = 0  # env steps since the reset, of all environments

    @abstractmethod
    def reset(self, seed: int) -> Step:
        """Start episode 0 of a run in all environments and return the first Step. Equal seeds give equal episodes."""

    @abstractmethod
    def send(self, actions: tuple[Array, ...]) -> None:
        """Start one env step in all environments; `recv` completes it.

        actions: per group [P, E] int64 (Discrete, from 0), [P, E, D] int64 (MultiDiscrete) or [P, E, A] float32 (Box).
        Entries of players that need not act are ignored. Do not modify the arrays before `recv`.
        """

    @abstractmethod
    def recv(self) -> Step:
        """Return the Step that `send` started: views that the next `send` or `reset` overwrites.

        Raises EnvError if an environment raised or broke its contract, and WorkerError if a worker died or hung. If
        such faults are survived, raises EnvError when there are too many of them.
        """

    @abstractmethod
    def close(self) -> None:
        """Close all environments and end all workers. A second call has no effect."""

    def step(self, actions: tuple[Array, ...]) -> Step:
        """Call `send`, then `recv`."""
        self.send(actions)
        return self.recv()

    def state(self) -> dict[str, Array]:
        """Return the state for `restore`: the last Step and the data that leads to it. Call between `recv` and `send`.

        The state does not depend on the number of workers. Python environments need recording=True.
        """
        seen = {f"step/{name}": array.copy() for name, array in self._saved_arrays().items()}
        led = {f"envs/{name}": array for name, array in self._snapshot().items()}
        return {**seen, **led, "faults": self._fault_log.state(self._env_steps)}

    def restore(self, saved: Mapping[str, Array]) -> tuple[Step, list[tuple[int, str]]]:
        """Restore a result of `state`, in place of `reset`; return its Step and the environments not restored.

        A native game restores its fields. Any other environment replays its episode with the same seed and actions. If
        the replay differs at the end, or the environment cannot repeat an episode, its episode starts again. The method
        then returns the environment's number and the reason, and its columns hold the episode's first Step.

        Raises SaveError or ConfigError for data that `state` cannot have returned.
        """
        known = State({}, dict(saved), "envs")
        seen = {name: known.array(f"step/{name}", a.dtype, a.shape) for name, a in self._saved_arrays().items()}
        rest = {name.removeprefix("envs/"): array for name, array in saved.items() if name.startswith("envs/")}
        if self.source.game is None:
            self._check_log(State({}, rest, "envs/envs"))
        for name, array in self._saved_arrays().items():
            array[...] = seen[name]
        self._clear_faults()
        self._fault_log.restore(known.any_array("faults"), self._env_steps)
        restarted = self._restore(rest)
        kept = np.setdiff1d(np.arange(self.num_envs), [e for e, _ in restarted])
        self._restore_columns(seen, kept)
        self._check_restored()
        return self._step, restarted

    def _check_log(self, saved: State) -> None:
        """Raise SaveError for data that Python environments cannot have returned as their snapshot."""
        check_action_log(saved, self.spec, self.num_envs)

    def _check_restored(self) -> None:
        """Raise SaveError if a restored Step holds observations that are not finite or impossible episode numbers."""
        arrays = self._step.arrays()
        within("envs/step/episode", arrays["episode"], 0, MOST_COUNTED)
        for name, array in arrays.items():
            kind, _, group = name.partition("/")
            if kind == "obs":
                finite(f"envs/step/{name}", array, arrays[f"turn/{group.partition('/')[0]}"])

    def _restore_columns(self, seen: Mapping[str, Array], kept: Array) -> None:
        """Restore the columns of a saved Step in the environments `kept`.

        `turn`, `alive` and the legal actions of players that must act keep the environments' values: compiled rules
        rely on these checked values.
        """
        arrays = self._saved_arrays()
        for name, array in arrays.items():
            kind, _, group = name.partition("/")
            if kind in ("turn", "alive"):
                continue
            columns = (kept,) if name in BY_ENV else (slice(None), kept)
            past = np.where(arrays[f"turn/{group}"][..., None], array, seen[name]) if kind == "legal" else seen[name]
            array[columns] = past[columns]

    def _saved_arrays(self) -> dict[str, Array]:
        """Return the Step's arrays by name, without `start_reward`: these rewards are already counted."""
        arrays = self._step.arrays()
        del arrays["start_reward"]
        return arrays

    def _add_faults(self, faults: Sequence[Fault]) -> None:
        """Add faults to those of the same step, and log them; raises EnvError if there are too many."""
        new = sorted(faults, key=lambda fault: fault.env)
        self.faults = [*self.faults, *new]
        if new:
            self.on_faults(new)
            self._fault_log.add(new, self._env_steps)

    def _clear_faults(self) -> None:
        self.faults, self._env_steps = (), 0
        self._fault_log.clear()

    @abstractmethod
    def _snapshot(self) -> dict[str, Array]:
        """Return the data that leads to the current Step: arrays with the environments joined along axis 0."""

    @abstractmethod
    def _restore(self, saved: Mapping[str, Array]) -> list[tuple[int, str]]:
        """Continue from a snapshot; the Step holds the columns of that moment. See `restore`."""

    def __enter__(self) -> Self:
        """Return the vector environment itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close the vector environment."""
        self.close()


class LocalVectorEnv(VectorEnv):
    """All environments in this process, in one chunk or one native batch: `_chunk`, which a subclass creates."""

    _chunk: Chunk | GameBatch
    _sent: tuple[Array, ...] | None = None

    def reset(self, seed: int) -> Step:
        """See VectorEnv."""
        self._sent = None
        self._chunk.reset(seed)
        return self._step

    def send(self, actions: tuple[Array, ...]) -> None:
        """See VectorEnv."""
        self._sent = actions

    def recv(self) -> Step:
        """See VectorEnv."""
        actions, self._sent = self._sent, None
        if actions is None:
            raise RuntimeError("recv() without a send() before it")
        self._chunk.step(actions)
        self.recorded = self._chunk.recorded
        return self._step

    def close(self) -> None:
        """See VectorEnv."""
        self._chunk.close()

    def _snapshot(self) -> dict[str, Array]:
        return self._chunk.snapshot()

    def _restore(self, saved: Mapping[str, Array]) -> list[tuple[int, str]]:
        self._sent = None
        return self._chunk.restore(saved)


class DummyVectorEnv(LocalVectorEnv):
    """All environments in this process, stepped sequentially."""

    def __init__(
        self,
        source: Any,
        num_envs: int,
        *,
        role: str = "train",
        with_state: bool = False,
        render_mode: str | None = None,
        recording: bool = False,
        handling: FaultPolicy | None = None,
        record: Sequence[str] = (),
    ) -> None:
        """Build `num_envs` environments of `source` (any argument that `resolve` accepts); see VectorEnv."""
        check_flags("DummyVectorEnv", recording=recording)
        super().__init__(resolve(source), num_envs, with_state=with_state, handling=handling)
        check_timeout(self._fault_policy.env_timeout, vector="dummy", native=False)
        self._step = Step.empty(self.spec, num_envs)
        self._chunk: Chunk = Chunk(
            self.source, self.spec, self._step, num_envs=num_envs, role=role, render_mode=render_mode,
            recording=recording, fault_policy=self._fault_policy, record=record,
        )  # fmt: skip

    def reset(self, seed: int) -> Step:
        """See VectorEnv."""
        self._clear_faults()
        super().reset(seed)
        self._add_faults(self._chunk.faults)
        return self._step

    def recv(self) -> Step:
        """See VectorEnv."""
        self.faults = ()
        super().recv()
        self._env_steps += self.num_envs
        if self._chunk.faults:
            self._add_faults(self._chunk.faults)
        return self._step

    def render(self, e: int = 0) -> Any:
        """Return or show one frame of environment `e`, depending on the render mode."""
        return self._chunk.render(e)

    def _restore(self, saved: Mapping[str, Array]) -> list[tuple[int, str]]:
        restarted = super()._restore(saved)
        self._add_faults(self._chunk.faults)
        return restarted


def check_timeout(env_timeout: float | None, *, vector: str, native: bool) -> None:
    """Raise ConfigError for a timeout with native games, or with environments that are not in worker processes."""
    if env_timeout is None:
        return
    if native:
        raise ConfigError(
            f"env_timeout={env_timeout:g} has no meaning for a native game, whose steps are compiled: leave it out"
        )
    if vector not in ("subproc", "ray"):
        raise ConfigError(
            f"env_timeout={env_timeout:g} needs worker processes, since nothing can end a step that hangs in this one: "
            f'use vector="subproc", or leave it out with vector="{vector}"'
        )
