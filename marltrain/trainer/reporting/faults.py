"""The table of faults that a run survived."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from marltrain.core.errors import SaveError
from marltrain.core.seeds import MOST_SEED
from marltrain.envs.faults import Fault
from marltrain.storage.checks import counted, of_type
from marltrain.storage.files import replacing
from marltrain.storage.state import State
from marltrain.trainer.reporting.table_files import write_table

if TYPE_CHECKING:
    import pandas as pd

FAULTS_FILE = "faults.parquet"
COLUMNS: dict[str, type] = {
    "role": str, "env_steps": int, "seconds": float, "kind": str, "env": int, "episode": int, "seed": int, "step": int,
    "message": str,
}  # fmt: skip


def _row(values: Sequence[Any]) -> tuple[Any, ...]:
    """Return a row read from a file; raises SaveError unless it has the columns, each of its type."""
    if len(values) != len(COLUMNS):
        raise SaveError(f"a table of faults has the columns {', '.join(COLUMNS)}; a row has others")
    for (name, kind), value in zip(COLUMNS.items(), values, strict=True):
        if of_type(f"{name} of a fault", value, kind) is value and kind is int:
            counted(f"{name} of a fault", value, -1, MOST_SEED)
    return tuple(values)


class FaultTable:
    """Table with one row per fault: its time in the run, and the fields of `Fault`.

    `role` ("train" or "test"), `env_steps` (of training, before the fault), `seconds`; then `kind`, `env`,
    `episode`, `seed`, `step` and `message`.
    """

    def __init__(self, folder: Path | None) -> None:
        """Create an empty table; folder: the run's folder, None to write no file."""
        self._path = None if folder is None else folder / FAULTS_FILE
        self._rows: list[tuple[Any, ...]] = []
        self._written = 0

    def __len__(self) -> int:
        """Return the number of faults."""
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
        """Restore what `state` returned; raises SaveError for invalid rows."""
        self._rows = [_row(values) for values in state.values("rows", list)]
        self._written = -1  # the file may hold later faults of a run that was resumed from an earlier checkpoint

    def write(self) -> None:
        """Write the table into the run's folder, if it has changed."""
        if self._path is None or len(self._rows) == self._written:
            return
        with replacing(self._path) as beside:
            write_table(self.frame, beside)
        self._written = len(self._rows)
