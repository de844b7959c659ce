"""The cluster that the environment variable TF_CONFIG describes: which workers there are, and which of them this is."""

from __future__ import annotations

import json
import os
import re
from dataclasses import dataclass
from typing import Any

from marltrain.core.errors import ConfigError, shown

VARIABLE = "TF_CONFIG"
EXAMPLE = '{"cluster": {"worker": ["10.0.0.1:2222", "10.0.0.2:2222"]}, "task": {"type": "worker", "index": 0}}'
JOBS = ("chief", "worker")
"""Jobs whose tasks compute gradients; a chief is worker 0."""


@dataclass(frozen=True)
class JoinedCluster:
    """A cluster, and the place of this process in it.

    addresses: job -> "host:port" of each of its tasks.  job, index: the task of this process.
    """

    addresses: dict[str, list[str]]
    job: str
    index: int


def joined_cluster() -> JoinedCluster:
    """Return the cluster of TF_CONFIG; raises ConfigError if the variable is not set, or is malformed."""
    text = os.environ.get(VARIABLE, "")
    if not text:
        raise ConfigError(
            f"MultiWorkerMirroredStrategy(workers=None) joins the cluster of the variable {VARIABLE}, which is not "
            f"set. Set it in each process before it starts, such as {VARIABLE}='{EXAMPLE}', or write workers=2 to "
            "start worker processes on this machine"
        )
    try:
        given = json.loads(text)
    except json.JSONDecodeError as error:
        raise _malformed(f"it is no JSON: {error}", text) from error
    cluster, task = (given.get(name) if isinstance(given, dict) else None for name in ("cluster", "task"))
    if not isinstance(cluster, dict) or not isinstance(task, dict):
        raise _malformed('it must be a mapping with "cluster" and "task"', text)
    job, index = task.get("type"), task.get("index")
    addresses = _addresses(cluster, text)
    if job not in addresses:
        raise _malformed(f'task "type" must be one of {", ".join(addresses)}, got {shown(job)}', text)
    count = len(addresses[job])
    if isinstance(index, bool) or not isinstance(index, int) or not 0 <= index < count:
        raise _malformed(f'task "index" must be from 0 to {count - 1} for job {job!r}, got {shown(index)}', text)
    return JoinedCluster(addresses, job, index)


def _addresses(cluster: dict[str, Any], text: str) -> dict[str, list[str]]:
    """Return the addresses of the jobs; raises ConfigError for other jobs than `JOBS`, and for wrong addresses."""
    if other := [job for job in cluster if job not in JOBS]:
        raise _malformed(f'"cluster" must have the jobs {" and ".join(JOBS)} only, got {", ".join(other)}', text)
    for job, tasks in cluster.items():
        if not isinstance(tasks, list) or not tasks:
            raise _malformed(f'job {job!r} of "cluster" must be a list of addresses, got {shown(tasks)}', text)
        for address in tasks:
            if not isinstance(address, str) or re.fullmatch(r"\S+:\d{1,5}", address) is None:
                raise _malformed(f'addresses are "host:port", got {shown(address)} in job {job!r}', text)
    if "worker" not in cluster:
        raise _malformed('"cluster" has no job "worker"', text)
    if len(cluster.get("chief", [])) > 1:
        raise _malformed(f"a cluster has at most one chief, got {len(cluster['chief'])}", text)
    return cluster


def _malformed(what: str, text: str) -> ConfigError:
    return ConfigError(f"{VARIABLE} is malformed: {what}. It is {shown(text)}, expected such as {EXAMPLE}")
