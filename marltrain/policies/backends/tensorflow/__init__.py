"""The TensorFlow backend: networks, gradients and optimizers behind the interface common to all backends."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from tensorflow import Tensor

from marltrain.core.errors import ConfigError
from marltrain.core.layout import Array, map_tree
from marltrain.policies.backends import base
from marltrain.policies.backends.base import Divergence, Loss
from marltrain.policies.backends.frameworks import makes_models
from marltrain.policies.backends.tensorflow import ops as tensorflow_ops
from marltrain.policies.backends.tensorflow.copies import Maker
from marltrain.policies.backends.tensorflow.graphs import Graph
from marltrain.policies.backends.tensorflow.networks import ModelNetwork, Network, StackedNetwork
from marltrain.policies.backends.tensorflow.optimizers import Optimizer
from marltrain.policies.backends.tensorflow.randomness import seeded
from marltrain.policies.backends.tensorflow.sending import pickled
from marltrain.policies.networks.specs import NetworkDefinition, Plan
from marltrain.policies.ops import FrameworkOps


def gpu() -> str | None:
    """Return the name of the first GPU that TensorFlow can use, None without one."""
    return "cuda" if tf.config.get_visible_devices("GPU") else None


class Backend(base.Backend):
    """TensorFlow on one device; see `base.Backend`.

    parts: number of parts of a batch whose gradients are summed; each adds its share of the weight regularization.
    """

    parts: int = 1
    name = "tensorflow"
    ops: FrameworkOps = tensorflow_ops
    pickled = staticmethod(pickled)

    def __init__(self, device: str = "auto", *, jit_compile: base.JitCompile = False) -> None:
        """Raise ConfigError for a device that is missing; "auto" is a GPU if there is one.

        jit_compile: compile gradient steps by XLA; else they run as plain graphs. On a CPU, most gradient steps are
            marltrain's own programs instead, see `policies.learner.make_steps`.
        """
        _bound_threads()
        self.jit_compile = jit_compile
        self.device = _device(device)
        self.on_gpu = "GPU" in self.device
        self.runs_programs = bool(jit_compile) and "CPU" in self.device
        self._tapes = threading.local()  # one thread may learn while another acts

    def scope(self) -> AbstractContextManager[Any]:
        """Return a context in which variables are placed on the device."""
        return tf.device(self.device)

    def tensor(self, array: Any) -> Any:
        """See `base.Backend`."""
        with self.scope():
            return map_tree(tf.constant, array)

    def numpy(self, tensor: Tensor) -> Array:
        """See `base.Backend`; always a copy."""
        shown = tensor if isinstance(tensor, np.ndarray) else tensor.numpy()
        return np.array(shown)  # a copy, since views of TensorFlow's memory are read-only

    def overwrite(self, old: tf.Variable, new: Array) -> None:
        """See `base.Backend`."""
        old.assign(new)

    def function(self, step: Callable[..., Tensor], *, compiled: bool = True) -> Callable[..., Tensor]:
        """Return the function as a graph, compiled by XLA if `jit_compile` is set and `compiled`."""

        def placed(*trees: Any) -> Tensor:
            with self.scope():
                return step(*trees)

        return Graph(placed, jit_compile=compiled and bool(self.jit_compile))

    def agreed(self, call: Callable[..., Any]) -> Callable[..., Any]:
        """Return a function that calls a graph; in a cluster it raises WorkerError if the workers disagree."""
        return call

    def threads(self) -> int:
        """See `base.Backend`."""
        return int(tf.config.threading.get_intra_op_parallelism_threads()) or os.cpu_count() or 1

    def no_gradient(self) -> AbstractContextManager[Any]:
        """See `base.Backend`."""
        return self._unrecorded() if self._recording else nullcontext()

    def is_module(self, network: object) -> bool:
        """See `base.Backend`."""
        return isinstance(network, keras.Model) or makes_models(network)

    def network(self, definition: NetworkDefinition, rngs: Sequence[np.random.Generator] | None, rows: int) -> Network:
        """See `base.Backend`."""
        if not self.is_module(definition.spec):
            stacked = StackedNetwork(Plan(definition), rows, self.scope)
            if rngs is not None:
                stacked.draw(rngs)
            return stacked
        # seeded: a model that is not built yet, or is made by a function, draws its initial weights here
        with self.scope(), self.seeded(rngs[0] if rngs is not None else np.random.default_rng(0)):
            return ModelNetwork(Maker(definition.spec), definition, lambda: self._recording)

    def optimizer(self, name: str, network: base.Network, epsilon: float) -> Optimizer:
        """See `base.Backend`."""
        return Optimizer(name, network.flat, epsilon, self.scope)

    def gradients(
        self, loss: Loss, nets: Mapping[str, base.Network], trains: Sequence[str], columns: Any, hyper: Any
    ) -> tuple[dict[str, Tensor], list[Tensor]]:
        """See `base.Backend`; weight regularizers of a user's Keras models are added."""
        networks = [nets[name] for name in trains]
        sources = [network.sources() for network in networks]
        with tf.GradientTape(watch_accessed_variables=False) as tape, self._recorded(tape):
            tape.watch(sources)
            value, metrics = loss(nets, columns, hyper)
            penalties = {name: own for name in trains if (own := nets[name].penalty()) is not None}
            added = {f"regularization/{name.split('/')[-1]}": own / self.parts for name, own in penalties.items()}
            total = tf.add_n([tf.reduce_sum(value), *(tf.reduce_sum(own) for own in added.values())])
        grads = tape.gradient(total, sources, unconnected_gradients=tf.UnconnectedGradients.ZERO)
        return {**metrics, **added}, [network.joined(grad) for network, grad in zip(networks, grads, strict=True)]

    def curvature_product(
        self,
        divergence: Divergence,
        nets: Mapping[str, base.Network],
        trains: Sequence[str],
        columns: Any,
        hyper: Any,
        vectors: Sequence[Tensor],
    ) -> list[Tensor]:
        """See `base.Backend`."""
        networks = [nets[name] for name in trains]
        sources, zero = [network.sources() for network in networks], tf.UnconnectedGradients.ZERO

        def joined(grads: Any) -> list[Tensor]:
            return [network.joined(grad) for network, grad in zip(networks, grads, strict=True)]

        with tf.GradientTape(watch_accessed_variables=False) as outer:
            outer.watch(sources)
            with tf.GradientTape(watch_accessed_variables=False) as inner, self._recorded(inner):
                inner.watch(sources)
                total = tf.reduce_sum(divergence(nets, columns, hyper))
            first = joined(inner.gradient(total, sources, unconnected_gradients=zero))
            along = tf.add_n([tf.reduce_sum(grad * vector) for grad, vector in zip(first, vectors, strict=True)])
        return joined(outer.gradient(along, sources, unconnected_gradients=zero))

    @property
    def _recording(self) -> bool:
        return getattr(self._tapes, "recording", False)

    @contextmanager
    def _recorded(self, tape: tf.GradientTape) -> Iterator[None]:
        self._tapes.recording, self._tapes.tape = True, tape
        try:
            yield
        finally:
            self._tapes.recording = False

    @contextmanager
    def _unrecorded(self) -> Iterator[None]:
        self._tapes.recording = False
        try:
            with self._tapes.tape.stop_recording():
                yield
        finally:
            self._tapes.recording = True

    def clip(self, grads: list[Tensor], limit: Tensor) -> tuple[list[Tensor], list[Tensor], Tensor]:
        """See `base.Backend`."""
        norms = tf.stack([tf.norm(grad, axis=1) for grad in grads])
        factor = tf.minimum(limit / (tf.norm(norms, axis=0) + 1e-6), 1.0)
        return [grad * factor[:, tf.newaxis] for grad in grads], tf.unstack(norms), factor

    def rows(self, columns: Mapping[str, Any], index: Array, batch: int) -> dict[str, Any]:
        """See `base.Backend`.

        On a CPU the results are numpy arrays: slicing them into minibatches is faster than slicing tensors.
        """
        agents = np.arange(len(index))[:, None]
        picked = (
            (lambda value: tf.gather(value, index, batch_dims=1)) if "GPU" in self.device
            else (lambda value: np.asarray(value)[agents, index])
        )  # fmt: skip
        return {name: map_tree(picked, value) for name, value in columns.items()}

    def seeded(self, rng: np.random.Generator) -> AbstractContextManager[None]:
        """See `base.Backend` and `randomness.seeded`."""
        return seeded(rng)


def _bound_threads() -> None:
    """Apply OMP_NUM_THREADS, which limits the threads of torch and numpy, to TensorFlow if it has not started yet."""
    asked = os.environ.get("OMP_NUM_THREADS", "")
    unset = tf.config.threading.get_intra_op_parallelism_threads() == 0
    if asked.isdigit() and unset:
        try:
            tf.config.threading.set_intra_op_parallelism_threads(int(asked))
        except RuntimeError:
            return  # TensorFlow has started: its number of threads is fixed


def _device(name: str) -> str:
    """Return TensorFlow's name of a device; raises ConfigError for a device that is missing or not visible."""
    if not isinstance(name, str):
        raise ConfigError(f'device must be "auto", "cpu", "cuda" or "cuda:1", got {name!r}')
    kind, _, number = name.lower().partition(":")
    visible = {each: len(tf.config.get_visible_devices(each)) for each in ("CPU", "GPU")}
    if kind == "auto":
        return "/GPU:0" if visible["GPU"] else "/CPU:0"
    kind = {"cuda": "GPU", "gpu": "GPU", "cpu": "CPU"}.get(kind, kind)
    known = [f"{each}:{i}" for each, count in visible.items() for i in range(count)]
    if f"{kind}:{number or 0}" not in known:
        raise ConfigError(f"device {name!r} cannot be used: TensorFlow sees {', '.join(known)}")
    return f"/{kind}:{number or 0}"
