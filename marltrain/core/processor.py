"""The processor of this machine: its name, and the cores that this process may use."""

from __future__ import annotations

import os
import platform
from pathlib import Path

CPUINFO = Path("/proc/cpuinfo")
OWN_GROUP = Path("/proc/self/cgroup")
GROUPS = Path("/sys/fs/cgroup")
"""Folder of the control groups of Linux, by which containers are limited."""


def processor() -> str:
    """Return the name of the processor, or the machine type if the system does not report a name."""
    lines = CPUINFO.read_text(encoding="utf-8", errors="replace").splitlines() if CPUINFO.is_file() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def usable_cores() -> int:
    """Return the number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def quota() -> float | None:
    """Return the processor time that this process may take, in cores; None without a limit, or if it is unknown.

    Containers are limited so (`docker run --cpus 2`): their processes see all cores and wait for most of the time.
    The least of the limits of the control group of this process and of the groups around it counts.
    """
    try:
        lines = OWN_GROUP.read_text(encoding="utf-8").splitlines()
    except OSError:  # another system
        return None
    limits = [limit for line in lines for limit in _limits(line)]
    return min(limits, default=None)


def _limits(line: str) -> list[float]:
    """Return the limits, in cores, of the groups of a line "number:controllers:/path" of /proc/self/cgroup."""
    _, controllers, path = line.split(":", 2)
    if controllers and "cpu" not in controllers.split(","):
        return []
    root = GROUPS / "cpu" if controllers else GROUPS
    own = root / path.lstrip("/")
    found = [_limit(folder, old=bool(controllers)) for folder in (own, *own.parents) if folder.is_relative_to(root)]
    return [limit for limit in found if limit is not None]


def _limit(folder: Path, *, old: bool) -> float | None:
    """Return the limit of a control group, in cores; old: of version 1."""
    files = ("cpu.cfs_quota_us", "cpu.cfs_period_us") if old else ("cpu.max",)
    try:
        words = " ".join((folder / name).read_text(encoding="utf-8") for name in files).split()
    except OSError:  # the root group has no limit; a container sees its own group as the root
        return None
    if len(words) != 2 or not all(word.isdigit() for word in words) or int(words[1]) == 0:  # "max", or -1
        return None
    return int(words[0]) / int(words[1])
