"""Parquet files of tables, which hold the version of marltrain and that of their columns."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from marltrain.core.version import __version__

if TYPE_CHECKING:
    import pandas as pd

SCHEMA = 1
"""Version of the columns: raised if a column goes or changes its meaning."""
METADATA = {b"marltrain": __version__.encode(), b"marltrain_schema": str(SCHEMA).encode()}


def write_table(frame: pd.DataFrame, path: str | Path) -> None:
    """Write a table without its index as Parquet, with METADATA beside that of pandas."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    table = pa.Table.from_pandas(frame, preserve_index=False)
    pq.write_table(table.replace_schema_metadata({**(table.schema.metadata or {}), **METADATA}), path)
