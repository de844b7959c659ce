"""SubprocVectorEnv: E environments in worker processes, and the replacement of lost workers."""

from __future__ import annotations

import itertools
import json
import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from marltrain.children import within_limits
from marltrain.config import check_flags
from marltrain.envs.faults import DIED, Fault, Handling, check_timeout, read
from marltrain.envs.python.chunk import place
from marltrain.envs.registry import resolve
from marltrain.envs.vector import VectorEnv
from marltrain.envs.workers.pool import FEWER, Loss, WorkerPool, worker_context
from marltrain.envs.workers.worker import BEGIN, RESTORE, SNAPSHOT, Task, shared_arrays, shared_size
from marltrain.errors import ConfigError
from marltrain.files import packed, unpacked
from marltrain.layout import Array
from marltrain.random import child_seed
from marltrain.spec import Step, empty_actions


class SubprocVectorEnv(VectorEnv):
    """The environments in worker processes, each of which holds many and writes into shared memory.

    Gives the same episodes as DummyVectorEnv, bit for bit, with any number of workers.

    halves: the environments of the first half of the workers, and those of the others: the two may be stepped in turn.
    """

    def __init__(
        self,
        source: Any,
        num_envs: int,
        *,
        num_workers: int | None = None,
        role: str = "train",
        with_state: bool = False,
        recording: bool = False,
        handling: Handling | None = None,
    ) -> None:
        """Start `num_workers` processes (default: one for each core, at most one for each environment)."""
        if num_workers is None:
            num_workers = usual_workers(num_envs)
        if not 1 <= num_workers <= max(num_envs, 1):
            raise ConfigError(f"num_workers must be between 1 and num_envs ({num_envs}), got {num_workers}")
        check_flags("SubprocVectorEnv", recording=recording)
        super().__init__(resolve(source), num_envs, with_state=with_state, handling=handling)
        native = self.source.game is not None
        check_timeout(self._handling.env_timeout, vector="subproc", native=native)
        self._survives = not native and self._handling.survives(DIED, proven=True)
        self._role, self._seed = role, 0
        with within_limits(FEWER):
            memory = worker_context().RawArray("B", shared_size(self.spec, num_envs, num_workers))
        self._shared = shared_arrays(self.spec, num_envs, num_workers, memory)
        self._step, self._actions = self._shared.step, self._shared.actions
        cuts = [num_envs * w // num_workers for w in range(num_workers + 1)]
        middle = (num_workers + 1) // 2
        self._halves = (range(middle), range(middle, num_workers))
        self.halves = (slice(0, cuts[middle]), slice(cuts[middle], num_envs))
        self._parts = [self._step.part(half.start, half.stop) for half in self.halves]
        self._tasks = [
            Task(self.source, self.spec, num_envs, low, high, role, w, num_workers, recording, self._handling)
            for w, (low, high) in enumerate(itertools.pairwise(cuts))
        ]
        self._pool = WorkerPool(self._tasks, memory, self._handling.env_timeout)
        self._sent = [False, False]  # of each half

    def reset(self, seed: int) -> Step:
        """See VectorEnv."""
        self._sent = [False, False]
        self._forget_faults()
        self._seed = seed
        self._step.episode[...] = 0
        self._pool.order(seed)
        self._collect(self._pool.wait(), cut=False)
        return self._step

    def send(self, actions: tuple[Array, ...]) -> None:
        """See VectorEnv."""
        for shared, array in zip(self._actions, actions, strict=True):
            shared[...] = array
        self._pool.order()
        self._sent = [True, True]

    def recv(self) -> Step:
        """See VectorEnv."""
        if not all(self._sent):
            raise RuntimeError("recv() without a send() before it")
        self._sent = [False, False]
        self.faults = ()
        answers = self._pool.wait()
        self._clock += self.num_envs
        if any(answers):
            self._collect(answers, cut=True)
        return self._step

    def send_half(self, half: int, actions: tuple[Array, ...]) -> None:
        """Start one env step in one half of the environments, 0 or 1: only the actions in its columns are taken."""
        envs = self.halves[half]
        for shared, array in zip(self._actions, actions, strict=True):
            shared[:, envs] = array[:, envs]
        self._pool.order(workers=self._halves[half])
        self._sent[half] = True

    def recv_half(self, half: int) -> Step:
        """End the step of one half, half 0's before half 1's; return the Step of its environments alone.

        `faults` are then half 0's, and in the end those of both. See `recv`.
        """
        if not self._sent[half]:
            raise RuntimeError(f"recv_half({half}) without a send_half({half}) before it")
        self._sent[half] = False
        if half == 0:
            self.faults = ()
            self._clock += self.num_envs
        answers = self._pool.wait(workers=self._halves[half])
        if any(answers):
            self._collect(answers, cut=True)
        return self._parts[half]

    def close(self) -> None:
        """See VectorEnv."""
        self._pool.close()

    def _snapshot(self) -> dict[str, Array]:
        self._pool.order(SNAPSHOT)
        answers = self._pool.wait()
        parts = [self._unknown(answer) if isinstance(answer, Loss) else unpacked(answer) for answer in answers]
        return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}

    def _restore(self, saved: Mapping[str, Array]) -> list[tuple[int, str]]:
        self._sent = [False, False]
        native = self.source.game is not None
        if native:
            self._check_native(saved)
        self._seed = 0 if native else int(saved["seed"][0])
        self._pool.order(RESTORE, packed(saved))
        lost, faults = [], []
        for answer in self._pool.wait(1 if native else 1 + int(saved["length"].max())):
            if isinstance(answer, Loss):
                faults += self._mend(answer)
                lost += [(e, answer.told) for e in self._envs_of(answer)]
            else:
                told = json.loads(answer)
                lost += [(e, found) for e, found in told["lost"]]
                faults += read(told["faults"].encode()) if told["faults"] else []
        self._step.ended[[e for e, _ in lost]] = True
        self._tell(faults)
        return lost

    def _check_native(self, saved: Mapping[str, Array]) -> None:
        """Refuse what a native game's rules could not go on from, as one process would: no worker is at fault."""
        from marltrain.envs.native.records import take_back  # loads what other environments do not need

        game = self.source.game(**self.source.arguments)  # type: ignore[misc]
        take_back(game, np.zeros(self.num_envs, game.fields), saved, 0, may_be_over=False)

    # Faults

    def _collect(self, answers: Sequence[bytes | Loss], *, cut: bool) -> None:
        """Tell of the faults in the workers' answers; start others in the place of those that are gone.

        cut: their running episodes are given up for it, since this is no reset.
        """
        faults = []
        for answer in answers:
            if isinstance(answer, Loss):
                faults += self._mend(answer, cut=self._envs_of(answer) if cut else ())
            elif answer:
                faults += read(answer)
        self._tell(faults)

    def _mend(self, loss: Loss, cut: Sequence[int] = ()) -> list[Fault]:
        """Start a worker in the place of one that is gone, and the next episodes in its environments.

        Return the faults. After more of them than are survived it is left alone: `_tell` stops then.
        """
        envs = list(self._envs_of(loss))
        faults, answer = [self._fault(loss, tuple(cut))], b""
        while len(faults) <= self._handling.max_env_restarts:
            begin = [self._seed, *(self._step.episode[envs] + 1).tolist()]
            again = self._pool.replace(loss.worker, BEGIN, json.dumps(begin).encode())
            if not isinstance(again, Loss):
                answer = again
                break
            faults.append(self._fault(again, ()))
        self._step.ended[list(cut)] = True
        return faults + (read(answer) if answer else [])

    def _fault(self, loss: Loss, cut: tuple[int, ...]) -> Fault:
        """Describe the loss of a worker; raises WorkerError where that is not survived."""
        if not self._survives:
            raise self._pool.error(loss)
        at = int(self._shared.at[loss.worker])
        if at < 0:
            return Fault(loss.kind, -1, -1, -1, -1, loss.told, cut=cut)
        e = self._tasks[loss.worker].low + at
        episode, step = int(self._step.episode[e]), int(self._shared.length[e])
        seed = child_seed(self._seed, "episode", self._role, e, episode)
        where = place(self.source.name, self._role, e, episode, seed, step)
        return Fault(loss.kind, e, episode, seed, step, f"{where}: {loss.told}", cut=cut)

    def _envs_of(self, loss: Loss) -> range:
        task = self._tasks[loss.worker]
        return range(task.low, task.high)

    def _unknown(self, loss: Loss) -> dict[str, Array]:
        """Return a snapshot for the environments of a worker that is gone: no move leads to where they were.

        The next step finds it gone, too, and begins new episodes.
        """
        if not self._survives:
            raise self._pool.error(loss)
        envs = list(self._envs_of(loss))
        moves = [one.swapaxes(0, 1) for one in empty_actions(self.spec, 0)]
        return {
            "seed": np.full(len(envs), self._seed, np.int64),
            "episode": self._step.episode[envs],
            "length": np.zeros(len(envs), np.int64),
            **{f"moves/{g}": one for g, one in enumerate(moves)},
        }


def usual_workers(num_envs: int) -> int:
    """Return how many workers there are where nobody says it: one for each core, at most one for each environment."""
    return min(num_envs, _cores())


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
