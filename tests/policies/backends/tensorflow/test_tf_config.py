"""The variable TF_CONFIG: the cluster that it describes, and errors that show it."""

from __future__ import annotations

import json
from typing import Any

import pytest

import marltrain as mt
from marltrain.policies.backends.tensorflow.tf_config import JoinedCluster, joined_cluster

WORKERS = ["10.0.0.1:2222", "host-2:2222"]


def described(**changes: Any) -> str:
    return json.dumps({"cluster": {"worker": WORKERS}, "task": {"type": "worker", "index": 1}, **changes})


def test_workers_and_a_chief(monkeypatch):
    monkeypatch.setenv("TF_CONFIG", described())
    assert joined_cluster() == JoinedCluster({"worker": WORKERS}, "worker", 1)
    jobs = {"chief": WORKERS[:1], "worker": WORKERS[1:]}
    monkeypatch.setenv("TF_CONFIG", described(cluster=jobs, task={"type": "chief", "index": 0}))
    assert joined_cluster() == JoinedCluster(jobs, "chief", 0)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (None, "joins the cluster of the variable TF_CONFIG, which is not set. .*workers=2"),
        ("{", "it is no JSON"),
        ("3", 'must be a mapping with "cluster" and "task"'),
        (described(task=None), 'must be a mapping with "cluster" and "task"'),
        (described(cluster={"worker": []}), "job 'worker' .* must be a list of addresses"),
        (described(cluster={"worker": ["10.0.0.1"]}), "addresses are \"host:port\", got '10.0.0.1'"),
        (described(cluster={"worker": WORKERS, "ps": WORKERS}), "the jobs chief and worker only, got ps"),
        (described(cluster={"chief": WORKERS[:1]}, task={"type": "chief", "index": 0}), 'has no job "worker"'),
        (described(cluster={"worker": WORKERS, "chief": WORKERS}), "at most one chief, got 2"),
        (described(task={"type": "evaluator", "index": 0}), "\"type\" must be one of worker, got 'evaluator'"),
        (described(task={"type": "worker", "index": 2}), '"index" must be from 0 to 1 for job .* got 2'),
        (described(task={"type": "worker", "index": True}), '"index" must be from 0 to 1'),
        (described(task={"type": "worker"}), '"index" must be from 0 to 1 .* got None'),
    ],
)
def test_a_variable_that_is_missing_or_malformed_is_shown(monkeypatch, text, told):
    monkeypatch.delenv("TF_CONFIG", raising=False)
    if text is not None:
        monkeypatch.setenv("TF_CONFIG", text)
    with pytest.raises(mt.ConfigError, match=told):
        joined_cluster()
