"""The connection to Ray: begun once, ended where it was begun, and clear errors without a cluster."""

import signal
import socket
import sys
import time
from types import SimpleNamespace
from typing import Any

import pytest

from marltrain.core.errors import ConfigError
from marltrain.envs.workers.ray_pool import _finish
from marltrain.processes import ray_actors, ray_token
from marltrain.processes.ray_actors import Actor, Cluster, Served, check_resources, versions
from tests.processes.test_ray_token import without_token


class FakeRay(SimpleNamespace):
    """Counts what is begun and ended."""

    def __init__(self, begun: bool = False) -> None:
        super().__init__(
            begun=begun, calls=[], error=None, exceptions=SimpleNamespace(RayError=LookupError),
            get_runtime_context=lambda: SimpleNamespace(gcs_address="10.0.0.1:6379"),
        )  # fmt: skip

    def is_initialized(self) -> bool:
        return bool(self.begun)

    def init(self, address: str, **options: Any) -> None:
        self.calls.append(("init", address, sorted(options)))
        signal.signal(signal.SIGTERM, lambda number, frame: None)  # Ray sets a handler that exits
        if self.error is not None:
            raise self.error
        self.begun = True

    def shutdown(self) -> None:
        self.calls.append("shutdown")
        self.begun = False


@pytest.fixture
def fake(monkeypatch, tmp_path) -> FakeRay:
    result = FakeRay()
    monkeypatch.setattr(ray_actors, "_module", lambda: result)
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.setenv("RAY_TMPDIR", str(tmp_path))
    without_token(monkeypatch, tmp_path)
    monkeypatch.setattr(Cluster, "_uses", 0)
    monkeypatch.setattr(Cluster, "_ours", None)
    monkeypatch.setattr(Cluster, "_asked", None)
    return result


LOCAL = (
    "init",
    "local",
    ["_system_config", "_temp_dir", "include_dashboard", "log_to_driver", "logging_level", "object_store_memory"],
)


def test_the_handler_of_sigterm_stays_as_it_was(fake):
    before = signal.getsignal(signal.SIGTERM)
    Cluster().close()
    fake.error = RuntimeError("refused")
    with pytest.raises(ConfigError, match="refused"):
        Cluster()
    assert signal.getsignal(signal.SIGTERM) is before


def test_actors_share_the_nodes_by_their_processors(fake):
    """A node of 4 CPUs and one of 2; a third has ended. Actors of 2 CPUs: two and one; of 1.5: two and one."""
    large, small, gone = (letter * 56 for letter in "abc")
    sizes = {large: 4.0, small: 2.0, gone: 16.0}
    fake.nodes = lambda: [
        {"NodeID": name, "Alive": name != gone, "Resources": {"CPU": cpus, "disk": 1.0}} for name, cpus in sizes.items()
    ]
    fake.cluster_resources = lambda: {"CPU": 6.0}
    cluster = Cluster()
    assert [cluster.next_place().node_id for _ in range(6)] == [large, large, small, large, large, small]
    fits = [cluster.room(wanted) for wanted in ({"num_cpus": 2}, {"num_cpus": 1.5}, {"disk": 1}, {"num_gpus": 1}, {})]
    assert fits == [3, 3, 2, 1, 6]
    assert cluster.room({"num_cpus": 0}) == 6
    cluster.close()


def test_actors_that_serve_this_process_start_on_its_node(fake):
    """Those with a name; others are spread over the nodes."""
    own, places = "d" * 56, list[Any]()
    fake.get_runtime_context = lambda: SimpleNamespace(gcs_address="10.0.0.1:6379", get_node_id=lambda: own)
    handle = SimpleNamespace(about=SimpleNamespace(remote=lambda: None))

    def options(**given: Any) -> Any:
        places.append(given)
        return SimpleNamespace(remote=lambda: handle)

    fake.remote = lambda kind: SimpleNamespace(options=options)
    cluster = Cluster()
    Actor(cluster, Served, {"num_cpus": 0}, "the actor of the run", "spread")
    Actor(cluster, Served, {"num_cpus": 0}, "an actor")
    named, other = (given["scheduling_strategy"] for given in places)
    assert (named.node_id, named.soft, other) == (own, True, "SPREAD")
    cluster.close()


@pytest.mark.parametrize("failure", [RuntimeError("no node"), KeyboardInterrupt()])
def test_a_cluster_that_does_not_start_leaves_nothing(fake, tmp_path, failure):
    """Neither files nor the mode of tokens: a later connection to another cluster does not send the token there."""
    fake.error = failure
    with pytest.raises((ConfigError, KeyboardInterrupt)):
        Cluster()
    assert list(tmp_path.glob("mt-ray-*")) == [] and ray_token.mode() is None
    fake.error = None
    started = Cluster()
    assert len(list(tmp_path.glob("mt-ray-*/"))) == 1 and ray_token.mode() == "token"
    started.close()
    assert list(tmp_path.glob("mt-ray-*")) == [] and ray_token.mode() is None


def test_without_a_token_no_cluster_starts(fake, monkeypatch):
    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")
    with pytest.raises(ConfigError, match="RAY_AUTH_MODE='disabled': a Ray cluster without a token"):
        Cluster()
    assert fake.calls == []
    with socket.create_server(("127.0.0.1", 0)) as server:  # a cluster of the user's own is their own matter
        Cluster(f"127.0.0.1:{server.getsockname()[1]}").close()
    assert ray_token.mode() == "disabled" and len(fake.calls) == 2


def test_the_last_use_ends_what_the_first_began(fake):
    first, second = Cluster(), Cluster()
    first.close()
    first.close()
    assert fake.calls == [LOCAL]
    second.close()
    assert fake.calls == [LOCAL, "shutdown"]
    third = Cluster()
    del third  # also where it is only forgotten
    assert fake.calls == [LOCAL, "shutdown"] * 2


def test_a_connection_that_was_there_is_left_alone(fake):
    fake.begun = True
    Cluster().close()
    Cluster("10.0.0.1:6379").close()
    assert fake.calls == []
    with pytest.raises(ConfigError, match=r"connected to the Ray cluster at 10.0.0.1:6379; ray.shutdown\(\) ends that"):
        Cluster("10.0.0.2:6379")


def test_the_address_of_the_environment_is_used(fake, monkeypatch):
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
        monkeypatch.setenv("RAY_ADDRESS", address)
        Cluster().close()
    assert fake.calls == [("init", address, ["log_to_driver", "logging_level"]), "shutdown"]


def test_a_second_use_may_give_the_address_of_the_first_by_the_same_name(fake):
    """Ray itself reports a host of the network where it was asked for this machine."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        first, second = Cluster(f"localhost:{port}"), Cluster(f"localhost:{port}")
        with pytest.raises(ConfigError, match="connected to the Ray cluster at"):
            Cluster("10.0.0.2:6379")
        first.close()
        second.close()
    assert [call if isinstance(call, str) else call[1] for call in fake.calls] == [f"localhost:{port}", "shutdown"]
    fake.begun = True
    with pytest.raises(ConfigError, match="connected to the Ray cluster at"):
        Cluster(f"localhost:{port}")  # the connection that was asked for is over


def test_an_actor_is_closed_without_another_cluster_after_a_shutdown(fake):
    class Begun(Actor):
        def __init__(self) -> None:
            self._cluster, self._handle, self._call = SimpleNamespace(ray=fake), None, None  # type: ignore[assignment]

    fake.wait = fake.kill = lambda *_, **__: fake.calls.append("begun again")
    released: list[bool] = []
    _finish([Begun()], SimpleNamespace(close=lambda: released.append(True)))  # type: ignore[arg-type]
    assert fake.calls == [] and released == [True]


@pytest.mark.parametrize(
    ("address", "message"),
    [
        ("127.0.0.1:1", r"address='127.0.0.1:1': nothing answers there \(.*refused\). Start the cluster"),
        ("ray://127.0.0.1:1", "nothing answers there"),
        ("somewhere", r'address must be "host:port", "auto" or "local", got \'somewhere\''),
        ("127.0.0.1:99999999", "nothing answers there"),
    ],
)
def test_an_address_that_refuses_is_an_error_within_seconds(fake, address, message):
    begun = time.monotonic()
    with pytest.raises(ConfigError, match=message):
        Cluster(address)
    assert time.monotonic() - begun < 10 and fake.calls == []


@pytest.mark.parametrize(
    "error",
    [
        RuntimeError("Version mismatch: The cluster was started with: Ray: 2.9.0"),
        Exception("The current node timed out during startup."),
    ],
)
def test_the_reason_of_ray_is_passed_on(fake, error):
    fake.error = error
    with pytest.raises(ConfigError, match=f"address='auto': cannot connect to the Ray cluster: .*{error}"):
        Cluster("auto")
    fake.error = None
    Cluster().close()  # nothing is left of the failed one
    assert fake.calls[1:] == [LOCAL, "shutdown"]


def test_without_ray_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)  # as if it were absent
    with pytest.raises(ConfigError, match=r'A cluster needs ray, which .*pip install "marltrain\[ray\]"'):
        Cluster()


def test_a_node_with_other_versions_is_refused():
    killed = []

    class OnOldNode(Actor):
        def __init__(self) -> None:
            self.name, self._about = "actor 3", None

        def _value(self, call: Any, timeout: float) -> Any:
            return {**versions(), "numpy": "1.0"}, "10.0.0.7"

        def kill(self) -> None:
            killed.append(True)

    with pytest.raises(ConfigError, match=r"the node 10.0.0.7 of the Ray cluster has numpy 1.0 \(here 2.*\): install"):
        OnOldNode().confirm(1.0)
    assert killed == [True]


@pytest.mark.parametrize(
    ("resources", "message"),
    [
        ([("num_cpus", 1)], "resources must map names of resources to amounts, such as"),
        ({1: 1}, "resources must map names"),
        ({"num_cpus": "1"}, r"resources\['num_cpus'\] must be a number from 0, .* got '1'"),
        ({"num_cpus": True}, "must be a number from 0"),
        ({"rare": -1}, "must be a number from 0"),
        ({"rare": float("nan")}, "must be a number from 0"),
        ({"CPU": 1}, r"resources\['CPU'\] is written 'num_cpus' here"),
    ],
)
def test_wrong_resources_are_refused(resources, message):
    with pytest.raises(ConfigError, match=message):
        check_resources(resources)


def test_resources_may_be_left_out_or_fractions():
    check_resources(None)
    check_resources({"num_cpus": 0.5, "num_gpus": 0, "fast_disk": 2})
