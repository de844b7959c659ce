"""`marltrain doctor`: the state of the installation, and whether a training works.

Nothing here imports a package that may be broken.
"""

from __future__ import annotations

import json
import sys
from typing import Any

from marltrain.cli.options import Parser
from marltrain.cli.output import say
from marltrain.tools.doctor.examine import examine

WAIT = "importing the packages and training a native game for a moment: up to a minute ..."
BROKEN = 1
"""Exit code where a training does not work."""


def add_doctor_arguments(parser: Parser) -> None:
    """Add the arguments of `marltrain doctor`."""
    parser.add_argument("--json", action="store_true", help="print JSON values in place of text")


def doctor(options: dict[str, Any]) -> int | None:
    """Print what is installed, and what does not work; return 1 if a training does not work here."""
    if sys.stderr.isatty():
        say(WAIT, file=sys.stderr)
    report = examine()
    say(json.dumps(report.described(), indent=2) if options.get("json") else report.text())
    return BROKEN if report.problems else None
