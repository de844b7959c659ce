"""ONNX files and files of `torch.export`, both made from a `torch.nn.Module` of a policy."""

from __future__ import annotations

import copy
import logging
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from marltrain.core.errors import ConfigError, SaveError, error_text
from marltrain.core.layout import map_tree
from marltrain.policies.backends.torch import ops
from marltrain.policies.backends.torch.networks import ModuleNetwork, heads_of
from marltrain.policies.networks.specs import NetworkDefinition, Plan
from marltrain.tools.export.description import KEY, as_text
from marltrain.tools.export.function import PolicyFunction

OPSET = 18
"""Version of ONNX's operators, which runtimes since 2023 support."""
ROWS = "batch"
"""Name of the leading axis."""


class _Stacked(nn.Module):
    """The networks of one agent over a `Plan`."""

    def __init__(self, plan: Plan, weights: list[Any]) -> None:
        super().__init__()
        self.plan = plan
        self.weights = nn.ParameterList([nn.Parameter(torch.from_numpy(np.array(w)), False) for w in weights])

    def forward(self, *inputs: Any) -> list[Tensor]:
        return self.plan.forward(ops, list(self.weights), *inputs)


class _Own(nn.Module):
    """A copy of a user's module; see `ModuleNetwork`."""

    def __init__(self, module: nn.Module, definition: NetworkDefinition) -> None:
        super().__init__()
        self.module, self.definition = copy.deepcopy(module).cpu().eval(), definition

    def forward(self, *inputs: Any) -> list[Tensor]:
        out: Tensor = self.module(*(map_tree(lambda x: x[0], given) for given in inputs))
        return heads_of(out, self.definition)


class TorchPolicy(nn.Module):
    """A policy as a module: its inputs and outputs, in order, are those of `PolicyFunction`."""

    def __init__(self, function: PolicyFunction) -> None:
        """Copy the weights; raises ConfigError for a network of another framework."""
        super().__init__()
        self.function = function
        self.nets = nn.ModuleDict({name: _module(function, name) for name in function.networks})

    def forward(self, *given: Tensor) -> tuple[Tensor, ...]:
        """Return the outputs [B, ...] for inputs [B, ...]."""
        named = {port.name: x.unsqueeze(0) for port, x in zip(self.function.inputs, given, strict=True)}
        nets: Mapping[str, Callable[..., Any]] = dict(self.nets.items())
        result = self.function(ops, nets, named)
        return tuple(result[port.name][0].reshape(-1, *port.shape) for port in self.function.outputs)

    def exported(self) -> Any:
        """Return the program of `torch.export` without its lines of source; its number of rows may be any."""
        rows = torch.export.Dim(ROWS, min=1)
        given = tuple(torch.zeros(2, *p.shape, dtype=getattr(torch, p.dtype)) for p in self.function.inputs)
        with torch.no_grad(), _quiet():
            program = torch.export.export(self.eval(), given, dynamic_shapes=(tuple({0: rows} for _ in given),))
        for node in program.graph.nodes:
            node.meta.pop("stack_trace", None)  # holds paths of this machine
        return program


def write_torch(function: PolicyFunction, description: Mapping[str, Any], path: Path) -> None:
    """Write a file of `torch.export`."""
    with _quiet():
        torch.export.save(_traced(function), path, extra_files={f"{KEY}.json": as_text(description)})


def write_onnx(function: PolicyFunction, description: Mapping[str, Any], path: Path) -> None:
    """Write an ONNX file, whose metadata holds the description."""
    program = _traced(function)
    names = [[port.name for port in ports] for ports in (function.inputs, function.outputs)]
    try:
        with _quiet():
            result = torch.onnx.export(
                program, (), dynamo=True, verbose=False, input_names=names[0], output_names=names[1],
                opset_version=OPSET, external_data=False,
            )  # fmt: skip
    except Exception as error:  # the exporter raises exceptions of many kinds
        raise SaveError(f"{path}: this policy cannot become an ONNX file: {error_text(error)}") from error
    model: Any = result.model_proto  # type: ignore[union-attr]
    for value in (*model.graph.input, *model.graph.output):
        value.type.tensor_type.shape.dim[0].dim_param = ROWS
    model.metadata_props.add(key=KEY, value=as_text(description))
    model.producer_name = "marltrain"
    path.write_bytes(model.SerializeToString())


def _traced(function: PolicyFunction) -> Any:
    try:
        return TorchPolicy(function).exported()
    except (ConfigError, SaveError):
        raise
    except Exception as error:  # torch.export raises exceptions of many kinds, and a user's module any
        raise SaveError(f"export: torch.export cannot trace this policy: {error_text(error)}") from error


def _module(function: PolicyFunction, name: str) -> nn.Module:
    """Return a network as a module; raises ConfigError for a Keras model."""
    network, stacked = function.networks[name], function.weights_of(name)
    if stacked is not None:
        return _Stacked(*stacked)
    if isinstance(network, ModuleNetwork):
        return _Own(network.module, network.definition)
    raise ConfigError(
        f"export: the network {name!r} is a Keras model of your own, which PyTorch does not compute: take "
        'format="saved_model"'
    )


@contextmanager
def _quiet() -> Iterator[None]:
    """Silence warnings that PyTorch's exporters give about their own code, and its notes on other packages."""
    logger = logging.getLogger("torch.onnx")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(level)
