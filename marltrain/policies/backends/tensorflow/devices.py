"""TensorFlow backends of strategies within this process: its devices, or a cluster that it joins."""

from __future__ import annotations

import tensorflow as tf

from marltrain.core.errors import ConfigError
from marltrain.policies.backends.strategies import (
    LiveStrategy,
    MirroredStrategy,
    MultiWorkerMirroredStrategy,
    Strategy,
)
from marltrain.policies.backends.tensorflow import Backend
from marltrain.policies.backends.tensorflow.joined import JoinedBackend, joined_cluster_strategy
from marltrain.policies.backends.tensorflow.replicas import MirroredBackend


def within(device: str, strategy: Strategy) -> Backend:
    """Return the backend of a strategy within this process; raises ConfigError if devices are missing."""
    if isinstance(strategy, LiveStrategy | MultiWorkerMirroredStrategy):
        given = strategy.given if isinstance(strategy, LiveStrategy) else joined_cluster_strategy()
        return MirroredBackend(device, given) if strategy.shares_variables else JoinedBackend(device, given)
    if not isinstance(strategy, MirroredStrategy):
        raise TypeError(f"{strategy} has processes of its own")
    wanted = strategy.replicas
    kind = "GPU" if "GPU" in Backend(device).device else "CPU"
    if kind == "CPU":
        _divide_cpu(wanted)
    there = [one.name for one in tf.config.list_logical_devices(kind)]
    if len(there) < wanted:
        advice = _how_to_divide(wanted) if kind == "CPU" else 'Take fewer, or parts of the CPU with device="cpu"'
        raise ConfigError(f"{strategy} needs {wanted} devices, TensorFlow has {len(there)} of kind {kind}. {advice}")
    return MirroredBackend(device, tf.distribute.MirroredStrategy(there[:wanted]))


def _divide_cpu(wanted: int) -> None:
    """Divide the CPU into several logical devices; TensorFlow allows that only before its start."""
    cpu = tf.config.list_physical_devices("CPU")[0]
    if len(tf.config.get_logical_device_configuration(cpu) or [None]) >= wanted:
        return
    try:
        tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * wanted)
    except RuntimeError:
        return  # TensorFlow has started


def _how_to_divide(wanted: int) -> str:
    return (
        "A CPU is divided into logical devices before TensorFlow starts, and it has: make the agents with this "
        "strategy first, or begin the script with tf.config.set_logical_device_configuration("
        f'tf.config.list_physical_devices("CPU")[0], [tf.config.LogicalDeviceConfiguration()] * {wanted})'
    )
