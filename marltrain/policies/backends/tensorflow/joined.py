"""The TensorFlow backend of a process that has joined a cluster of workers, each of which makes the same run."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any

import tensorflow as tf
from tensorflow import Tensor

from marltrain.core.errors import ConfigError, WorkerError, error_text
from marltrain.policies.backends.base import Loss, Network
from marltrain.policies.backends.tensorflow import Backend
from marltrain.policies.backends.tensorflow.randomness import set_apart
from marltrain.policies.backends.tensorflow.replicas import Compute, Gradients, WorkerBackend, own_part, part_of, ring
from marltrain.policies.backends.tensorflow.tf_config import joined_cluster

SUM = "workers_disagree"
MODULUS = 16381
"""Sums of this many different values, over up to 1,024 workers, are exact in float32."""
_DIFFER = (
    "the workers of the cluster have different rows or weights: each process must make the same run. Start the same "
    "script everywhere, with the same seed= of the trainer and of the agents, on machines of one kind"
)


class JoinedBackend(WorkerBackend):
    """A backend that has all rows of a batch, of which its worker computes a part; the workers' sums are applied.

    Each gradient step compares check sums of the rows and weights, so that workers that drift apart are found.
    """

    def gradients(
        self, loss: Loss, nets: Mapping[str, Network], trains: Sequence[str], columns: Any, hyper: Any
    ) -> Gradients:
        """Return metrics and gradients over the rows of all workers; see `Backend.gradients`."""

        def own(columns: Any, hyper: Any) -> Gradients:
            place = tf.distribute.get_replica_context().replica_id_in_sync_group
            set_apart(place)
            part = part_of(columns, place, self.parts)
            metrics, grads = Backend.gradients(self, loss, nets, trains, part, hyper)
            agents = next(iter(metrics.values())).shape[:1]
            return {**metrics, SUM: tf.fill(agents, check_sum([columns, *(nets[name].flat for name in trains)]))}, grads

        metrics, grads = self.summed(own, columns, hyper)
        return self.confirmed(metrics, check_sum([columns, *(nets[name].flat for name in trains)])), grads

    def over_parts(self, compute: Compute, columns: dict[str, Any], share: Tensor) -> Gradients:
        """See `WorkerBackend`; each worker computes a part of all rows."""

        def own(columns: dict[str, Any]) -> Gradients:
            place = tf.distribute.get_replica_context().replica_id_in_sync_group
            set_apart(place)
            metrics, grads = compute(*own_part(columns, place, self.parts))
            return {**metrics, SUM: check_sum(columns)[None]}, grads

        metrics, grads = self.summed(own, columns)
        return self.confirmed(metrics, check_sum(columns)), grads

    def confirmed(self, metrics: dict[str, Tensor], own: Tensor) -> dict[str, Tensor]:
        """Return the metrics without the sum of the workers' check sums; it must be that of equal ones.  own: ours."""
        total = metrics.pop(SUM)
        with tf.control_dependencies([tf.debugging.assert_equal(total, own * self.parts, message=_DIFFER)]):
            return {name: tf.identity(value) for name, value in metrics.items()}

    def function(self, step: Callable[..., Tensor], *, compiled: bool = True) -> Callable[..., Tensor]:
        """Return the function as a graph; raises WorkerError if the workers disagree."""
        return self.agreed(super().function(step))

    def agreed(self, call: Callable[..., Any]) -> Callable[..., Any]:
        """See `Backend`."""

        def checked(*arguments: Any) -> Any:
            try:
                return call(*arguments)
            except tf.errors.InvalidArgumentError as error:
                if _DIFFER not in str(error):
                    raise
                raise WorkerError(_DIFFER) from error

        return checked


def check_sum(tree: Any) -> Tensor:
    """Return a whole number below `MODULUS` as float32; it depends on every bit of the tensors and on their order."""
    total = tf.constant(0, tf.int32)
    for leaf in tf.nest.flatten(tree):
        if leaf is None:
            continue
        bits = tf.bitcast(leaf, tf.int32) if leaf.dtype == tf.float32 else tf.cast(leaf, tf.int32)
        flat = tf.reshape(bits, [-1])
        total = total * 31 + tf.reduce_sum(flat * (2 * tf.range(tf.size(flat)) + 1))
    return tf.cast(tf.math.floormod(total, MODULUS), tf.float32)


@cache
def joined_cluster_strategy() -> tf.distribute.Strategy:
    """Join the cluster of TF_CONFIG, once in a process; waits for the other workers.

    Raises ConfigError if TF_CONFIG is malformed, and if TensorFlow has started.
    """
    cluster = joined_cluster()
    place = tf.distribute.cluster_resolver.SimpleClusterResolver(
        tf.train.ClusterSpec(cluster.addresses), task_type=cluster.job, task_id=cluster.index, rpc_layer="grpc"
    )
    try:
        return tf.distribute.MultiWorkerMirroredStrategy(place, ring())
    except RuntimeError as error:
        raise ConfigError(
            "MultiWorkerMirroredStrategy(workers=None) joins its cluster before TensorFlow starts, and it has: make "
            "the agents with this strategy first, or begin the script with "
            "strategy = tf.distribute.MultiWorkerMirroredStrategy() and give that object. TensorFlow says: "
            f"{error_text(error)}"
        ) from error
