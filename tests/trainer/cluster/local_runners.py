"""Runners in this process, in place of Ray actors: arguments and results are pickled, and arrays are read-only."""

from collections.abc import Iterator
from importlib import import_module
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest

from marltrain.envs.workers import ray_pool, ray_vector
from marltrain.processes.ray_actors import ActorError
from marltrain.trainer.cluster import elastic
from tests.trainer.cluster.local_actors import sent


class LocalRunner:
    """An `Actor` that executes each call at once.

    made: all of them.  held: the cluster has no room for another one.  room: the cluster has room for so many.
    dies: (number, method): the runner of this number dies in its first call of this method.
    """

    made: ClassVar[list[Any]] = []
    held: ClassVar[bool] = False
    room: ClassVar[int] = 100
    dies: ClassVar[set[tuple[int, str]]] = set()

    def __init__(self, cluster: Any, kind: type, resources: Any, name: str) -> None:
        self.name, self.node, self._served, self._results = name, "", kind(), list[Any]()
        self.number, self.waits = len(self.made), True
        self.made.append(self)
        self.ready(0.0)

    def confirm(self, timeout: float) -> None:
        if self._served is None or self.waits:
            raise ActorError(f"{self.name} ended: killed", hung=False)
        self.node, self.name = "here", f"{self.name}, on node here"

    def call(self, method: str, *arguments: Any) -> int:
        if (self.number, method) in self.dies:
            self._served = None
        if self._served is not None:
            self._results.append(sent(getattr(self._served, method)(*sent(arguments))))
        return len(self._results) - 1

    def result(self, timeout: float, call: int = -1) -> Any:
        if self._served is None:
            raise ActorError(f"{self.name} ended: killed", hung=False)
        return self._results[call]

    def ready(self, timeout: float) -> bool:
        self.waits = self.waits and (type(self).held or self.number >= type(self).room)
        return self._served is None or not self.waits

    def kill(self) -> None:
        self._served = None


@pytest.fixture
def local_runners(monkeypatch: pytest.MonkeyPatch) -> Iterator[type[LocalRunner]]:
    """Let runners be `LocalRunner`s, and look for those that have started at the end of every fragment."""
    import_module("ray")  # without it, the tests are skipped before they start a runner
    monkeypatch.setattr(LocalRunner, "made", [])
    monkeypatch.setattr(LocalRunner, "held", False)
    monkeypatch.setattr(LocalRunner, "room", 100)
    monkeypatch.setattr(LocalRunner, "dies", set())
    ray = SimpleNamespace(is_initialized=lambda: True, put=sent)
    cluster = SimpleNamespace(ray=ray, cpus=4, check_room=lambda *asked: None, close=lambda: None)
    for module in (ray_pool, elastic):
        monkeypatch.setattr(module, "Actor", LocalRunner)
    monkeypatch.setattr(ray_vector, "Cluster", lambda address: cluster)
    monkeypatch.setattr(elastic, "LOOKING", 0.0)
    monkeypatch.setattr(elastic, "PATIENCE", 0.0)
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    yield LocalRunner
    assert all(runner._served is None for runner in LocalRunner.made), "runners are left at the end"
