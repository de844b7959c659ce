"""Reference-counted connection to Ray, and actors, whose calls have timeouts.

Actors may have names, by which other processes of the cluster find them.

Nothing of Ray is imported before a `Cluster` is made.
"""

from __future__ import annotations

import importlib
import os
import platform
import re
import threading
import weakref
from collections import Counter
from collections.abc import Mapping
from contextlib import ExitStack
from types import ModuleType
from typing import Any

import numpy as np

from marltrain.core.errors import ConfigError, MarlTrainError, clean, error_text, shown
from marltrain.core.extras import imported
from marltrain.core.version import __version__
from marltrain.processes.children import here_only
from marltrain.processes.ray_connection import connect

ANSWER = 60.0
"""Default seconds that an actor may take to answer."""
_BUILT_IN = ("num_cpus", "num_gpus", "memory")
_RAY_NAMES = {"num_cpus": "CPU", "num_gpus": "GPU"}
_DEAD = re.compile(r"The actor is dead because (.*?)(?: Some common causes.*)?$", re.DOTALL)
_LOCK = threading.Lock()
NAMESPACE = "marltrain"
"""Namespace of the names of actors."""


class ActorError(MarlTrainError):
    """An actor that ended (`hung` False), or did not answer within its limit (`hung` True) and was killed."""

    def __init__(self, message: str, *, hung: bool) -> None:
        """Keep whether the actor hung."""
        super().__init__(message)
        self.hung = hung


class NameTakenError(MarlTrainError):
    """An actor is registered by this name already."""


def check_resources(resources: Any, argument: str = "resources") -> None:
    """Raise ConfigError unless `resources` is None or a mapping from names of resources to amounts.

    argument: its name, for messages.
    """
    example = "such as {'num_cpus': 1} or {'num_gpus': 0.5, 'fast_disk': 1}"
    if resources is None:
        return
    if not isinstance(resources, Mapping) or not all(isinstance(name, str) and name for name in resources):
        raise ConfigError(f"{argument} must map names of resources to amounts, {example}, got {shown(resources)}")
    for name, amount in resources.items():
        if isinstance(amount, bool) or not isinstance(amount, int | float) or not 0 <= amount < float("inf"):
            raise ConfigError(f"{argument}[{name!r}] must be a number from 0, {example}, got {shown(amount)}")
        if name in _RAY_NAMES.values():
            ours = next(key for key, value in _RAY_NAMES.items() if value == name)
            raise ConfigError(f"{argument}[{name!r}] is written {ours!r} here, as in ray.remote")


def versions() -> dict[str, str]:
    """Return the versions that must be equal on all nodes."""
    python = ".".join(platform.python_version_tuple()[:2])
    return {"Python": python, "marltrain": __version__, "numpy": np.__version__}


def check_versions(theirs: Mapping[str, str], node: str) -> None:
    """Raise ConfigError unless the versions on a node are those of this process."""
    ours = versions()
    differing = [f"{name} {theirs.get(name)} (here {ours[name]})" for name in ours if theirs.get(name) != ours[name]]
    if differing:
        raise ConfigError(
            f"the node {node} of the Ray cluster has {', '.join(differing)}: install the same versions on all nodes"
        )


def connected() -> bool:
    """Return whether this process is connected to a cluster; raises ConfigError if Ray is not installed."""
    return bool(_module().is_initialized())


class Cluster:
    """A use of Ray by this process. The first one connects; the last one that is closed ends what the first began.

    ray: the module.
    """

    _uses = 0
    _ours: ExitStack | None = None  # ends the connection that we began, and deletes what it leaves
    _asked: str | None = None  # the address by which we connected; Ray gives another name of the same host

    def __init__(self, address: str | None = None) -> None:
        """Connect to Ray, unless this process is connected already.

        address: "host:port", "auto" (a cluster of this machine) or "local" (a new one, on this machine); None: the
        variable RAY_ADDRESS, else "local".

        A new cluster asks for a token, see `ray_token`. Its files are deleted when the connection ends.

        Raises ConfigError if Ray is not installed, if nothing answers at the address, if its versions differ, or if
        there is no safe token for a new cluster.
        """
        self.ray = _module()
        with _LOCK:
            if self.ray.is_initialized():
                _check_same(self.ray, address)
            else:
                asked = address or os.environ.get("RAY_ADDRESS") or "local"
                Cluster._ours, Cluster._asked = connect(self.ray, asked), asked
            Cluster._uses += 1
        self.close = weakref.finalize(self, here_only(_release))
        self._placed: Counter[str] = Counter()  # actors on each node

    @property
    def cpus(self) -> int:
        """Number of CPUs of all nodes, at least 1."""
        return max(int(self.ray.cluster_resources().get("CPU", 1)), 1)

    @property
    def address(self) -> str:
        """Address of the cluster, "host:port"."""
        return str(self.ray.get_runtime_context().gcs_address)

    def names(self) -> list[str]:
        """Return the names of the actors that have one, see `Actor`."""
        found = self.ray.util.list_named_actors(all_namespaces=True)
        return sorted(actor["name"] for actor in found if actor["namespace"] == NAMESPACE)

    def next_place(self) -> Any:
        """Return where the next actor without resources of its own starts: nodes take turns, by their CPUs.

        Ray would start such actors on nodes chosen at random. Another node takes the place of a busy one.
        """
        cpus = {node["NodeID"]: node["Resources"].get("CPU", 0) for node in self.ray.nodes() if node["Alive"]}
        usable = {node: count for node, count in cpus.items() if count >= 1}
        if not usable:
            return "SPREAD"
        chosen = min(usable, key=lambda node: (self._placed[node] + 1) / usable[node])
        self._placed[chosen] += 1
        return _if_possible_on(chosen)

    def own_place(self) -> Any:
        """Return where actors start that serve this process: on its node, or on another one if that is not possible."""
        return _if_possible_on(self.ray.get_runtime_context().get_node_id())

    def room(self, resources: Mapping[str, float]) -> int:
        """Return how many actors that occupy `resources` fit on all nodes, at least 1 and at most one for each CPU."""
        wanted = {name: amount for name, amount in _wanted(resources).items() if amount}
        if not wanted:
            return self.cpus
        fitting = sum(min(int(node.get(name, 0) // wanted[name]) for name in wanted) for node in self._nodes())
        return min(max(fitting, 1), self.cpus)

    def check_room(self, resources: Mapping[str, float] | None, what: str, argument: str = "resources") -> None:
        """Raise ConfigError if no node has the resources of one actor.

        what: the actors in words, such as "each actor of environments".  argument: that gives their resources.
        """
        wanted, nodes = _wanted(resources), self._nodes()
        if any(all(node.get(name, 0) >= amount for name, amount in wanted.items()) for node in nodes):
            return
        hidden = ("node:", "memory", "object_store_memory")
        have = [
            {name: n for name, n in node.items() if not name.startswith(hidden) or name in wanted} for node in nodes
        ]
        raise ConfigError(
            f"{what} needs {wanted}, which no node of the Ray cluster has; the nodes have: "
            f"{'; '.join(map(str, have)) or 'none'}. Change {argument}, or start a node that has them"
        )

    def _nodes(self) -> list[dict[str, float]]:
        """Return the resources of each node."""
        return [node["Resources"] for node in self.ray.nodes() if node["Alive"]]


def _if_possible_on(node: str) -> Any:
    strategies = importlib.import_module("ray.util.scheduling_strategies")
    return strategies.NodeAffinitySchedulingStrategy(node, soft=True, _spill_on_unavailable=True)


def _wanted(resources: Mapping[str, float] | None) -> dict[str, float]:
    """Return what an actor needs to start, by Ray's names."""
    return {_RAY_NAMES.get(name, name): amount for name, amount in (resources or {"num_cpus": 1}).items()}


class Actor:
    """One Ray actor and the last call of it. Every wait has a limit.  node: its address, once it is confirmed.

    A method `about` of its class must return `versions()` and the address of its node, see `about`.
    """

    def __init__(
        self,
        cluster: Cluster,
        kind: type,
        resources: Mapping[str, float] | None,
        name: str,
        registered: str | None = None,
        arguments: tuple[Any, ...] = (),
    ) -> None:
        """Start an actor of the class `kind`; `confirm` waits for it.

        resources: see `check_resources`; None: one CPU of the node must be free when it starts, and none is kept.
        name: the actor in words, for messages.
        registered: the name by which `NamedActor` finds it, as long as this process lives. It starts on this node.
        arguments: of the constructor of `kind`.

        Raises NameTakenError if another actor is registered by this name.
        """
        self._cluster, self.name, self.node = cluster, name, ""
        given = dict(resources or {})
        options: dict[str, Any] = {key: given.pop(key) for key in _BUILT_IN if key in given}
        if resources is not None:
            options.setdefault("num_cpus", 0)
        if registered is not None:
            options |= {"name": registered, "namespace": NAMESPACE, "scheduling_strategy": cluster.own_place()}
        else:
            options["scheduling_strategy"] = cluster.next_place() if resources is None else "SPREAD"
        result = cluster.ray.remote(kind).options(**options, resources=given, max_restarts=0)
        try:
            self._handle: Any = result.remote(*arguments)
        except ValueError as error:
            if registered is None:
                raise
            raise NameTakenError(f"another actor is registered as {registered!r}: {error_text(error)}") from error
        self._about = self._handle.about.remote()
        self._call: Any = None

    def confirm(self, timeout: float) -> None:
        """Wait until the actor runs. Raises ActorError, and ConfigError if its node has other versions."""
        theirs, self.node = self._value(self._about, timeout)
        self.name = f"{self.name}, on node {self.node}"
        try:
            check_versions(theirs, self.node)
        except ConfigError:
            self.kill()
            raise

    def call(self, method: str, *args: Any) -> Any:
        """Start a call of a method and return its reference; `result` waits for it. Calls are executed in order."""
        if self._cluster.ray.is_initialized():  # otherwise the call would begin another cluster
            self._call = getattr(self._handle, method).remote(*args)
        return self._call

    def result(self, timeout: float, call: Any = None) -> Any:
        """Return the result of a call, by default of the last; raises ActorError if the actor ended or is too slow.

        timeout: seconds.  call: what `call` returned.
        """
        return self._value(self._call if call is None else call, timeout)

    def ready(self, timeout: float) -> bool:
        """Return whether the last call is done, or the actor lost, after at most `timeout` seconds."""
        if not self._cluster.ray.is_initialized():  # otherwise the wait would begin another cluster
            return True
        done, _ = self._cluster.ray.wait([self._call], timeout=timeout)
        return bool(done)

    def kill(self) -> None:
        """End the actor at once, also one that hangs."""
        if self._cluster.ray.is_initialized():
            self._cluster.ray.kill(self._handle)

    def _value(self, call: Any, timeout: float) -> Any:
        ray = self._cluster.ray
        if not ray.is_initialized():
            raise ActorError(f"{self.name} ended: Ray was shut down in this process", hung=False)
        try:
            return ray.get(call, timeout=timeout)
        except ray.exceptions.GetTimeoutError:
            self.kill()
            raise ActorError(f"{self.name} did not answer within {timeout:g} s", hung=True) from None
        except ray.exceptions.RayError as error:
            self.kill()
            raise ActorError(f"{self.name} ended: {_fate(error)}", hung=False) from error


def end_actors(actors: list[Actor], cluster: Cluster) -> None:
    """End all actors, then release the cluster."""
    try:
        for actor in actors:
            actor.kill()
    finally:
        actors.clear()
        cluster.close()


class NamedActor:
    """An actor that another process has registered by a name. It is never ended from here; threads may share it."""

    def __init__(self, cluster: Cluster, name: str) -> None:
        """Find the actor; raises LookupError if there is none of this name, or if Ray was shut down here."""
        self._cluster, self.name = cluster, name
        if not cluster.ray.is_initialized():  # Ray would begin another cluster
            raise LookupError(f"no actor is registered as {name!r}: Ray was shut down in this process")
        try:
            self._handle = cluster.ray.get_actor(name, namespace=NAMESPACE)
        except ValueError as error:
            raise LookupError(f"no actor is registered as {name!r}") from error

    def ask(self, method: str, *args: Any, timeout: float) -> Any:
        """Return the result of a method; raises ActorError if the actor ends, or after `timeout` seconds."""
        ray = self._cluster.ray
        if not ray.is_initialized():
            raise ActorError("Ray was shut down in this process", hung=False)
        try:
            return ray.get(getattr(self._handle, method).remote(*args), timeout=timeout)
        except ray.exceptions.GetTimeoutError:
            raise ActorError(f"no answer within {timeout:g} s", hung=True) from None
        except ray.exceptions.RayError as error:
            raise ActorError(_fate(error), hung=False) from error


class Served:
    """Base class of the classes that run in actors."""

    def about(self) -> tuple[dict[str, str], str]:
        """Return the versions on this node, and its address."""
        return versions(), _module().util.get_node_ip_address()


def _module() -> ModuleType:
    found: ModuleType = imported("ray", "ray", "A cluster")
    return found


def _check_same(ray: ModuleType, address: str | None) -> None:
    """Raise ConfigError if this process is connected to a cluster at another address."""
    now = ray.get_runtime_context().gcs_address
    if address not in (None, "auto", "local", now, Cluster._asked):
        raise ConfigError(
            f"address={address!r}: this process is connected to the Ray cluster at {now}; ray.shutdown() ends that"
        )


def _release() -> None:
    with _LOCK:
        Cluster._uses -= 1
        if Cluster._uses == 0 and Cluster._ours is not None:
            end, Cluster._ours, Cluster._asked = Cluster._ours, None, None
            end.close()


def _fate(error: Exception) -> str:
    """Return how an actor ended, in short; Ray's own text lists common causes in many lines."""
    found = _DEAD.search(str(error))
    return " ".join(clean(found.group(1) if found else error_text(error)).split())
