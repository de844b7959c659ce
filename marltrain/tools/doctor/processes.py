"""Questions to child processes: an import that fails, crashes or hangs ends a child, and not the doctor."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from marltrain.core.errors import clean
from marltrain.processes.children import fate

MARK = "marltrain-doctor:"
"""Beginning of the line of an answer; what packages print at their import has another one."""
LONGEST = 400
"""Maximum length of the reason of a failure, in characters."""
CODE = """
import json, sys
sys.path[:] = json.loads(sys.argv[1])
from marltrain.tools.doctor.answers import answer
answer(*sys.argv[2:])
"""
"""Program of a child. It searches modules where this process does, and not in the working folder first."""


@dataclass(frozen=True)
class Answer:
    """Answer of a child.  facts: JSON values by name.  failure: the reason if there is no answer, else ""."""

    facts: dict[str, Any]
    failure: str = ""


Ask = Callable[..., Answer]
"""A function as `ask`."""


def ask(limit: float, function: str, *arguments: str) -> Answer:
    """Call a function of `answers.py` in a new process and return its answer.

    limit: seconds until the process is killed.
    """
    if not sys.executable:
        return Answer({}, "this Python does not know its program (sys.executable), so that no process can be started")
    command = [sys.executable, "-P", "-c", CODE, json.dumps(sys.path), function, *arguments]
    try:
        done = subprocess.run(
            command, capture_output=True, stdin=subprocess.DEVNULL, timeout=limit, check=False,
            encoding="utf-8", errors="replace",
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return Answer({}, f"no answer within {limit:g} s")
    except OSError as error:
        return Answer({}, f"no process can be started: {error.strerror or error}")
    lines = [line for line in done.stdout.splitlines() if line.startswith(MARK)]
    if lines:
        found = json.loads(lines[-1].removeprefix(MARK))
        return Answer(found["facts"], in_short(found["failure"]))
    last = [line for line in done.stderr.splitlines() if line.strip()][-1:]
    return Answer({}, in_short(": ".join([f"the process {fate(done.returncode)}", *last])))


def in_short(text: str) -> str:
    """Return a text in one line, without the middle of a long one."""
    return clean(" ".join(text.split()), LONGEST)
