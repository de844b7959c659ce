"""How a handle finds that a run has ended, that its actor is replaced, or that the cluster is gone; without Ray."""

import socket
import time
from typing import Any

import pytest

from marltrain.core.errors import WorkerError
from marltrain.processes.ray_actors import ActorError
from marltrain.tools import run_link
from marltrain.tools.run_link import RunLink


class Connected:
    """Stands for the connection; counts how often it is closed."""

    def __init__(self, address):
        self.address, self.closed = address, 0

    def close(self):
        self.closed += 1


class Lost:
    """Stands for an actor that is there again at the third look."""

    looks, back = 0, 3

    def __init__(self, cluster, name):
        Lost.looks += 1
        self.name = name
        if Lost.looks < Lost.back:
            raise LookupError(f"no actor is registered as {name!r}")

    def ask(self, method, *args, timeout):
        if method == "hang":
            raise ActorError("no answer", hung=True)
        return method, args, timeout


@pytest.fixture
def made(monkeypatch):
    """A link on a run of a cluster that goes on, with quick tries."""
    monkeypatch.setattr(run_link, "NamedActor", Lost)
    monkeypatch.setattr(run_link, "AGAIN", 0.001)
    monkeypatch.setattr(run_link, "LOOKING", 0.0)
    Lost.looks, Lost.back = 0, 3
    with socket.create_server(("127.0.0.1", 0)) as server:
        cluster: Any = Connected(f"127.0.0.1:{server.getsockname()[1]}")
        yield RunLink(cluster, "x", 2.0), cluster, server


def test_an_actor_in_place_of_a_lost_one_is_waited_for(made):
    link, cluster, _ = made
    with pytest.raises(WorkerError, match=r"'x'.*gone.*again"):
        link.ask("progress")
    assert link.ask("wait", 5.0, extra=5.0, patient=True) == ("wait", (5.0,), 7.0)
    assert Lost.looks == 3 and not cluster.closed
    with pytest.raises(WorkerError, match=r"no answer \(timeout\)"):
        link.ask("hang", patient=True)


def test_the_connection_is_closed_if_no_other_actor_comes(made, monkeypatch):
    monkeypatch.setattr(run_link, "REPLACED", 0.02)
    link, cluster, _ = made
    Lost.back = 10**9
    with pytest.raises(WorkerError, match=r"'x'.*gone"):
        link.ask("wait", patient=True)
    assert cluster.closed and Lost.looks > 2


def test_the_connection_is_closed_if_the_cluster_is_gone(made):
    """Nothing asks Ray any more, which would end this process."""
    link, cluster, server = made
    server.close()
    for _ in range(2):
        with pytest.raises(WorkerError, match=r"the run 'x' has ended: the Ray cluster at 127.0.0.1:.* is gone"):
            link.ask("wait", patient=True)
    assert cluster.closed and Lost.looks == 0


@pytest.mark.parametrize("back", [True, False])
def test_the_connection_is_closed_after_an_error_although_nobody_asks_again(made, monkeypatch, back):
    """Unless another actor of the run has started within `REPLACED` seconds."""
    monkeypatch.setattr(run_link, "REPLACED", 0.05)
    link, cluster, _ = made
    Lost.back = 2 if back else 10**9
    with pytest.raises(WorkerError, match="ask again"):
        link.ask("progress")
    until = time.monotonic() + 20.0
    while Lost.looks < 2 or not (back or cluster.closed):
        assert time.monotonic() < until
        time.sleep(0.01)
    assert bool(cluster.closed) != back
