"""A cluster that marltrain starts: protected by a token at every port, and gone with all its files."""

from __future__ import annotations

import json
import os
import shutil
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from marltrain.processes.ray_session import SessionFolder

PROGRAM = """
import json, os, pathlib, signal, sys
import grpc
from marltrain.processes.ray_actors import Cluster

cluster = Cluster("local")
(node,), host = cluster.ray.nodes(), cluster.address.split(":")[0]
token = pathlib.Path.home() / ".ray" / "auth_token"


def answer(port, method):
    "The status of a call without a token."
    try:
        grpc.insecure_channel(f"{host}:{port}").unary_unary(f"/ray.rpc.{method}")(b"", timeout=30)
    except grpc.RpcError as error:
        return error.code().name
    return "OK"


told = {
    "mode": oct(token.stat().st_mode),
    "sessions": sorted(path.name for path in pathlib.Path(os.environ["RAY_TMPDIR"]).glob("*/*/session_2*")),
    "answers": [
        answer(cluster.address.split(":")[1], "NodeInfoGcsService/GetAllNodeInfo"),
        answer(node["NodeManagerPort"], "NodeManagerService/GetNodeStats"),
        answer(node["ObjectManagerPort"], "ObjectManagerService/Pull"),
    ],
}
print(json.dumps(told), flush=True)
if sys.argv[1] == "interrupted":
    os.kill(os.getpid(), signal.SIGINT)
"""


@pytest.fixture
def base() -> Iterator[Path]:
    """A folder for temporary files with a short name: paths of sockets have at most 107 characters."""
    result = Path(tempfile.mkdtemp(prefix="mt-", dir="/tmp"))
    yield result
    shutil.rmtree(result)


@pytest.mark.parametrize("how", ["forgotten", "interrupted"])
def test_a_cluster_needs_the_token_and_leaves_no_files(base, tmp_path, how):
    """Files of another cluster stay: in Ray's usual folder, and in one that marltrain made for another process."""
    others = [base / "ray" / "session_2026-01-01_00-00-00_000000_1" / "logs", base / "mt-ray-other" / "ray"]
    for other in others:
        other.mkdir(parents=True)
    kept = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
    data = subprocess.run(
        [sys.executable, "-c", PROGRAM, how], env={**kept, "HOME": str(tmp_path), "RAY_TMPDIR": str(base)},
        capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert data.stdout, data.stderr
    assert (data.returncode == 0) == (how == "forgotten"), data.stderr
    seen = json.loads(data.stdout)
    assert seen["answers"] == ["UNAUTHENTICATED"] * 3
    assert seen["mode"] == "0o100600" and len(seen["sessions"]) == 1
    assert sorted(path.name for path in base.iterdir()) == ["mt-ray-other", "ray"]
    assert all(other.is_dir() for other in others)


def test_the_folder_is_the_owners_alone_and_is_removed_once(monkeypatch, tmp_path):
    monkeypatch.setenv("RAY_TMPDIR", str(tmp_path))
    first, second = SessionFolder(), SessionFolder()
    assert stat.S_IMODE(first.path.parent.stat().st_mode) == 0o700
    (first.path / "session" / "sockets").mkdir(parents=True)
    first.remove()
    first.remove()
    assert list(tmp_path.iterdir()) == [second.path.parent]
    second.remove()
    assert list(tmp_path.iterdir()) == []
