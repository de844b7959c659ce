"""The connection of this process to Ray: to a new cluster on this machine, or to one that is there."""

from __future__ import annotations

import logging
import os
import shutil
import signal
import threading
from contextlib import ExitStack
from types import ModuleType
from typing import Any

from marltrain.core.errors import ConfigError, error_text
from marltrain.processes.ray_addresses import check_answers, clusters_here
from marltrain.processes.ray_session import SessionFolder
from marltrain.processes.ray_token import mode, require_token, restore_mode, use_token

_MIB = 2**20
_STORE = 1024 * _MIB
"""Most bytes of the object store of a cluster that we start; a quarter of the free shared memory if that is less."""


def connect(ray: ModuleType, address: str) -> ExitStack:
    """Start a cluster on this machine, or connect to the one at an address; return what ends the connection.

    Raises ConfigError.
    """
    options: dict[str, Any] = {}
    with ExitStack() as end:
        end.callback(restore_mode, mode())
        if address == "local":
            require_token()
            options = _local_options(end)
        else:
            here = clusters_here()
            if address != "auto":
                check_answers(address)
            use_token(of_this_machine=bool(here) if address == "auto" else address in here)
        end.callback(_shut_down, ray)
        _begin(ray, address, options)
        return end.pop_all()


def _local_options(end: ExitStack) -> dict[str, Any]:
    """Return the options of a new cluster on this machine; `end` then deletes its files."""
    free = shutil.disk_usage("/dev/shm").free if os.path.isdir("/dev/shm") else 0
    folder = SessionFolder()
    end.callback(folder.remove)
    return {
        "include_dashboard": False,
        "object_store_memory": max(min(_STORE, free // 4), 80 * _MIB),
        "_system_config": {"worker_niceness": 0},  # 15 by default: actors would wait for all other programs
        "_temp_dir": str(folder.path),
    }


def _begin(ray: ModuleType, address: str, options: dict[str, Any]) -> None:
    """Call `ray.init`; raises ConfigError."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    before = signal.getsignal(signal.SIGTERM)
    try:
        ray.init(address, log_to_driver=False, logging_level=logging.ERROR, **options)
    except Exception as error:  # Ray has no class of its own for a node that did not start within 30 s
        raise ConfigError(f"address={address!r}: cannot connect to the Ray cluster: {error_text(error)}") from error
    finally:
        if before is not None and threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, before)  # Ray's handler exits at once, before a run is saved


def _shut_down(ray: ModuleType) -> None:
    if ray.is_initialized():
        ray.shutdown()
