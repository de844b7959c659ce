"""What commands print."""

from __future__ import annotations

import sys
from typing import Any, TextIO

from marltrain.core.errors import printable


def say(*parts: Any, sep: str = " ", end: str = "\n", file: TextIO | None = None, flush: bool = False) -> None:
    """Print as `print` does, without characters on which a terminal acts; see `errors.printable`."""
    text = sep.join(printable(str(part)) for part in parts)
    print(text, end=end, file=sys.stdout if file is None else file, flush=flush)
