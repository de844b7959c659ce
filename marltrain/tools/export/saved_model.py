"""Folders of TensorFlow's SavedModel."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import tensorflow as tf

from marltrain.core.errors import ConfigError
from marltrain.policies.backends.tensorflow import ops
from marltrain.policies.backends.tensorflow.networks import ModelNetwork
from marltrain.tools.export.description import KEY, as_text
from marltrain.tools.export.function import PolicyFunction, Port

SIGNATURE = "serving_default"
"""Name of the signature that computes the policy."""


class _Policy(tf.Module):  # type: ignore[misc]
    """A policy as a module with one function of named tensors."""

    def __init__(self, function: PolicyFunction) -> None:
        super().__init__()
        self.function = function
        self.kept: list[Any] = []  # variables and models, so that they are saved
        self.nets = {name: self._net(name) for name in function.networks}

    def _net(self, name: str) -> Callable[..., Any]:
        network, stacked = self.function.networks[name], self.function.weights_of(name)
        if stacked is not None:
            plan, weights = stacked
            variables = [tf.Variable(weight, trainable=False) for weight in weights]
            self.kept.append(variables)
            return lambda *inputs: plan.forward(ops, [variable.value() for variable in variables], *inputs)
        if isinstance(network, ModelNetwork):
            model, own = network.model, network
            self.kept.append(model)
            return lambda *inputs: own.heads(model(*(tf.nest.map_structure(_first, x) for x in inputs), training=False))
        raise ConfigError(
            f"export: the network {name!r} is a PyTorch module of your own, which TensorFlow does not compute: take "
            'format="onnx" or "torch"'
        )

    def outputs(self, inputs: Mapping[str, Any]) -> dict[str, Any]:
        """Return the outputs [B, ...] for inputs [B, ...]."""
        result = self.function(ops, self.nets, {name: x[tf.newaxis] for name, x in inputs.items()})
        ports = self.function.outputs
        return {p.name: tf.reshape(result[p.name][0], [-1, *p.shape], name=p.name) for p in ports}


def _first(x: Any) -> Any:
    return x[0]


def write_saved_model(function: PolicyFunction, description: Mapping[str, Any], path: Path) -> None:
    """Write the folder, with the description in a file of its own."""
    policy = _Policy(function)
    ports = function.inputs

    def serve(*given: Any) -> dict[str, Any]:
        return policy.outputs({port.name: x for port, x in zip(ports, given, strict=True)})

    served = tf.function(serve, input_signature=[_spec(port) for port in ports], autograph=False)
    policy.served = served
    tf.saved_model.save(policy, str(path), signatures={SIGNATURE: served})
    (path / f"{KEY}.json").write_text(as_text(description), encoding="utf-8")


def _spec(port: Port) -> tf.TensorSpec:
    return tf.TensorSpec([None, *port.shape], port.dtype, port.name)
