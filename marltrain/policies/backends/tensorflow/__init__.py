"""The TensorFlow backend: networks, gradients and optimisers behind the names every backend has."""

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
    """Everything a learner asks of a framework."""

    name = "tensorflow"
    ops: ModuleType = tensorflow_ops
    shares_memory = False
    strategy: Any = None
    """How the passes of its learners are spread, set by `make_backend`."""

    def __init__(self, device: str = "auto", *, jit_compile: bool = False) -> None:
        """Choose a device: "auto" takes a GPU when there is one; raises ConfigError for one that is not there.

        jit_compile: gradient passes are compiled by XLA, else run as plain graphs.
        """
        _bound_threads()
        self.jit_compile = jit_compile
        self.device = _device(device)
        self._tapes = threading.local()  # a thread may learn while another acts

    def scope(self) -> AbstractContextManager[Any]:
        """Return a context in which variables are placed on the device."""
        return tf.device(self.device)

    def tensor(self, array: Any) -> Any:
        """Turn a numpy array, or a mapping of them, into tensors on the device."""
        if isinstance(array, dict):
            return {name: self.tensor(inner) for name, inner in array.items()}
        if array is None:
            return None
        with self.scope():
            return tf.constant(array)

    def numpy(self, tensor: Tensor) -> Array:
        """Turn a tensor, a variable or what `rows` picked into a numpy array of one's own."""
        shown = tensor if isinstance(tensor, np.ndarray) else tensor.numpy()
        return np.array(shown)  # a copy: what TensorFlow shows of its own memory is read-only

    def overwrite(self, old: tf.Variable, new: Array) -> None:
        """Put a numpy array into a variable."""
        old.assign(new)

    def function(self, step: Callable[..., Tensor]) -> Callable[..., Tensor]:
        """Return a function of tensors as it runs best: a graph, compiled by XLA when asked for."""

        def placed(*trees: Any) -> Tensor:
            with self.scope():
                return step(*trees)

        return Graph(placed, jit_compile=self.jit_compile)

    def width(self, rows: int) -> int:
        """Round up the rows of a minibatch, so that ragged ones share a compiled graph."""
        return rounded_up(rows) if self.jit_compile else rows

    def threads(self) -> int:
        """Return how many threads an operation may use."""
        return int(tf.config.threading.get_intra_op_parallelism_threads()) or os.cpu_count() or 1

    def no_gradient(self) -> AbstractContextManager[Any]:
        """Return a context in which nothing is recorded for gradients."""
        return self._unrecorded() if self._recording else nullcontext()

    def is_module(self, network: object) -> bool:
        """Say whether `network` is a user's own model of this framework, or a function that makes one."""
        return isinstance(network, keras.Model) or makes_models(network)

    def network(
        self, spec: Any, layout: Any, heads: Sequence[Head], rngs: Sequence[np.random.Generator] | None, rows: int
    ) -> Network:
        """Build K = `rows` networks: drawn from `rngs`, or zero until loaded when there are none.

        A user's own model is copied, and a function that makes one is called, so that every agent has one of its own;
        raises AgentError when it does not fit the observations or the heads.
        """
        if isinstance(spec, NetworkSpec):
            made = StackedNetwork(Plan(spec, layout, heads), rows, self.scope)
            if rngs is not None:
                made.draw(rngs)
            return made
        # what is not built yet, or made by a function, draws its weights here
        with self.scope(), self.seeded(rngs[0] if rngs is not None else np.random.default_rng(0)):
            return ModelNetwork(Maker(spec), heads, layout, lambda: self._recording)

    def optimiser(self, name: str, network: Network, epsilon: float) -> Optimiser:
        """Make the named optimiser for one network's weights."""
        return OPTIMISERS[name](network, epsilon, self.scope)

    def gradients(
        self, loss: Loss, nets: Mapping[str, Network], trains: Sequence[str], columns: Any, hyper: Any
    ) -> tuple[dict[str, Tensor], list[Tensor]]:
        """Return the metrics [K] and, for each network that `trains` names, the gradient [K, N] of each row's own loss.

        loss: (nets, columns, hyper) -> (loss [K], metrics). Regularisers of a user's own Keras models are added to it.
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

        Returns the gradients, the networks' own norms before, [networks, K], and the factors [K].
        """
        norms = tf.stack([tf.norm(grad, axis=1) for grad in grads])
        factor = tf.minimum(limit / (tf.norm(norms, axis=0) + 1e-6), 1.0)
        return [grad * factor[:, tf.newaxis] for grad in grads], tf.unstack(norms), factor

    def rows(self, columns: Mapping[str, Any], index: Array, batch: int) -> dict[str, Any]:
        """Pick rows of columns [K, B, ...], B = `batch`, by each agent's own index [K, N] -> [K, N, ...].

        On a CPU as numpy arrays: cutting those into minibatches is quicker than cutting a tensor.
        """
        agents = np.arange(len(index))[:, None]
        return {name: self._picked(value, agents, index) for name, value in columns.items()}

    def columns(self, value: Any, start: int, stop: int) -> Any:
        """Return the rows start to stop of [K, B, ...]."""
        if isinstance(value, dict):
            return {name: inner[:, start:stop] for name, inner in value.items()}
        return None if value is None else value[:, start:stop]

    def _picked(self, value: Any, agents: Array, index: Array) -> Any:
        """Pick rows: within `rows` it would be a cycle that holds `index` until the garbage collector comes."""
        if isinstance(value, dict):
            return {name: self._picked(inner, agents, index) for name, inner in value.items()}
        if value is None or "GPU" in self.device:
            return None if value is None else tf.gather(value, index, batch_dims=1)
        return np.asarray(value)[agents, index]

    def seeded(self, rng: np.random.Generator) -> AbstractContextManager[None]:
        """Return a context in which the generators of a user's code are seeded; see `randomness.seeded`."""
        return seeded(rng)


def _bound_threads() -> None:
    """Let OMP_NUM_THREADS, which torch and numpy follow, bound TensorFlow as well, while that can still be set."""
    asked = os.environ.get("OMP_NUM_THREADS", "")
    unset = tf.config.threading.get_intra_op_parallelism_threads() == 0
    if asked.isdigit() and unset:
        try:
            tf.config.threading.set_intra_op_parallelism_threads(int(asked))
        except RuntimeError:
            return  # TensorFlow has started: its user has settled it


def _device(name: str) -> str:
    """Return TensorFlow's name of a device; raises ConfigError for one that is not there, or hidden from it."""
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
