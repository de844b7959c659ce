"""VectorEnvWrapper: a vector environment that shows the steps of another one in another form."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from marltrain.core.layout import Array
from marltrain.envs.vector import VectorEnv


class VectorEnvWrapper(VectorEnv):
    """Base of environments that own other ones: state, faults and records are those of the environments inside.

    envs: the environments inside.
    """

    envs: VectorEnv

    def close(self) -> None:
        """See VectorEnv."""
        self.envs.close()

    def state(self) -> dict[str, Array]:
        """See VectorEnv."""
        return self.envs.state()

    @property
    def faults(self) -> Any:  # type: ignore[override]
        """See VectorEnv."""
        return self.envs.faults

    @property
    def recorded(self) -> Any:  # type: ignore[override]
        """See VectorEnv."""
        return self.envs.recorded

    @property
    def on_faults(self) -> Any:
        """See VectorEnv."""
        return self.envs.on_faults

    @on_faults.setter
    def on_faults(self, function: Any) -> None:
        self.envs.on_faults = function

    def _snapshot(self) -> dict[str, Array]:
        return self.envs._snapshot()

    def _restore(self, saved: Mapping[str, Array]) -> list[tuple[int, str]]:
        return self.envs._restore(saved)
