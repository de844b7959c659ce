"""NativeVectorEnv: E environments of a native game behind `reset / send / recv`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from marltrain.envs.native.batch import Batch
from marltrain.envs.registry import resolve
from marltrain.envs.vector import VectorEnv
from marltrain.errors import ConfigError
from marltrain.layout import Array
from marltrain.spec import Step


class NativeVectorEnv(VectorEnv):
    """All environments in this process, as arrays, stepped by one compiled call.

    Gives the same episodes as any other vector environment of the same game, bit for bit.

    batch: what holds them: `get_state`, `set_state`, `set_chances` for one environment, `snapshot`, `restore` for all.
    """

    def __init__(
        self,
        env: Any,
        num_envs: int,
        env_args: Mapping[str, Any] | None = None,
        *,
        role: str = "train",
        with_state: bool = False,
        threads: int = 1,
    ) -> None:
        """Lay out `num_envs` environments of a native game; see VectorEnv.

        threads: how many share a step; worth it only where a step of all takes far more than 0.1 ms.

        Raises ConfigError for an environment that is no native game.
        """
        super().__init__(resolve(env, env_args), num_envs, with_state=with_state)
        if self.source.game is None:
            raise ConfigError(f"{self.source.name!r} is no native game; make_vector builds any environment")
        game = self.source.game(**self.source.arguments)
        self._step = Step.empty(self.spec, num_envs)
        self.batch = Batch(game, self.spec, self._step, num_envs=num_envs, role=role, threads=threads)
        self._sent: tuple[Array, ...] | None = None

    def reset(self, seed: int) -> Step:
        """See VectorEnv."""
        self._sent = None
        self.batch.reset(seed)
        return self._step

    def send(self, actions: tuple[Array, ...]) -> None:
        """See VectorEnv."""
        self._sent = actions

    def recv(self) -> Step:
        """See VectorEnv."""
        if self._sent is None:
            raise RuntimeError("recv() without a send() before it")
        actions, self._sent = self._sent, None
        self.batch.step(actions)
        return self._step

    def step(self, actions: tuple[Array, ...]) -> Step:
        """`send`, then `recv`."""
        self._sent = None
        self.batch.step(actions)
        return self._step

    def close(self) -> None:
        """See VectorEnv."""
        self.batch.close()

    def _snapshot(self) -> dict[str, Array]:
        return self.batch.snapshot()

    def _restore(self, saved: Mapping[str, Array]) -> list[tuple[int, str]]:
        self._sent = None
        self.batch.restore(saved)
        return []
