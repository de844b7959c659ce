"""The section about Ray: its version and the token of its clusters."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from marltrain.processes.ray_token import MODE, ON, OWNER_ONLY, TOKEN, mode, token_file
from marltrain.tools.doctor.packages import Packages
from marltrain.tools.doctor.report import EXTRA, Fact, Finding, Section


def ray(packages: Packages, version: str | None) -> Section:
    """Return the section of Ray; version: that is installed, or None."""
    needed = next((one.requirement for one in packages.extras.get("ray", ()) if one.name == "ray"), None)
    facts = [Fact("version", version, version or "not installed"), Fact("needed", needed)]
    variable = mode()
    facts.append(Fact(MODE, variable, variable or f"not set: {ON}"))
    findings = []
    if variable is not None and variable.lower() != ON:
        findings.append(Finding(EXTRA, "Ray's token", f"{MODE}={variable}: marltrain starts no cluster without a token",
                                f"unset {MODE}"))  # fmt: skip
    if os.environ.get(TOKEN):
        return Section("ray", [*facts, Fact("token", {"from": TOKEN}, f"in {TOKEN}")], findings if version else [])
    try:
        path = token_file()
    except RuntimeError as error:  # the system knows no home of this user
        facts.append(Fact("token", None, f"no folder for it: {error}"))
        return Section("ray", facts, findings if version else [])
    fact, doubts = _of_file(path)
    return Section("ray", [*facts, fact], [*findings, *doubts] if version else [])


def _of_file(path: Path) -> tuple[Fact, list[Finding]]:
    """Return the state of the file of the token, and what is wrong with it."""
    try:
        status = path.stat()
    except FileNotFoundError:
        return Fact("token", {"from": str(path), "mode": None}, f"none yet; a cluster writes {path}"), []
    except OSError as error:
        cause = f"{path} cannot be read: {error.strerror or error}"
        return Fact("token", {"from": str(path), "mode": None}, cause), [
            Finding(EXTRA, "Ray's token", cause, f"set {TOKEN} to a secret of your own, or make the file readable")
        ]
    rights = stat.S_IMODE(status.st_mode)
    findings = []
    if os.name == "posix" and rights & 0o077:
        cause = f"{path} has mode {rights:o}: others may read it, and run code in your clusters"
        findings.append(Finding(EXTRA, "Ray's token", cause, f"delete the file, so that a new token is made; or "
                                f"chmod {OWNER_ONLY:o} it if this machine has no other users"))  # fmt: skip
    if not stat.S_ISREG(status.st_mode) or status.st_size == 0:
        cause = f"{path} holds no token"
        findings.append(Finding(EXTRA, "Ray's token", cause, "delete it, so that a new token is made"))
    return Fact("token", {"from": str(path), "mode": f"{rights:o}"}, f"{path}, mode {rights:o}"), findings
