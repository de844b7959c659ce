"""Addresses of Ray clusters: those of this machine, and whether one answers."""

from __future__ import annotations

import os
import socket
from pathlib import Path

from marltrain.core.errors import ConfigError, shown

PROCESSES = Path("/proc")
ADDRESS = b"--gcs-address="
CONNECT = 5.0
"""Seconds to connect to the address of a cluster."""


def clusters_here() -> list[str]:
    """Return the addresses "host:port" of the clusters that have a node on this machine, started by this user.

    They are read from the command lines of Ray's processes; empty where the system does not show these in /proc.
    """
    found = {address for process in PROCESSES.glob("[0-9]*") if (address := _address_of(process))}
    return sorted(found)


def check_answers(address: str) -> None:
    """Raise ConfigError unless a program answers at "host:port"; Ray would try for much longer."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if not host or not port.isdecimal():
        raise ConfigError(f'address must be "host:port", "auto" or "local", got {shown(address)}')
    try:
        socket.create_connection((host, int(port)), timeout=CONNECT).close()
    except (OSError, OverflowError) as error:
        raise ConfigError(
            f"address={address!r}: nothing answers there ({error}). Start the cluster (ray start --head), or leave "
            "address out for one on this machine"
        ) from error


def _address_of(process: Path) -> str:
    """Return the address in the command line of a node's process; "" for other processes."""
    try:
        words = (process / "cmdline").read_bytes().split(b"\0")
        if not words[0].endswith(b"raylet") or process.stat().st_uid != os.getuid():
            return ""
    except OSError:  # the process has ended
        return ""
    return next((word.removeprefix(ADDRESS).decode() for word in words if word.startswith(ADDRESS)), "")
