"""TensorFlow backends for the strategies: their gradients are sums over devices or workers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any

import tensorflow as tf
from tensorflow import Tensor

from marltrain.core.layout import map_tree
from marltrain.policies.backends.base import Loss, Network
from marltrain.policies.backends.strategies import (
    Member,
    ParameterServerStrategy,
)
from marltrain.policies.backends.tensorflow import Backend
from marltrain.policies.backends.tensorflow.graphs import Graph

Gradients = tuple[dict[str, Tensor], list[Tensor]]
Compute = Callable[[dict[str, Any], Tensor], Gradients]
"""(rows [B, ...], their share of all rows) -> metrics [1] and gradients [1, N], multiplied by the share."""


class Fused:
    """Packs metrics [K] and gradients [K, N] into one vector, so that one operation sums all of them.

    It records their names and shapes.
    """

    def joined(self, gradients: Gradients) -> Tensor:
        """Return all metrics and gradients as one vector."""
        metrics, grads = gradients
        agents = grads[0].shape[:1]  # a metric's static shape may lack it: for K = 1 an axis may be broadcast
        self.names, self.shapes = list(metrics), [*[agents] * len(metrics), *(grad.shape for grad in grads)]
        return tf.concat([tf.reshape(part, [-1]) for part in (*metrics.values(), *grads)], 0)

    def parted(self, vector: Tensor) -> Gradients:
        """Return the metrics and gradients of a vector from `joined`."""
        pieces = tf.split(vector, [shape.num_elements() for shape in self.shapes])
        parts = [tf.reshape(piece, shape) for piece, shape in zip(pieces, self.shapes, strict=True)]
        return dict(zip(self.names, parts, strict=False)), parts[len(self.names) :]


class MirroredBackend(Backend):
    """A backend with a copy of all variables on each device; each device computes gradients over a part of the rows."""

    def __init__(self, device: str, strategy: tf.distribute.Strategy) -> None:
        """Use the devices of a `tf.distribute.MirroredStrategy`."""
        super().__init__(device)
        self.mirrors, self.parts = strategy, strategy.num_replicas_in_sync

    def scope(self) -> AbstractContextManager[Any]:
        """Return a context in which variables have a copy on each device."""
        return self.mirrors.scope()

    def gradients(
        self, loss: Loss, nets: Mapping[str, Network], trains: Sequence[str], columns: Any, hyper: Any
    ) -> Gradients:
        """Return metrics and gradients over the rows of all devices; see `Backend.gradients`."""

        def own(columns: Any, hyper: Any) -> Gradients:
            place = tf.distribute.get_replica_context().replica_id_in_sync_group
            return Backend.gradients(self, loss, nets, trains, part_of(columns, place, self.parts), hyper)

        return self.summed(own, columns, hyper)

    def summed(self, gradients: Callable[..., Gradients], *arguments: Any) -> Gradients:
        """Call a function on each device; return the sums of its metrics [K] and gradients [K, N]."""
        fused = Fused()
        each = self.mirrors.run(lambda *given: fused.joined(gradients(*given)), args=arguments)
        return fused.parted(self.mirrors.reduce(tf.distribute.ReduceOp.SUM, each, axis=None))

    def over_parts(self, compute: Compute, columns: dict[str, Any], share: Tensor) -> Gradients:
        """Return the sums of what a function of rows [B, ...] and their share returns for the rows of each device."""

        def own(columns: dict[str, Any]) -> Gradients:
            return compute(*own_part(columns, tf.distribute.get_replica_context().replica_id_in_sync_group, self.parts))

        return self.summed(own, columns)


class WorkerBackend(Backend):
    """The backend of one process of a `tf.distribute.MultiWorkerMirroredStrategy`, with its own part of the rows.

    Each worker has its own variables and updates them by the same sums of gradients.
    """

    def __init__(self, device: str, strategy: tf.distribute.Strategy) -> None:
        """Use a strategy that this process has joined."""
        super().__init__(device)
        self.workers, self.parts = strategy, strategy.num_replicas_in_sync

    def gradients(
        self, loss: Loss, nets: Mapping[str, Network], trains: Sequence[str], columns: Any, hyper: Any
    ) -> Gradients:
        """Return metrics and gradients over the rows of all workers; see `Backend.gradients`."""

        def own(columns: Any, hyper: Any) -> Gradients:
            return Backend.gradients(self, loss, nets, trains, columns, hyper)

        return self.summed(own, columns, hyper)

    def summed(self, gradients: Callable[..., Gradients], *arguments: Any) -> Gradients:
        """Call a function in each worker; return the sums of its metrics [K] and gradients [K, N]."""
        fused = Fused()

        def own(*given: Any) -> Tensor:
            vector = fused.joined(gradients(*given))
            return tf.distribute.get_replica_context().all_reduce(tf.distribute.ReduceOp.SUM, vector)

        return fused.parted(self.workers.experimental_local_results(self.workers.run(own, args=arguments))[0])

    def over_parts(self, compute: Compute, columns: dict[str, Any], share: Tensor) -> Gradients:
        """Return the sums of what a function of rows [B, ...] and their share returns for the rows of each worker."""
        return self.summed(compute, columns, share)


class ChiefBackend(Backend):
    """The chief of a parameter server cluster: the servers hold the variables, the workers compute gradients.

    The chief sums, clips and applies the gradients: when workers applied them in their closures, deadlocks occurred.
    """

    def __init__(self, device: str, strategy: tf.distribute.ParameterServerStrategy, workers: int) -> None:
        """Use a cluster that this process has connected to."""
        super().__init__(device)
        self.cluster, self.workers, self.parts = strategy, workers, workers
        self.coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
        self._graphs: dict[tuple[Any, ...], tuple[Graph, Fused]] = {}

    def scope(self) -> AbstractContextManager[Any]:
        """Return a context in which variables are placed on the servers."""
        return self.cluster.scope()

    def tensor(self, array: Any) -> Any:
        """Convert arrays to tensors of the chief."""
        return map_tree(tf.constant, array)

    def function(self, step: Callable[..., Tensor], *, compiled: bool = True) -> Callable[..., Tensor]:
        """Return the function unchanged: only the work of the workers runs as a graph."""
        return step

    def gradients(
        self, loss: Loss, nets: Mapping[str, Network], trains: Sequence[str], columns: Any, hyper: Any
    ) -> Gradients:
        """Return metrics and gradients over the rows of all workers; see `Backend.gradients`."""
        key = loss, tuple(trains)
        if key not in self._graphs:
            self._graphs[key] = self._graph_of(loss, nets, trains)
        graph, fused = self._graphs[key]
        asked = []
        for place in range(self.workers):
            traced, leaves = graph.bound(part_of(columns, place, self.workers), hyper)
            asked.append(self.coordinator.schedule(traced, args=tuple(leaves)))
        return fused.parted(tf.add_n([one.fetch() for one in asked]))

    def _graph_of(self, loss: Loss, nets: Mapping[str, Network], trains: Sequence[str]) -> tuple[Graph, Fused]:
        fused = Fused()

        def own(columns: Any, hyper: Any) -> Tensor:
            return fused.joined(Backend.gradients(self, loss, nets, trains, columns, hyper))

        return Graph(own), fused


def part_of(columns: Any, part: Any, parts: int) -> Any:
    """Return one of `parts` equal parts of the rows of each member, member -> columns [K, B, ...].

    The last row, with weight 0, fills up the parts.
    """
    return {key: _part_of_rows(own, part, parts) for key, own in columns.items()}


def _part_of_rows(columns: Any, part: Any, parts: int) -> Any:
    rows = tf.shape(columns["weight"])[1]
    width = -(-rows // parts)
    wanted = part * width + tf.range(width)
    index = tf.minimum(wanted, rows - 1)
    cut: dict[str, Any] = map_tree(lambda value: tf.gather(value, index, axis=1), columns)
    cut["weight"] *= tf.cast(wanted < rows, tf.float32)
    return cut


def own_part(columns: dict[str, Any], part: Any, parts: int) -> tuple[dict[str, Any], Tensor]:
    """Return part `part` of the rows of columns [B, ...] and its share of all; at least a row, of share 0."""
    rows = tf.shape(columns["reward"])[0]
    start, stop = part * rows // parts, (part + 1) * rows // parts
    first = tf.minimum(start, rows - 1)
    cut: dict[str, Any] = map_tree(lambda value: value[first : tf.maximum(stop, first + 1)], columns)
    return cut, tf.cast(stop - start, tf.float32) / tf.cast(rows, tf.float32)


def joined(member: Member) -> Any:
    """Join the cluster over the loopback device; return the backend of a member that learns, or else its server."""
    tf.config.threading.set_intra_op_parallelism_threads(member.threads)
    _take_devices(member)
    jobs = list(_jobs(member))
    kind, number = jobs[member.index]
    cluster: dict[str, list[str]] = {}
    for (job, _), port in zip(jobs, member.ports, strict=True):
        cluster.setdefault(job, []).append(f"127.0.0.1:{port}")
    spec = tf.train.ClusterSpec(cluster)
    device = "GPU" if "GPU" in member.device else "CPU"
    if not member.learns:
        return tf.distribute.Server(spec, job_name=kind, task_index=number, protocol="grpc")
    place = tf.distribute.cluster_resolver.SimpleClusterResolver(spec, task_type=kind, task_id=number, rpc_layer="grpc")
    if isinstance(member.strategy, ParameterServerStrategy):
        return ChiefBackend(device, tf.distribute.ParameterServerStrategy(place), member.strategy.workers)
    return WorkerBackend(device, tf.distribute.MultiWorkerMirroredStrategy(place, ring()))


def ring() -> Any:
    """Return the options of sums over a ring of workers."""
    implementation = tf.distribute.experimental.CommunicationImplementation.RING
    return tf.distribute.experimental.CommunicationOptions(implementation=implementation)


def _take_devices(member: Member) -> None:
    """Make one device visible to this process: a GPU if the agent learns on a GPU, else only the CPU."""
    gpus = tf.config.list_physical_devices("GPU") if "GPU" in member.device else []
    own = gpus[member.index % len(gpus)] if gpus else None
    tf.config.set_visible_devices([] if own is None else [own], "GPU")
    if own is not None:
        tf.config.experimental.set_memory_growth(own, True)  # several members may share a GPU


def _jobs(member: Member) -> Iterator[tuple[str, int]]:
    """Yield TensorFlow's (job, number) of each member."""
    for name in member.strategy.members():
        job, _, number = name.partition(" ")
        yield {"server": "ps"}.get(job, job), int(number or 0)
