"""The faults that a run survived, in training and in tests: a table of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from marltrain.envs import VectorEnv
from marltrain.envs.faults import Fault
from marltrain.errors import SaveError
from marltrain.files import State, replacing

if TYPE_CHECKING:
    import pandas as pd

FAULTS_FILE = "faults.parquet"
COLUMNS = ("role", "env_steps", "seconds", "kind", "env", "episode", "seed", "step", "message")

Given = TypeVar("Given")


def received(envs: VectorEnv, give: Callable[[], Given], on_faults: Callable[[Sequence[Fault]], Any]) -> Given:
    """Return what environments give when they are reset or stepped; tell of their faults, also of those too many."""
    try:
        return give()
    finally:
        if envs.faults:
            on_faults(envs.faults)


class FaultTable:
    """A row a fault: where it was, and what a `Fault` says.

    `role` ("train" or "test"), `env_steps` (of training, before it), `seconds`; then `kind`, `env`,
    `episode`, `seed`, `step` and `message`.
    """

    def __init__(self, folder: Path | None) -> None:
        """Start empty; `folder` is the run's, None to write nothing."""
        self._path = None if folder is None else folder / FAULTS_FILE
        self._rows: list[tuple[Any, ...]] = []
        self._written = 0

    def __len__(self) -> int:
        """How many faults there were."""
        return len(self._rows)

    def add(self, faults: Sequence[Fault], *, role: str, env_steps: int, seconds: float) -> None:
        """Add the faults of one batch step."""
        self._rows += [(role, env_steps, seconds, f.kind, f.env, f.episode, f.seed, f.step, f.message) for f in faults]

    @property
    def frame(self) -> pd.DataFrame:
        """A copy of the table."""
        import pandas as pd

        return pd.DataFrame(self._rows, columns=list(COLUMNS))

    def state(self) -> State:
        """Return all rows."""
        return State({"rows": [list(row) for row in self._rows]})

    def restore(self, state: State) -> None:
        """Become the table that `state` was asked of."""
        rows = [tuple(row) for row in state.info["rows"]]
        if any(len(row) != len(COLUMNS) for row in rows):
            raise SaveError(f"a table of faults has the columns {', '.join(COLUMNS)}; a row has others")
        self._rows = rows
        self._written = -1  # what is in the folder may tell of a future that was given up

    def write(self) -> None:
        """Write the table into the run's folder, where there is something new to write."""
        if self._path is None or len(self._rows) == self._written:
            return
        with replacing(self._path) as beside:
            self.frame.to_parquet(beside, index=False)
        self._written = len(self._rows)
