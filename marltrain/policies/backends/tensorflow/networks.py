"""K networks whose weights are one flat variable, and the same interface for a user's own Keras model."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow import Tensor

from marltrain.core.errors import AgentError
from marltrain.core.layout import Array
from marltrain.policies.backends import base
from marltrain.policies.backends.frameworks import trial
from marltrain.policies.backends.own import structure_of
from marltrain.policies.backends.tensorflow import ops
from marltrain.policies.backends.tensorflow.copies import Maker
from marltrain.policies.backends.tensorflow.graphs import Graph
from marltrain.policies.backends.tensorflow.randomness import random_states, reseed, seed_graph
from marltrain.policies.backends.tensorflow.regularizers import check_added, penalty
from marltrain.policies.backends.tensorflow.shared import SharedVariable
from marltrain.policies.backends.tensorflow.trials import trial as trial_of
from marltrain.policies.backends.trials import Trial, two_batches
from marltrain.policies.networks.specs import NetworkDefinition, Plan

ERRORS = tf.errors.OpError, TypeError, ValueError, LookupError, AttributeError
"""Errors of a call of a user's model that does not fit its inputs."""


class Network(base.Network):
    """Networks whose weights are variables; see `base.Network`. `assign` may be traced."""

    def move_toward(self, online: base.Network, share: Tensor) -> None:
        """See `base.Network`."""
        self.assign(FOLLOWED(self.flat, online.flat, share[:, tf.newaxis]))
        self.discard_copies()


class StackedNetwork(Network, base.StackedNetwork):
    """A `Plan` with weights [K, *shape] for K agents."""

    def __init__(self, plan: Plan, num_agents: int, scope: Callable[[], AbstractContextManager[Any]]) -> None:
        """Allocate zero weights within `scope`, which determines their device; `draw` or `load` fills them."""
        self.plan, self.num_agents, self.scope = plan, num_agents, scope
        self.rows = num_agents * plan.members
        self._sizes = [parameter.size for parameter in plan.parameters]
        self._shapes = [(self.rows, *parameter.shape) for parameter in plan.parameters]
        with scope():
            self._variable = tf.Variable(tf.zeros([num_agents, plan.members * plan.size]))
        self._shared = SharedVariable(self._variable)
        self.on_cpu = "GPU" not in self._variable.device.upper()
        self._graph = Graph(self._forward)
        self._views: list[Array] | None = None

    @property
    def flat(self) -> Tensor:
        """See `base.Network`."""
        return self._shared.variable().read_value()

    def assign(self, flat: Tensor) -> None:
        """See `base.Network`."""
        self._variable.assign(flat)
        self.discard_copies()

    def sources(self) -> list[tf.Variable]:
        """Return the flat variable."""
        return [self._shared.variable()]

    def joined(self, grads: Sequence[Tensor | None]) -> Tensor:
        """Return the gradient of the flat variable."""
        return grads[0]

    def write(self, row: int, weights: Array) -> None:
        """See `base.StackedNetwork`."""
        flat = self.numbers().copy()
        flat[row] = weights
        self.assign(tf.constant(flat))
        self.discard_copies()

    def __call__(self, *inputs: Any, row: int | None = None) -> list[Tensor]:
        """See `base.Network`."""
        if not tf.executing_eagerly():
            return self._forward(*inputs)
        self.settle()
        if row is None:
            return list(self._graph(*inputs))
        everyone = [tf.nest.map_structure(lambda x: tf.repeat(x, self.num_agents, 0), given) for given in inputs]
        return [out[row : row + 1] for out in self._graph(*everyone)]

    def _forward(self, *inputs: Any) -> list[Tensor]:
        flat = self._variable if self.plan.members == 1 else tf.reshape(self._variable, [self.rows, self.plan.size])
        pieces = tf.split(flat, self._sizes, 1)
        weights = [tf.reshape(piece, shape) for piece, shape in zip(pieces, self._shapes, strict=True)]
        return self.plan.forward(ops, weights, *inputs)

    def numpy_weights(self) -> list[Array]:
        """See `base.StackedNetwork`: views of `numbers`."""
        numbers = self.numbers()
        if self._views is None:
            pieces = np.split(numbers.reshape(self.rows, -1), np.cumsum(self._sizes)[:-1], 1)
            self._views = [piece.reshape(shape) for piece, shape in zip(pieces, self._shapes, strict=True)]
        return self._views

    def numbers(self) -> Array:
        """See `base.Network`."""
        return self._shared.array()

    def numbers_changed(self) -> None:
        """See `base.Network`."""
        self._shared.array_changed()

    def settle(self) -> None:
        """See `base.Network`."""
        self._shared.variable()

    def discard_copies(self) -> None:
        """See `base.Network`: `numbers` copies the weights again."""
        self._shared.variable_changed()

    def copy(self) -> StackedNetwork:
        """See `base.Network`."""
        twin = StackedNetwork(self.plan, self.num_agents, self.scope)
        twin.assign(self.flat)
        return twin


class ModelNetwork(Network):
    """A user's `keras.Model` for one agent (K = 1).

    It is called with `training=True` while gradients are recorded, else (acting, targets) with `training=False`.
    Weights are saved by index and name. Their paths differ between copies, because Keras numbers the layers of a
    process in them.
    """

    def __init__(self, maker: Maker, definition: NetworkDefinition, recording: Callable[[], bool]) -> None:
        """Make a model and build it on inputs of zeros; raises AgentError if it does not fit them or the heads.

        recording: returns whether gradients are recorded.
        """
        self.maker, self.definition, self.recording = maker, definition, recording
        self.model = maker.make()
        self._states = random_states(self.model)
        with trial(f"model {type(self.model).__name__}", definition, ERRORS):
            self._forward(*definition.empty((1, 2), lambda shape, dtype: tf.zeros(shape, dtype)))
        check_added(self.model)
        maker.fill(self.model)
        self._states = random_states(self.model)
        self._trained, self._kept = self.model.trainable_weights, self.model.non_trainable_weights
        if not self._trained:
            raise AgentError(f"model {type(self.model).__name__} has no weights that learn: there is nothing to train")
        self._graphs = {training: Graph(self._forward) for training in (False, True)}

    def structure(self) -> str:
        """See `base.Network`."""
        return structure_of(self.model)

    def multiply_adds(self) -> int:
        """See `base.Network`; counted by TensorFlow in a graph of a call."""
        rows, profiler = 2, tf.compat.v1.profiler
        zeros = self.definition.empty((1, rows), lambda shape, dtype: tf.zeros(shape, dtype))
        graph = tf.function(self._forward, autograph=False).get_concrete_function(*zeros).graph
        options = profiler.ProfileOptionBuilder(profiler.ProfileOptionBuilder.float_operation()).with_empty_output()
        counted = profiler.profile(graph, options=options.build())
        return int(counted.total_float_ops) // (2 * rows)  # an addition and a multiplication are two operations

    def trial(self) -> Trial:
        """See `base.Network`."""
        return trial_of(self.model, two_batches(self.definition, tf.constant))

    def kept(self) -> dict[str, Array]:
        """See `base.Network`: the weights that do not learn, such as running statistics."""
        return {str(i): np.array(weight.numpy()) for i, weight in enumerate(self._kept)}

    def keep(self, arrays: Mapping[str, Array]) -> None:
        """See `base.Network`."""
        for i, weight in enumerate(self._kept):
            weight.assign(arrays[str(i)])

    def penalty(self) -> Tensor | None:
        """See `base.Network`."""
        added = penalty(self._trained)
        return None if added is None else added[tf.newaxis]

    @property
    def flat(self) -> Tensor:
        """See `base.Network`."""
        return self.joined(self.sources())

    def assign(self, flat: Tensor) -> None:
        """See `base.Network`."""
        pieces = tf.split(flat[0], [int(np.prod(weight.shape, dtype=int)) for weight in self._trained])
        for weight, piece in zip(self._trained, pieces, strict=True):
            weight.assign(tf.cast(tf.reshape(piece, weight.shape), weight.dtype))

    def sources(self) -> list[tf.Variable]:
        """Return the trainable weights."""
        return [weight.value for weight in self._trained]

    def joined(self, grads: Sequence[Tensor | None]) -> Tensor:
        """See `base.Network`."""
        return tf.concat([tf.cast(tf.reshape(grad, [-1]), tf.float32) for grad in grads], 0)[tf.newaxis]

    def __call__(self, *inputs: Any, row: int | None = None) -> list[Tensor]:
        """Return the model's output, split by the heads' widths, with the leading axis K = 1 restored."""
        return list(self._graphs[self.recording()](*inputs)) if tf.executing_eagerly() else self._forward(*inputs)

    def _forward(self, *inputs: Any) -> list[Tensor]:
        seed_graph()
        reseed(self._states)
        rows = [tf.nest.map_structure(lambda x: x[0], given) for given in inputs]
        out = self.model(*rows, training=self.recording())
        widths, members = self.definition.widths, self.definition.members
        expected = tf.TensorShape([tf.nest.flatten(rows)[0].shape[0], members * sum(widths)])
        if not tf.is_tensor(out) or not expected.is_compatible_with(out.shape):
            came = f"an output of shape {tuple(out.shape)}" if tf.is_tensor(out) else f"a {type(out).__name__}"
            raise AgentError(
                f"model {type(self.model).__name__} returned {came}, expected a tensor of shape {tuple(expected)}"
            )
        return self.heads(out)

    def heads(self, out: Tensor) -> list[Tensor]:
        """Return the output of the model, [B, members * sum of widths], as those of the heads with axis K = 1."""
        widths, members = self.definition.widths, self.definition.members
        out = tf.cast(out, tf.float32)
        if members > 1:
            out = tf.transpose(tf.reshape(out, [-1, members, sum(widths)]), [1, 0, 2])
        return list(tf.split(out[tf.newaxis], widths, -1))

    def arrays(self, row: int) -> dict[str, Array]:
        """Return all weights of the model, including the running statistics of its layers."""
        return {name: np.array(weight.numpy()) for name, weight in self._weights().items()}

    def load(self, row: int, arrays: Mapping[str, Array]) -> None:
        """See `base.Network`."""
        fitting = self.fitting(row, arrays)  # not checked to be finite: a model's buffers may hold infinities
        for name, weight in self._weights().items():
            weight.assign(fitting[name])

    def _weights(self) -> dict[str, Any]:
        weights = [*self._trained, *self._kept]
        return {f"{i}.{re.sub('_[0-9]+$', '', weight.name)}": weight for i, weight in enumerate(weights)}

    def move_toward(self, online: base.Network, share: Tensor) -> None:
        """Move the weights towards the online network; copy the running statistics if any share is not 0."""
        super().move_toward(online, share)
        if isinstance(online, ModelNetwork) and bool(tf.reduce_any(share > 0.0)):
            for mine, theirs in zip(self._kept, online._kept, strict=True):
                mine.assign(theirs)

    def discard_copies(self) -> None:
        """See `base.Network`; there are none."""

    def copy(self) -> ModelNetwork:
        """See `base.Network`."""
        twin = ModelNetwork(self.maker, self.definition, self.recording)
        twin.load(0, self.arrays(0))
        return twin


def _followed(flat: Tensor, goal: Tensor, share: Tensor) -> Tensor:
    """Return flat + share * (goal - flat); exactly `goal` at share 1 and exactly `flat` at share 0."""
    between = flat + share * (goal - flat)
    return tf.where(share == 0.0, flat, tf.where(share == 1.0, goal, between))


FOLLOWED = tf.function(_followed, autograph=False, reduce_retracing=True)
