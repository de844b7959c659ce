"""A user's Keras model with its losses and Keras optimizers; its gradient steps are graphs."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from tensorflow import Tensor

from marltrain.core.errors import AgentError
from marltrain.core.layout import Array, map_tree
from marltrain.policies.backends import own
from marltrain.policies.backends.frameworks import named
from marltrain.policies.backends.own import Loss, OwnPhase
from marltrain.policies.backends.tensorflow.copies import check_keras
from marltrain.policies.backends.tensorflow.randomness import random_states, reseed, seed_graph, seeded
from marltrain.policies.backends.tensorflow.regularizers import check_added, penalty
from marltrain.policies.backends.tensorflow.trials import statistics_of


class OwnModel(own.OwnModel):
    """A Keras model with its losses and optimizers; see `own.OwnModel`."""

    framework = "tensorflow"

    def _prepare(self) -> None:
        """See `own.OwnModel`."""
        model = self.model
        check_keras()
        if not isinstance(model, keras.Model):
            raise AgentError(f"CustomAgent: model must be a keras.Model, got {named(model)}, which is a part of one")
        if not model.trainable_variables:
            raise AgentError(
                f"CustomAgent: model {type(model).__name__} has no variables to train. Keras makes them when a model "
                "is built: call it once on a batch of observations, or begin it with keras.Input(shape)"
            )
        check_added(model)
        self._states = random_states(model)
        self.draws = bool(self._states)
        self._reseeded = tf.function(partial(reseed, self._states), autograph=False)
        self._kept: list[Array] | None = None
        self._outputs = tf.function(self._call, autograph=False, reduce_retracing=True)
        self._graph = tf.function(self._traced, autograph=False, reduce_retracing=True, jit_compile=self.jit_compile)

    def _paired(self, losses: Mapping[str, Loss], optimizers: Any) -> list[OwnPhase]:
        """See `own.OwnModel`; optimizers are also paired with variables."""
        model = self.model
        several = isinstance(optimizers, Mapping) or (isinstance(optimizers, list | tuple) and not _is_pair(optimizers))
        given = optimizers if several else [optimizers]
        mine = {id(variable) for variable in model.variables}
        found = {name: _part(model, name) for name in losses if isinstance(given, Mapping)}
        parts = {name: part.variables for name, part in found.items() if part is not None}
        phases = []
        for place, name, loss, one in own.one_each(losses, given):
            optimizer, variables = one if _is_pair(one) else (one, None)
            if not isinstance(optimizer, keras.optimizers.Optimizer):
                raise AgentError(
                    f"CustomAgent: {place} must be a Keras optimizer or a pair (optimizer, variables), since "
                    f"{type(model).__name__} is a Keras model, got {named(optimizer)}"
                )
            default = parts.get(name, model.trainable_variables if len(losses) == 1 else None)
            variables = _bound(optimizer, variables, default, place)
            shapes = [tuple(v.shape) for v in variables if id(v) not in mine]
            if shapes:
                raise own.strangers(place, type(optimizer).__name__, "variables", shapes, model)
            phases.append(OwnPhase(name, loss, optimizer, variables))
        own.check_parts(phases, parts)
        return phases

    @property
    def device(self) -> str:
        """Device of the first variable."""
        return str(self.model.variables[0].value.device)

    def tensors(self, tree: Any) -> Any:
        """See `own.OwnModel`."""
        with tf.device(self.device):
            return map_tree(tf.constant, tree)

    def numpy(self, value: Any) -> Array:
        """See `own.OwnModel`."""
        return value.numpy() if tf.is_tensor(value) else np.asarray(value)

    @contextmanager
    def acting(self) -> Iterator[None]:
        """See `own.OwnModel`; a frozen copy sets its weights in the model and restores the model's afterwards."""
        if self._states:
            self._reseeded()
        if self._kept is None:
            yield
            return
        before = self.model.get_weights()
        self.model.set_weights(self._kept)
        try:
            yield
        finally:
            self.model.set_weights(before)

    def learning(self) -> AbstractContextManager[Any]:
        """See `own.OwnModel`; Keras has no training mode: the losses call the model with `training=True` if needed."""
        return nullcontext()

    def outputs(self, obs: Any) -> Any:
        """See `own.OwnModel`."""
        out = self._outputs(obs)
        return out.numpy() if tf.is_tensor(out) else out

    def _call(self, obs: Any) -> Any:
        return self.model(obs, training=False)

    def statistics(self) -> str | None:
        """See `own.OwnModel`."""
        return statistics_of(self.model)

    def sent(self) -> Callable[[], OwnModel]:
        """See `own.OwnModel`."""
        places = {id(variable): i for i, variable in enumerate(self.model.variables)}
        steps = [
            (phase.loss, type(phase.optimizer), phase.optimizer.get_config(), [places[id(v)] for v in phase.variables])
            for phase in self.phases
        ]
        return partial(_made, self.model, dict(zip([p.name for p in self.phases], steps, strict=True)),
                       self.batch_type, self.limit)  # fmt: skip

    def losses_of(self, parts: Sequence[dict[str, Any]]) -> list[list[float]]:
        """See `own.OwnModel`; the losses say themselves whether the model is in training."""
        batches = [self.batch_type(**map_tree(self.tensors, part)) for part in parts]
        kept = [(variable, variable.numpy()) for variable in self.model.non_trainable_variables]
        with seeded(np.random.default_rng(0)):
            result = [[float(_loss(self.model, phase, batch)[0]) for batch in batches] for phase in self.phases]
        for variable, value in kept:
            variable.assign(value)
        return result

    def _steps(self, columns: Mapping[str, Any], share: float) -> Sequence[tuple[float, float, float, float]]:
        if self.sums is None:
            measured, errors = self._graph(dict(columns), None)
        else:
            measured, errors = self.sums.agreed(self._graph)(dict(columns), tf.constant(share, tf.float32))
        self.errors = None if errors is None else errors.numpy()
        return [tuple(row) for row in measured.numpy().tolist()]

    def _traced(self, columns: dict[str, Any], share: Tensor | None) -> tuple[Tensor, Tensor | None]:
        """Make a gradient step; return loss, norms and learning rate of each phase, [phases, 4], and rows' errors."""
        seed_graph()
        reseed(self._states)
        known = len(self.model.trainable_variables)
        measured, errors = zip(*(self._phase_step(phase, columns, share) for phase in self.phases), strict=True)
        new = self.model.trainable_variables[known:]
        check_added(self.model)
        if new:
            raise AgentError(
                f"CustomAgent: model {type(self.model).__name__} was not built: its loss made {len(new)} variables "
                "that no optimizer steps. Call the model once on a batch of observations before the agent is made"
            )
        return tf.stack(measured), next((each for each in errors if each is not None), None)

    def _phase_step(
        self, phase: OwnPhase, columns: dict[str, Any], share: Tensor | None
    ) -> tuple[Tensor, Tensor | None]:  # fmt: skip
        total, errors, grads = self._gradients(phase, columns) if share is None else self._summed(phase, columns, share)
        reached = [(tf.convert_to_tensor(g), v) for g, v in zip(grads, phase.variables, strict=True) if g is not None]
        norm = tf.linalg.global_norm([grad for grad, _ in reached])
        clipped, rate = norm, tf.convert_to_tensor(phase.optimizer.learning_rate)
        if self.limit is not None:
            clipped, factor = tf.minimum(norm, self.limit), tf.minimum(self.limit / (norm + 1e-6), 1.0)
            reached = [(grad * tf.cast(factor, grad.dtype), variable) for grad, variable in reached]
        phase.optimizer.apply(*(list(part) for part in zip(*reached, strict=True)))
        return tf.stack([tf.cast(tf.reshape(x, []), tf.float32) for x in (total, norm, clipped, rate)]), errors

    def _gradients(self, phase: OwnPhase, columns: dict[str, Any]) -> tuple[Tensor, Tensor | None, list[Any]]:
        """Return a phase's loss with penalties, the rows' errors, and gradients; None for variables without one."""
        sources = [variable.value for variable in phase.variables]
        with tf.GradientTape(persistent=True, watch_accessed_variables=False) as tape:
            tape.watch(sources)
            (loss, errors), added = _loss(self.model, phase, self.batch_type(**columns)), penalty(phase.variables)
            total = loss if added is None else loss + tf.cast(added, loss.dtype)
        grads = tape.gradient(loss, sources)
        if all(grad is None for grad in grads):
            raise own.no_gradient(phase, "variables")
        return total, errors, grads if added is None else tape.gradient(total, sources)

    def _summed(self, phase: OwnPhase, columns: dict[str, Any], share: Tensor) -> tuple[Tensor, None, list[Any]]:
        """Return what `_gradients` returns, over the rows of all parts, without errors.  share: see `OwnModel.step`."""
        reached: list[int] = []

        def of_part(part: dict[str, Any], share: Tensor) -> tuple[dict[str, Tensor], list[Tensor]]:
            total, _, grads = self._gradients(phase, part)
            reached[:] = [i for i, grad in enumerate(grads) if grad is not None]
            flat = [tf.reshape(tf.cast(tf.convert_to_tensor(grads[i]), tf.float32), [-1]) for i in reached]
            return {"loss": tf.reshape(tf.cast(total, tf.float32), [1]) * share}, [tf.concat(flat, 0)[None] * share]

        metrics, (flat,) = self.sums.over_parts(of_part, columns, share)
        variables = [phase.variables[i] for i in reached]
        pieces = tf.split(flat[0], [int(np.prod(v.shape, dtype=int)) for v in variables])
        grads: list[Any] = [None] * len(phase.variables)
        for i, piece, variable in zip(reached, pieces, variables, strict=True):
            grads[i] = tf.cast(tf.reshape(piece, variable.shape), variable.dtype)
        return metrics["loss"][0], None, grads

    def frozen(self) -> OwnModel:
        """See `own.OwnModel`; the copy shares the model and holds its own weights, which `acting` sets in the model.

        Not every Keras model can be copied.
        """
        twin = copy.copy(self)
        twin._kept = self.model.get_weights() if self._kept is None else self._kept
        return twin

    def state(self, arrays: dict[str, Array]) -> dict[str, Any]:
        """See `own.OwnModel`; the weights include the running statistics of layers."""
        weights = self.model.get_weights() if self._kept is None else self._kept
        names = [f"weights/{i}" for i in range(len(weights))]
        arrays.update({name: np.array(weight) for name, weight in zip(names, weights, strict=True)})
        optimizers = []
        for p, phase in enumerate(self.phases):
            variables = phase.optimizer.variables
            optimizers.append([f"optimizers/{p}/{i}" for i in range(len(variables))])
            arrays.update({n: np.array(v.numpy()) for n, v in zip(optimizers[-1], variables, strict=True)})
        return {"weights": names, "optimizers": optimizers}

    def load(self, info: Mapping[str, Any], arrays: Mapping[str, Array]) -> None:
        """See `own.OwnModel`; a frozen copy loads its own weights and does not change the shared model."""
        weights = [arrays[name] for name in info["weights"]]
        if self._kept is not None:
            self._kept = _fitting(weights, self.model.weights, "the model")
            return
        _take(self.model.weights, weights, "the model")
        for i, (phase, names) in enumerate(zip(self.phases, info["optimizers"], strict=True)):
            _take(phase.optimizer.variables, [arrays[name] for name in names], f"optimizers[{i}]")


def _loss(model: keras.Model, phase: OwnPhase, batch: Any) -> tuple[Tensor, Any]:
    """Return the scalar and the rows' errors of a phase's loss; raises AgentError if it is no scalar."""
    loss, errors = own.parted(phase.loss(model, batch))
    if not tf.is_tensor(loss) or loss.shape.num_elements() != 1:
        raise own.no_scalar(phase, f"a tensor of shape {loss.shape}" if tf.is_tensor(loss) else f"a {named(loss)}")
    return loss, errors


def _made(
    model: keras.Model, steps: Mapping[str, tuple[Loss, type[Any], dict[str, Any], list[int]]],
    batch_type: Callable[..., Any], limit: float | None,
) -> OwnModel:  # fmt: skip
    """Return a model with its losses and optimizers in another process.

    steps: name of a loss -> loss, class and configuration of its optimizer, and indices of the variables of this.
    """
    losses = {name: loss for name, (loss, *_) in steps.items()}
    optimizers = [
        (kind.from_config(config), [model.variables[i] for i in indices]) for _, kind, config, indices in steps.values()
    ]
    return OwnModel(model, losses, optimizers, batch_type=batch_type, max_grad_norm=limit)


def _take(variables: Sequence[Any], arrays: Sequence[Array], whose: str) -> None:
    """Assign arrays to variables; raises ValueError, without assigning any, if their number or shapes differ."""
    for variable, array in zip(variables, _fitting(arrays, variables, whose), strict=True):
        variable.assign(array)


def _fitting(arrays: Sequence[Array], variables: Sequence[Any], whose: str) -> list[Array]:
    """Return the arrays; raises ValueError unless their number and shapes are those of the variables."""
    expected, came = [tuple(v.shape) for v in variables], [array.shape for array in arrays]
    if expected != came:
        raise ValueError(f"{whose} has variables of shapes {expected}, saved were {came}")
    return list(arrays)


def _part(model: keras.Model, name: str) -> Any:
    """Return the attribute of this name, if it is a layer or model, else the layer of this name, or None."""
    held = getattr(model, name, None)
    if isinstance(held, keras.Layer):
        return held
    return next((layer for layer in getattr(model, "layers", ()) if layer.name == name), None)


def _is_pair(given: Any) -> bool:
    """Return whether `given` is a pair (optimizer, variables), not two optimizers."""
    return (
        isinstance(given, tuple) and len(given) == 2 and isinstance(given[1], list | tuple) and not _is_pair(given[1])
    )


def _bound(optimizer: Any, variables: Any, default: Any, place: str) -> list[Any]:
    """Return the variables of an optimizer and build it for them; raises AgentError if they are unknown.

    variables: the variables given with the optimizer, or None.
    default: the variables of an optimizer that was given without variables; None: they must be given.
    """
    kind = type(optimizer).__name__
    if variables is None and not optimizer.built:
        if default is None:
            raise AgentError(
                f"CustomAgent: {place} ({kind}) does not say which variables it steps. Where there are several, name "
                "losses and optimizers after parts of the model, or write pairs: "
                "optimizers=[(keras.optimizers.Adam(1e-3), model.actor.trainable_variables), ...]"
            )
        variables = default
    built = list(optimizer._trainable_variables) if optimizer.built else None
    if built is not None and variables is not None and {id(v) for v in built} != {id(v) for v in variables}:
        raise AgentError(
            f"CustomAgent: {place} ({kind}) was built for other variables than those beside it: give each optimizer "
            "once, with its own"
        )
    chosen = built if built is not None else [v for v in variables if v.trainable]
    if not chosen:
        raise AgentError(f"CustomAgent: {place} ({kind}) has no variables to train")
    if built is None:
        optimizer.build(chosen)
    return chosen
