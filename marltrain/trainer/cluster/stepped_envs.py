"""The environments of a runner as vector environments, which the runner itself steps, and by match."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any

import numpy as np

from marltrain.core.layout import Array, map_tree
from marltrain.core.spec import BY_ENV, Step
from marltrain.envs.matches import match_spec
from marltrain.envs.native.batch import GameBatch
from marltrain.envs.python.chunk import Chunk
from marltrain.envs.vector import LocalVectorEnv, VectorEnv
from marltrain.envs.workers.worker import Task
from marltrain.envs.wrapper import VectorEnvWrapper
from marltrain.trainer.cluster.columns import Columns


class SteppedEnvs(LocalVectorEnv):
    """Environments that another object steps between `send` and `recv`, and restores before `restore`.

    sent: the last actions.
    """

    sent: tuple[Array, ...] = ()

    def __init__(self, task: Task, chunk: Chunk | GameBatch, step: Step) -> None:
        """Take the environments of a task and their Step, which others own."""
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


class HeldMatchesVectorEnv(VectorEnvWrapper):
    """The environments of a runner by match, like those of a `MatchesVectorEnv`, in the layout of `Columns`.

    Cells that the runner does not hold never have a turn.
    """

    def __init__(self, envs: VectorEnv, names: Sequence[str], columns: Columns, actions: tuple[Array, ...]) -> None:
        """Take the environments.  names: of the matches.  actions: where those by game are written."""
        self.envs, self.source, self.spec = envs, envs.source, match_spec(envs.spec, names)
        self.num_envs, self._columns, self._actions = columns.width, columns, actions
        self._valid = np.tile(columns.valid, (len(envs.spec.players), 1))

    def reset(self, seed: int) -> Step:
        """See VectorEnv."""
        return self._by_match(self.envs.reset(seed))

    def send(self, actions: tuple[Array, ...]) -> None:
        """See VectorEnv."""
        for given, own in zip(actions, self._actions, strict=True):
            own[...] = self._columns.by_game(given)
        self.envs.send(self._actions)

    def recv(self) -> Step:
        """See VectorEnv."""
        return self._by_match(self.envs.recv())

    def restore(self, saved: Mapping[str, Array]) -> tuple[Step, list[tuple[int, str]]]:
        """See VectorEnv."""
        step, restarted = self.envs.restore(saved)
        return self._by_match(step), restarted

    def _by_match(self, step: Step) -> Step:
        """Return a Step by match, with the ends of episodes as those of players: `ended` has no axis of matches."""
        by_match = self._columns.by_match

        def each(value: Any) -> Any:
            if isinstance(value, tuple):
                return tuple(map_tree(by_match, own) for own in value)
            return map_tree(by_match, value)

        views = {f.name: each(getattr(step, f.name)) for f in fields(Step) if f.name not in BY_ENV}
        ended = by_match(np.tile(step.ended, (len(step.reward), 1)))
        views |= {name: tuple(own & self._valid for own in views[name]) for name in ("turn", "alive")}
        views["truncated"] = (views["truncated"] | ended) & self._valid
        views["terminated"] &= self._valid
        width = self.num_envs
        return Step(
            **views, ended=np.zeros(width, bool), episode=np.zeros(width, np.int64), state=None, final_state=None
        )
