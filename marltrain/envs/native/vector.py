"""NativeVectorEnv: E environments of a native game behind `reset / send / recv`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from marltrain.core.errors import ConfigError
from marltrain.core.spec import Step
from marltrain.envs.native.batch import GameBatch
from marltrain.envs.registry import resolve
from marltrain.envs.vector import LocalVectorEnv


class NativeVectorEnv(LocalVectorEnv):
    """All environments in this process, as arrays, stepped by one compiled call.

    The episodes are bit-identical to those of any other vector environment of the same game.

    batch: the GameBatch, with `get_state`, `set_state`, `set_chances` for one environment and `snapshot`, `restore` for
      all.
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
        record: Sequence[str] = (),
    ) -> None:
        """Create `num_envs` environments of a native game; see VectorEnv.

        threads: number of threads per step; useful only if a step of all environments takes far more than 0.1 ms.
        record: see `make_vector`.

        Raises ConfigError for an environment that is not a native game.
        """
        super().__init__(resolve(env, env_args), num_envs, with_state=with_state)
        if self.source.game is None:
            raise ConfigError(f"{self.source.name!r} is no native game; make_vector builds any environment")
        game = self.source.game(**self.source.arguments)
        self._step = Step.empty(self.spec, num_envs)
        self.batch = self._chunk = GameBatch(
            game, self.spec, self._step, num_envs=num_envs, role=role, threads=threads, record=record
        )
