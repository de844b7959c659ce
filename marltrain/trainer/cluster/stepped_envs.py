"""SteppedEnvs: the environments of a runner as the innermost part of wrappers, which the runner itself steps."""

from __future__ import annotations

from collections.abc import Mapping

from marltrain.core.layout import Array
from marltrain.core.spec import Step
from marltrain.envs.native.batch import GameBatch
from marltrain.envs.python.chunk import Chunk
from marltrain.envs.vector import LocalVectorEnv
from marltrain.envs.workers.worker import Task


class SteppedEnvs(LocalVectorEnv):
    """Environments that another object steps between `send` and `recv`, and restores before `restore`.

    sent: the last actions.
    """

    sent: tuple[Array, ...] = ()

    def __init__(self, task: Task, chunk: Chunk | GameBatch, step: Step) -> None:
        """Show a Step of the environments of a task, which others own."""
        self.source, self.spec, self.num_envs = task.source, task.spec, task.high - task.low
        self._chunk, self._step = chunk, step

    def send(self, actions: tuple[Array, ...]) -> None:
        """See VectorEnv."""
        self.sent = actions

    def recv(self) -> Step:
        """See VectorEnv."""
        return self._step

    def restore(self, saved: Mapping[str, Array]) -> tuple[Step, list[tuple[int, str]]]:
        """Return the present Step."""
        return self._step, []
