"""The Ray clusters of this machine, by the command lines of their processes."""

import os

from marltrain.processes import ray_addresses


def test_addresses_are_those_of_nodes(monkeypatch, tmp_path):
    """Two nodes of one cluster, one of another, programs that are no nodes, and a process that has just ended."""
    lines = {
        "1": ["/ray/raylet/raylet", "--node_id=1", "--gcs-address=10.0.0.1:6379"],
        "2": ["raylet", "--gcs-address=10.0.0.1:6379", "--gcs-address=ignored"],
        "33": ["/other/raylet", "--gcs-address=127.0.0.1:9"],
        "4": ["/ray/gcs/gcs_server", "--gcs-address=10.0.0.9:1"],
        "5": ["raylet"],
        "self": ["raylet", "--gcs-address=10.0.0.8:1"],
    }
    for name, words in lines.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "cmdline").write_bytes(b"\0".join(word.encode() for word in words) + b"\0")
    (tmp_path / "6").mkdir()
    monkeypatch.setattr(ray_addresses, "PROCESSES", tmp_path)
    assert ray_addresses.clusters_here() == ["10.0.0.1:6379", "127.0.0.1:9"]
    monkeypatch.setattr(os, "getuid", lambda: -1)
    assert ray_addresses.clusters_here() == []
    monkeypatch.setattr(ray_addresses, "PROCESSES", tmp_path / "nowhere")
    assert ray_addresses.clusters_here() == []


def test_the_cluster_of_the_tests_is_found(ray_cluster):
    assert ray_cluster.get_runtime_context().gcs_address in ray_addresses.clusters_here()
