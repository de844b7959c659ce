"""Texts in CSV files: a spreadsheet that opens them takes no text for a formula.

Names come from other people's environments. A spreadsheet evaluates a cell that begins with = + - or @, also after
a tab or a line break, and a formula may start programs or send the table away. Such a text gets an apostrophe before
it, which spreadsheets do not show; numbers stay as they are.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from marltrain.storage.files import replacing

if TYPE_CHECKING:
    import pandas as pd

_BEGIN = "[=+\\-@\t\r\n＝＋－＠]"  # noqa: RUF001 - the wide forms of = + - @
_FORMULA = re.compile(f"'*{_BEGIN}")
_WRITTEN = re.compile(f"'+{_BEGIN}")


def cell(value: Any) -> Any:
    """Return a value as it is written: a text that would be a formula behind an apostrophe, all others unchanged."""
    return f"'{value}" if isinstance(value, str) and _FORMULA.match(value) else value


def read_cell(text: str) -> str:
    """Return the text that `cell` wrote."""
    return text[1:] if _WRITTEN.match(text) else text


def write_csv(table: pd.DataFrame, path: str | Path, *, index: bool = False) -> None:
    """Write a table, with its names and texts as `cell` writes them; raises SaveError if it cannot be written."""
    safe = table.map(cell).rename(columns=cell)
    if index:
        safe = safe.rename(index=cell).rename_axis(index=cell(table.index.name), columns=cell(table.columns.name))
    with replacing(path) as beside:
        safe.to_csv(beside, index=index)
