"""The folder of a Ray cluster that this process starts: sockets, logs and objects that do not fit into memory."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
import time
from pathlib import Path

PREFIX = "mt-ray-"
INNER = "ray"
"""Name of the folder that Ray gets, in a folder that only this user can open: Ray lets everybody write into its own."""
WAIT = 3.0
"""Seconds to wait for processes that still write while they end."""


class SessionFolder:
    """A new folder for the files of one cluster; `remove` deletes it.

    path: the folder that Ray gets.
    """

    def __init__(self) -> None:
        """Create the folder, mode 0700, beside the place of Ray's usual one: paths of sockets must be short."""
        self._own = Path(tempfile.mkdtemp(prefix=PREFIX, dir=_base()))
        self.path = self._own / INNER

    def remove(self) -> None:
        """Delete the folder and everything in it; what cannot be deleted stays."""
        until = time.monotonic() + WAIT
        while True:
            shutil.rmtree(self._own, ignore_errors=True)
            if not self._own.exists() or time.monotonic() > until:
                return
            time.sleep(0.05)


def _base() -> str:
    """Return the folder for temporary files that Ray chooses."""
    given = os.environ.get("RAY_TMPDIR") or (os.environ.get("TMPDIR") if sys.platform.startswith("linux") else None)
    return given or ("/tmp" if os.name == "posix" else tempfile.gettempdir())
