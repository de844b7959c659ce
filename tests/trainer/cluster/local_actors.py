"""Learner actors in this process, in place of Ray's: arguments and results are pickled, and arrays are read-only."""

import pickle
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest

from marltrain.processes.ray_actors import ActorError
from marltrain.trainer.cluster import learners, shard_agents


def sent(value: Any) -> Any:
    """Return a value as another process gets it from the object store."""
    buffers: list[Any] = []
    data = pickle.dumps(value, protocol=5, buffer_callback=buffers.append)
    return pickle.loads(data, buffers=[bytes(buffer.raw()) for buffer in buffers])


class LocalActor:
    """An `Actor` that executes each call at once.

    dies: numbers of the calls, over all actors, at which the called actor dies.  made, called: so far.
    late: numbers of the actors that do not start within their limit.  cluster: a stand-in for that of Ray.
    """

    dies: ClassVar[set[int]] = set()
    late: ClassVar[set[int]] = set()
    cluster: ClassVar[Any] = None
    made: ClassVar[list[str]] = []
    called: ClassVar[list[str]] = []

    def __init__(self, cluster: Any, kind: type, resources: Any, name: str) -> None:
        self.name, self._served, self._results = name, kind(), list[Any]()
        self.made.append(name)

    def confirm(self, timeout: float) -> None:
        if len(self.made) - 1 in self.late:
            raise ActorError(f"{self.name} did not answer within {timeout:g} s", hung=True)
        self.name += ", on node here"

    def call(self, method: str, *arguments: Any) -> int:
        self.called.append(f"{arguments[0]} {arguments[1]}")
        if len(self.called) - 1 in self.dies:
            self._served = None
        if self._served is not None:
            self._results.append(sent(getattr(self._served, method)(*sent(arguments))))
        return len(self._results) - 1

    def result(self, timeout: float, call: int) -> Any:
        if self._served is None:
            raise ActorError(f"{self.name} ended: killed", hung=False)
        return self._results[call]

    def kill(self) -> None:
        self._served = None


@pytest.fixture
def local_actors(monkeypatch: pytest.MonkeyPatch) -> type[LocalActor]:
    """Let learner actors be `LocalActor`s."""
    for name in ("made", "called", "dies", "late"):
        monkeypatch.setattr(LocalActor, name, type(getattr(LocalActor, name))())
    monkeypatch.setattr(learners, "Actor", LocalActor)
    ray = SimpleNamespace(is_initialized=lambda: True)
    cluster = SimpleNamespace(ray=ray, check_room=lambda *asked: None, close=lambda: None)
    monkeypatch.setattr(LocalActor, "cluster", cluster)
    monkeypatch.setattr(shard_agents, "Cluster", lambda address: cluster)
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    return LocalActor
