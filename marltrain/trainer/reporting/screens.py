"""Screens for a dashboard: a terminal, and the output of a notebook's cell."""

from __future__ import annotations

import html
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Protocol, TextIO

from marltrain.trainer.reporting.run_view import RunView
from marltrain.trainer.reporting.text_charts import PLAIN, plain

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions
    from rich.segment import Segment

NOTEBOOK_SIZE = (100, 30)


class Screen(Protocol):
    """Shows a RunView until it is closed."""

    def show(self, view: RunView) -> None:
        """Show the state; raises OSError or ValueError if the output is closed or its reader gone."""

    def close(self) -> None:
        """End the display; the last state stays visible."""


class Drawing:
    """The lines of a RunView, as rich draws them: without markup and line breaks, which would take most of the time."""

    def __init__(self, view: RunView, *, unicode: bool) -> None:
        """Take the state to draw."""
        self.view, self.unicode = view, unicode

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Segment]:
        """Yield the parts of all lines for the size of the console; one line is left free."""
        from rich.segment import Segment

        for line in self.view.lines(options.max_width, console.size.height - 1):
            for text, style in line:
                yield Segment(text if self.unicode else text.translate(PLAIN), console.get_style(style or "none"))
            yield Segment.line()


class TerminalScreen:
    """Redraws a part of the terminal; output of the program appears above it."""

    def __init__(self, file: TextIO) -> None:
        """Take over the terminal."""
        from rich.console import Console
        from rich.live import Live

        console = Console(file=file)
        self._unicode = (console.encoding or "").lower().startswith("utf")
        self._live = Live(console=console, auto_refresh=False, vertical_overflow="crop")
        self._live.start()

    def show(self, view: RunView) -> None:
        """Draw the state."""
        self._live.update(Drawing(view, unicode=self._unicode), refresh=True)

    def close(self) -> None:
        """Leave the last drawing in place."""
        self._live.stop()


class NotebookScreen:
    """Replaces the output of a notebook's cell."""

    def __init__(self) -> None:
        """Take the functions of IPython."""
        from IPython.display import HTML, display

        self._html, self._display = HTML, display
        self._handle: Any = None

    def show(self, view: RunView) -> None:
        """Replace the output."""
        result = self._html(f"<pre>{html.escape(plain(view.lines(*NOTEBOOK_SIZE)))}</pre>")
        if self._handle is None:
            self._handle = self._display(result, display_id=True)
        else:
            self._handle.update(result)

    def close(self) -> None:
        """Leave the last output."""


def in_notebook() -> bool:
    """Return whether the program runs in a notebook."""
    ipython = sys.modules.get("IPython")
    shell = None if ipython is None else ipython.get_ipython()
    return shell is not None and "IPKernelApp" in shell.config


def make_screen(file: TextIO | None) -> Screen | None:
    """Return the screen of a notebook or of a terminal; None if `file` is neither."""
    if in_notebook():
        return NotebookScreen()
    return TerminalScreen(file) if file is not None and file.isatty() else None
