"""WorkerVectorEnv: E environments in workers, with replacement of lost workers."""

from __future__ import annotations

import itertools
import json
from collections.abc import Mapping, Sequence

import numpy as np

from marltrain.core.errors import ConfigError
from marltrain.core.layout import Array
from marltrain.core.seeds import child_seed
from marltrain.core.settings import check_flags
from marltrain.core.spec import Step, empty_actions
from marltrain.envs.faults import DIED, Fault, FaultPolicy, decode_faults, location
from marltrain.envs.registry import Source
from marltrain.envs.vector import VectorEnv
from marltrain.envs.workers.pool import Loss, WorkerPool
from marltrain.envs.workers.shared import Shared
from marltrain.envs.workers.worker import BEGIN, RESTORE, SNAPSHOT, Report, Task
from marltrain.storage.files import pack_arrays, unpack_arrays


def shares(num_envs: int, num_workers: int) -> list[int]:
    """Return the first environment of each worker, and the number of environments: E environments in even shares."""
    return [num_envs * w // num_workers for w in range(num_workers + 1)]


class WorkerVectorEnv(VectorEnv):
    """Environments in workers that hold several each. A subclass starts the workers and carries the arrays.

    The episodes are bit-identical to those of DummyVectorEnv, for any number of workers.
    """

    _pool: WorkerPool

    def __init__(
        self,
        source: Source,
        num_envs: int,
        num_workers: int,
        *,
        role: str,
        with_state: bool,
        recording: bool,
        handling: FaultPolicy | None,
        record: Sequence[str],
    ) -> None:
        """Divide the environments among `num_workers` workers; a subclass then calls `_open`."""
        if not 1 <= num_workers <= max(num_envs, 1):
            raise ConfigError(f"num_workers must be between 1 and num_envs ({num_envs}), got {num_workers}")
        check_flags(type(self).__name__, recording=recording)
        super().__init__(source, num_envs, with_state=with_state, handling=handling)
        self._survives_loss = source.game is None and self._fault_policy.survives(DIED, proven=True)
        self._role, self._seed = role, 0
        cuts = shares(num_envs, num_workers)
        self._tasks = [
            Task(
                source, self.spec, num_envs, low, high, role, w, num_workers, recording, self._fault_policy,
                tuple(record),
            )
            for w, (low, high) in enumerate(itertools.pairwise(cuts))
        ]  # fmt: skip
        self._sent = False

    def _open(self, shared: Shared, pool: WorkerPool) -> None:
        """Take the arrays of all environments and the workers that fill them."""
        self._shared, self._pool = shared, pool
        self._step, self._actions = shared.step, shared.actions

    def reset(self, seed: int) -> Step:
        """See VectorEnv."""
        self._sent = False
        self._clear_faults()
        self._seed = seed
        self._step.episode[...] = 0
        self._pool.order(seed)
        self._collect_faults(self._pool.wait(), cut=False)
        return self._step

    def send(self, actions: tuple[Array, ...]) -> None:
        """See VectorEnv."""
        for shared, array in zip(self._actions, actions, strict=True):
            shared[...] = array
        self._pool.order()
        self._sent = True

    def recv(self) -> Step:
        """See VectorEnv."""
        if not self._sent:
            raise RuntimeError("recv() without a send() before it")
        self._sent = False
        self.faults, self.recorded = (), ()
        answers = self._pool.wait()
        self._env_steps += self.num_envs
        if any(answers):
            self._collect_faults(answers, cut=True)
        return self._step

    def close(self) -> None:
        """See VectorEnv."""
        self._pool.close()

    def _snapshot(self) -> dict[str, Array]:
        self._pool.order(SNAPSHOT)
        answers = self._pool.wait()
        parts = [
            self._empty_snapshot(answer) if isinstance(answer, Loss) else unpack_arrays(answer) for answer in answers
        ]
        return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}

    def _restore(self, saved: Mapping[str, Array]) -> list[tuple[int, str]]:
        self._sent = False
        native = self.source.game is not None
        if native:
            self._check_native(saved)
        self._seed = 0 if native else int(saved["seed"][0])
        self._pool.order(RESTORE, pack_arrays(saved))
        restarted, faults = [], []
        for answer in self._pool.wait(1 if native else 1 + int(saved["length"].max())):
            if isinstance(answer, Loss):
                faults += self._replace(answer)
                restarted += [(e, answer.description) for e in self._envs_of(answer)]
            else:
                restored = json.loads(answer)
                restarted += [(e, found) for e, found in restored["restarted"]]
                faults += decode_faults(restored["faults"].encode())
        self._step.ended[[e for e, _ in restarted]] = True
        self._add_faults(faults)
        return restarted

    def _check_native(self, saved: Mapping[str, Array]) -> None:
        """Raise ConfigError for a state that a native game's rules cannot continue from, before workers receive it."""
        from marltrain.envs.native.records import restore_records  # a late import: other environments do not need it

        game = self.source.game(**self.source.arguments)  # type: ignore[misc]
        restore_records(game, np.zeros(self.num_envs, game.fields), saved, 0, may_be_over=False)

    # Faults

    def _collect_faults(self, answers: Sequence[bytes | Loss], *, cut: bool) -> None:
        """Record the faults and the recorded values in the workers' answers, and replace lost workers.

        cut: whether the lost workers' running episodes are abandoned; False in a reset.
        """
        faults = []
        for answer in answers:
            if isinstance(answer, Loss):
                faults += self._replace(answer, cut=self._envs_of(answer) if cut else ())
            elif answer:
                report = Report.from_bytes(answer)
                faults += report.faults
                self.recorded = [*self.recorded, *report.recorded]
        self._add_faults(faults)

    def _replace(self, loss: Loss, cut: Sequence[int] = ()) -> list[Fault]:
        """Replace a lost worker, start the next episodes of its environments, and return the faults.

        Stops after more faults than are survived: `_add_faults` then raises an error.
        """
        envs = list(self._envs_of(loss))
        faults, answer = [self._fault(loss, tuple(cut))], b""
        while not self._fault_policy.too_many(len(faults)):
            begin = [self._seed, *(self._step.episode[envs] + 1).tolist()]
            again = self._pool.replace(loss.worker, BEGIN, json.dumps(begin).encode())
            if not isinstance(again, Loss):
                answer = again
                break
            faults.append(self._fault(again, ()))
        self._step.ended[list(cut)] = True
        return faults + Report.from_bytes(answer).faults

    def _fault(self, loss: Loss, cut: tuple[int, ...]) -> Fault:
        """Return the fault of a lost worker; raises WorkerError if the loss is not survived."""
        if not self._survives_loss:
            raise self._pool.error(loss)
        at = int(self._shared.at[loss.worker])
        if at < 0:
            return Fault(loss.kind, -1, -1, -1, -1, loss.description, cut=cut)
        e = self._tasks[loss.worker].low + at
        episode, step = int(self._step.episode[e]), int(self._shared.length[e])
        seed = child_seed(self._seed, "episode", self._role, e, episode)
        where = location(self.source.name, self._role, e, episode, seed, step)
        return Fault(loss.kind, e, episode, seed, step, f"{where}: {loss.description}", cut=cut)

    def _envs_of(self, loss: Loss) -> range:
        task = self._tasks[loss.worker]
        return range(task.low, task.high)

    def _empty_snapshot(self, loss: Loss) -> dict[str, Array]:
        """Return a snapshot without actions for a lost worker's environments, whose actions are lost.

        The next step also finds the loss and starts new episodes.
        """
        if not self._survives_loss:
            raise self._pool.error(loss)
        envs = list(self._envs_of(loss))
        moves = [one.swapaxes(0, 1) for one in empty_actions(self.spec, 0)]
        return {
            "seed": np.full(len(envs), self._seed, np.int64),
            "episode": self._step.episode[envs],
            "length": np.zeros(len(envs), np.int64),
            **{f"moves/{g}": one for g, one in enumerate(moves)},
        }
