"""A table before the entries of each section of the API page: names with signatures and the first line of each.

Reads the names from the section's `autoclass`, `autofunction` and `autoexception` directives, so that they are written
once.
"""

import re
from typing import Any

from sphinx.application import Sphinx

PAGE = "api"
HEADING = re.compile(r"^[^\n]+\n-{4,}\n", re.MULTILINE)
ENTRY = re.compile(r"^\.\. auto(?:class|function|exception):: (\w+)$", re.MULTILINE)


def with_tables(text: str) -> str:
    """Return the page with a table below each heading of a section that has entries."""
    starts = [match.end() for match in HEADING.finditer(text)]
    ends = [*(match.start() for match in HEADING.finditer(text)), len(text)][1:]
    for start, end in reversed(list(zip(starts, ends, strict=True))):
        if names := ENTRY.findall(text, start, end):
            rows = "".join(f"   {name}\n" for name in names)
            text = text[:start] + f"\n.. autosummary::\n\n{rows}\n" + text[start:]
    return text


def _read(_app: Sphinx, name: str, source: list[str]) -> None:
    if name == PAGE:
        source[0] = with_tables(source[0])


def setup(app: Sphinx) -> dict[str, Any]:
    """Connect to the event that a page was read."""
    app.setup_extension("sphinx.ext.autosummary")
    app.connect("source-read", _read)
    return {"parallel_read_safe": True}
