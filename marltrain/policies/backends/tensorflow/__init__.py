"""The TensorFlow backend: networks, gradients and optimizers behind the interface common to all backends."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from types import ModuleType
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from tensorflow import Tensor

from marltrain.errors import ConfigError
from marltrain.layout import Array
from marltrain.policies.backends.frameworks import makes_models
from marltrain.policies.backends.shapes import rounded_up
from marltrain.policies.backends.tensorflow import ops as tensorflow_ops
from marltrain.policies.backends.tensorflow.copies import Maker
from marltrain.policies.backends.tensorflow.graphs import Graph
from marltrain.policies.backends.tensorflow.networks import ModelNetwork, Network, StackedNetwork
from marltrain.policies.backends.tensorflow.optimisers import OPTIMISERS, Optimiser
from marltrain.policies.backends.tensorflow.randomness import seeded
from marltrain.policies.networks import Head, NetworkSpec, Plan

Loss = Callable[[Mapping[str, Any], Any, Any], tuple[Tensor, dict[str, Tensor]]]


class Backend:
    """The operations of a framework that a learner needs."""

    name = "tensorflow"
    ops: ModuleType = tensorflow_ops
    shares_memory = False
    strategy: Any = None
    """The strategy that distributes gradient steps over devices or processes, set by `make_backend`."""

    def __init__(self, device: str = "auto", *, jit_compile: bool = False) -> None:
        """Choose a device: "auto" takes a GPU if there is one; raises ConfigError for a device that is missing.

        jit_compile: compile gradient steps by XLA; else they run as plain graphs.
        """
        _bound_threads()
        self.jit_compile = jit_compile
        self.device = _device(device)
        self._tapes = threading.local()  # one thread may learn while another acts

    def scope(self) -> AbstractContextManager[Any]:
        """Return a context in which variables are placed on the device."""
        return tf.device(self.device)

    def tensor(self, array: Any) -> Any:
        """Convert a numpy array, or a mapping of arrays, to tensors on the device."""
        if isinstance(array, dict):
            return {name: self.tensor(inner) for name, inner in array.items()}
        if array is None:
            return None
        with self.scope():
            return tf.constant(array)

    def numpy(self, tensor: Tensor) -> Array:
        """Convert a tensor, a variable or a result of `rows` to a writable numpy array, always a copy."""
        shown = tensor if isinstance(tensor, np.ndarray) else tensor.numpy()
        return np.array(shown)  # a copy, since views of TensorFlow's memory are read-only

    def overwrite(self, old: tf.Variable, new: Array) -> None:
        """Assign a numpy array to a variable."""
        old.assign(new)

    def function(self, step: Callable[..., Tensor]) -> Callable[..., Tensor]:
        """Return a function of tensors as a graph, compiled by XLA if `jit_compile` is set."""

        def placed(*trees: Any) -> Tensor:
            with self.scope():
                return step(*trees)

        return Graph(placed, jit_compile=self.jit_compile)

    def width(self, rows: int) -> int:
        """Round up the number of rows of a minibatch, so that minibatches of similar sizes share a compiled graph."""
        return rounded_up(rows) if self.jit_compile else rows

    def threads(self) -> int:
        """Return the number of threads that an operation may use."""
        return int(tf.config.threading.get_intra_op_parallelism_threads()) or os.cpu_count() or 1

    def no_gradient(self) -> AbstractContextManager[Any]:
        """Return a context in which no gradients are recorded."""
        return self._unrecorded() if self._recording else nullcontext()

    def is_module(self, network: object) -> bool:
        """Return whether `network` is a user's model of this framework, or a function that makes a model."""
        return isinstance(network, keras.Model) or makes_models(network)

    def network(
        self, spec: Any, layout: Any, heads: Sequence[Head], rngs: Sequence[np.random.Generator] | None, rows: int
    ) -> Network:
        """Build K = `rows` networks, with initial weights drawn from `rngs`, or zero weights without `rngs`.

        A user's model is copied, and a user's function is called, so that every agent has its own model.
        Raises AgentError if a model does not fit the observations or the heads.
        """
        if isinstance(spec, NetworkSpec):
            made = StackedNetwork(Plan(spec, layout, heads), rows, self.scope)
            if rngs is not None:
                made.draw(rngs)
            return made
        # seeded: a model that is not built yet, or is made by a function, draws its initial weights here
        with self.scope(), self.seeded(rngs[0] if rngs is not None else np.random.default_rng(0)):
            return ModelNetwork(Maker(spec), heads, layout, lambda: self._recording)

    def optimiser(self, name: str, network: Network, epsilon: float) -> Optimiser:
        """Make the named optimizer for the weights of a network."""
        return OPTIMISERS[name](network, epsilon, self.scope)

    def gradients(
        self, loss: Loss, nets: Mapping[str, Network], trains: Sequence[str], columns: Any, hyper: Any
    ) -> tuple[dict[str, Tensor], list[Tensor]]:
        """Return the metrics [K] and, for each network in `trains`, the gradients [K, N] of the agents' losses.

        loss: (nets, columns, hyper) -> (loss [K], metrics). Weight regularizers of a user's Keras models are added.
        """
        networks = [nets[name] for name in trains]
        sources = [network.sources() for network in networks]
        with tf.GradientTape(watch_accessed_variables=False) as tape, self._recorded(tape):
            tape.watch(sources)
            value, metrics = loss(nets, columns, hyper)
            added = {f"regularisation/{name}": own for name in trains if (own := nets[name].penalty()) is not None}
            total = tf.add_n([tf.reduce_sum(value), *(tf.reduce_sum(own) for own in added.values())])
        grads = tape.gradient(total, sources, unconnected_gradients=tf.UnconnectedGradients.ZERO)
        return {**metrics, **added}, [network.joined(grad) for network, grad in zip(networks, grads, strict=True)]

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

    def clip(self, grads: Sequence[Tensor], limit: Tensor) -> tuple[Sequence[Tensor], list[Tensor], Tensor]:
        """Scale each row of the gradients to a joint norm of at most `limit` [K].

        Returns the gradients, the norm of each network's gradient before scaling [networks, K], and the factors [K].
        """
        norms = tf.stack([tf.norm(grad, axis=1) for grad in grads])
        factor = tf.minimum(limit / (tf.norm(norms, axis=0) + 1e-6), 1.0)
        return [grad * factor[:, tf.newaxis] for grad in grads], tf.unstack(norms), factor

    def rows(self, columns: Mapping[str, Any], index: Array, batch: int) -> dict[str, Any]:
        """Select rows of columns [K, B, ...], B = `batch`, by each agent's indices [K, N] -> [K, N, ...].

        On a CPU the results are numpy arrays: slicing them into minibatches is faster than slicing tensors.
        """
        agents = np.arange(len(index))[:, None]
        return {name: self._picked(value, agents, index) for name, value in columns.items()}

    def columns(self, value: Any, start: int, stop: int) -> Any:
        """Return the rows from `start` to `stop` of [K, B, ...]."""
        if isinstance(value, dict):
            return {name: inner[:, start:stop] for name, inner in value.items()}
        return None if value is None else value[:, start:stop]

    def _picked(self, value: Any, agents: Array, index: Array) -> Any:
        """Select rows of a column, or of a mapping of columns.

        A recursive function inside `rows` would be a reference cycle, which keeps `index` alive until the next garbage
        collection.
        """
        if isinstance(value, dict):
            return {name: self._picked(inner, agents, index) for name, inner in value.items()}
        if value is None or "GPU" in self.device:
            return None if value is None else tf.gather(value, index, batch_dims=1)
        return np.asarray(value)[agents, index]

    def seeded(self, rng: np.random.Generator) -> AbstractContextManager[None]:
        """Return a context in which the global random generators are seeded; see `randomness.seeded`."""
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
