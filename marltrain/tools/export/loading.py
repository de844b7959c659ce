"""Read an exported file: `load_exported`; the policy then runs in onnxruntime, PyTorch or TensorFlow."""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from marltrain.core.encoding import encoded
from marltrain.core.errors import ConfigError, SaveError, error_text
from marltrain.core.extras import install, is_installed
from marltrain.core.layout import Array, Layout
from marltrain.core.spaces import space_from, without_mask
from marltrain.storage.files import path_of
from marltrain.tools.export.description import KEY, checked_description, ports_of
from marltrain.tools.export.function import CARRY, LEGAL, PLAYER, UNIFORM, observation_ports

ONNX, TORCH, SAVED_MODEL = "onnx", "torch", "saved_model"
SUFFIXES = {ONNX: ".onnx", TORCH: ".pt2", SAVED_MODEL: ""}
"""Formats -> how the names of their files end; a SavedModel is a folder."""


class ExportedPolicy(ABC):
    """A policy from a file.

    description: what the file says about it: algorithm, environment, players, spaces, versions, inputs and outputs.
    inputs, outputs: names, shapes without the leading axis B, and dtypes.
    """

    def __init__(self, path: Path, description: dict[str, Any]) -> None:
        """Read the ports of the description."""
        self.path, self.description = path, description
        self.inputs, self.outputs = (ports_of(path, description, which) for which in ("inputs", "outputs"))
        self.observation_space = space_from(description["observation_space"])
        self.action_space = space_from(description["action_space"])
        self._layout = Layout(without_mask(self.observation_space)[0], int(description["frame_stack"]))

    @abstractmethod
    def run(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        """Return the outputs by name, [B, ...], for all inputs by name, [B, ...]."""

    def act(
        self,
        observation: Any,
        legal: Any = None,
        carry: Mapping[str, Array] | None = None,
        *,
        player: str | None = None,
        rng: np.random.Generator | None = None,
    ) -> tuple[Any, dict[str, Array]]:
        """Return (action, next carry) for one observation, or for a batch with a leading axis B.

        observation: in the environment's format, with its "action_mask" or without.  legal: [A] or [B, A] bool; None:
            that of the observation, or all.
        carry: None at the first decision of an episode, then what the last call returned.
        player: of a policy that tells players apart.  rng: generator of a policy that samples.
        Raises SpecError for an observation that does not fit, ConfigError for a missing `player` or `rng`.
        """
        inputs, batched = self.arrays(observation, legal)
        rows = len(next(iter(inputs.values())))
        names = {port.name: port for port in self.inputs}
        if PLAYER in names:
            inputs[PLAYER] = np.full(rows, self._number_of(player))
        if UNIFORM in names:
            if rng is None:
                raise ConfigError(f"{self.path}: the policy samples its actions: give act a generator, rng=")
            inputs[UNIFORM] = rng.random((rows, *names[UNIFORM].shape), np.float32)
        for name, port in names.items():
            if name.startswith(CARRY):
                inputs[name] = np.zeros((rows, *port.shape), np.float32) if not carry else carry[name]
        result = self.run(inputs)
        action = result["action"]
        following = {name.removeprefix("next_"): result[name] for name in result if name.startswith(f"next_{CARRY}")}
        return (action if batched else action[0]), following

    def arrays(self, observation: Any, legal: Any = None) -> tuple[dict[str, Array], bool]:
        """Return the inputs of observations and their legal actions, and whether they had a leading axis."""
        obs, mask, batched = encoded(self._layout, observation, legal, self.action_space)
        parts = self._layout.parts
        whole = self._layout.decode(obs)
        inputs = {}
        for part, port in zip(parts, observation_ports(parts), strict=True):
            value = whole
            for key in part.path:
                value = value[key]
            inputs[port.name] = np.ascontiguousarray(value, port.dtype)
        masks = next((port for port in self.inputs if port.name == LEGAL), None)
        if masks is not None:
            rows = len(next(iter(inputs.values())))
            inputs[LEGAL] = np.ones((rows, *masks.shape), bool) if mask is None else mask
        return inputs, batched

    def _number_of(self, player: str | None) -> int:
        players = self.description["identity"]
        if player not in players:
            raise ConfigError(f"{self.path}: act needs player=, one of {', '.join(players)}, got {player!r}")
        return int(players.index(player))

    def __repr__(self) -> str:
        """Return the file and what it holds."""
        return f"{type(self).__name__}({str(self.path)!r}, algorithm={self.description['algorithm']!r})"


class OnnxPolicy(ExportedPolicy):
    """A policy in onnxruntime."""

    def __init__(self, path: Path) -> None:
        """Open a session on one thread; raises SaveError for another file."""
        require("onnxruntime", "reads ONNX files")
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        try:
            self._session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
        except Exception as error:  # onnxruntime has an exception class for each failure
            raise SaveError(f"{path}: onnxruntime cannot read it: {error_text(error)}") from error
        text = self._session.get_modelmeta().custom_metadata_map.get(KEY)
        super().__init__(path, checked_description(path, text))

    def run(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        """See `ExportedPolicy`."""
        names = [port.name for port in self.outputs]
        return dict(zip(names, self._session.run(names, dict(inputs)), strict=True))


class TorchExportedPolicy(ExportedPolicy):
    """A policy of `torch.export` in PyTorch."""

    def __init__(self, path: Path) -> None:
        """Load the program; raises SaveError for another file."""
        import torch

        held = {f"{KEY}.json": ""}
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                program = torch.export.load(path, extra_files=held)
        except Exception as error:  # PyTorch raises exceptions of many kinds
            raise SaveError(f"{path}: torch.export cannot read it: {error_text(error)}") from error
        super().__init__(path, checked_description(path, held[f"{KEY}.json"]))
        self._module = program.module()

    def run(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        """See `ExportedPolicy`."""
        import torch

        with torch.no_grad():
            result = self._module(*(torch.from_numpy(np.array(inputs[port.name])) for port in self.inputs))
        return {port.name: x.numpy() for port, x in zip(self.outputs, result, strict=True)}


class SavedModelPolicy(ExportedPolicy):
    """A policy of a SavedModel in TensorFlow."""

    def __init__(self, path: Path) -> None:
        """Load the folder; raises SaveError for another folder."""
        require("tensorflow", "reads SavedModels", extra="tensorflow")
        file = path / f"{KEY}.json"
        text = file.read_text(encoding="utf-8") if file.is_file() else None
        description = checked_description(path, text)
        import tensorflow as tf

        try:
            self._loaded = tf.saved_model.load(str(path))
            self._serve = self._loaded.signatures["serving_default"]
        except Exception as error:  # TensorFlow raises exceptions of many kinds
            raise SaveError(f"{path}: TensorFlow cannot read it: {error_text(error)}") from error
        super().__init__(path, description)

    def run(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        """See `ExportedPolicy`."""
        import tensorflow as tf

        result = self._serve(**{port.name: tf.constant(inputs[port.name]) for port in self.inputs})
        return {port.name: result[port.name].numpy() for port in self.outputs}


def load_exported(path: str | Path) -> ExportedPolicy:
    """Read a policy that `export` wrote: an ONNX file, a file of torch.export, or the folder of a SavedModel.

    Files may run code when they are loaded, as files of PyTorch and TensorFlow can: load only those that you trust.
    Raises SaveError for another file and for one of another format version, ConfigError if the runtime is missing.
    """
    found = path_of(path)
    if not found.exists():
        raise SaveError(f"{found}: there is no such file")
    if found.is_dir():
        return SavedModelPolicy(found)
    if found.suffix == SUFFIXES[TORCH]:
        return TorchExportedPolicy(found)
    if found.suffix == SUFFIXES[ONNX]:
        return OnnxPolicy(found)
    raise SaveError(f"{found}: not an exported policy: its name ends neither in .onnx nor in .pt2, and it is no folder")


def require(module: str, what: str, extra: str = "export") -> None:
    """Raise ConfigError if an optional package is missing."""
    if not is_installed(module):
        raise ConfigError(f"export: {module}, which {what}, is not installed: {install(extra)}")
