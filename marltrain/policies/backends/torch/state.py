"""State of torch objects as JSON values and numpy arrays: what a file can hold without unpickling."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from marltrain.errors import SaveError
from marltrain.layout import Array


def packed(tree: Any, name: str, arrays: dict[str, Array]) -> Any:
    """Return a `state_dict` as JSON values, its tensors moved to `arrays` under names that begin with `name`.

    Raises SaveError for a value that is neither a tensor, a number, a string, None nor a mapping or list of these.
    """
    if isinstance(tree, torch.Tensor | np.ndarray):
        array = tree.detach().cpu().numpy() if isinstance(tree, torch.Tensor) else tree
        arrays[name] = array.copy()
        return {"tensor" if isinstance(tree, torch.Tensor) else "array": name}
    if isinstance(tree, Mapping):
        return {"items": [[key, packed(value, f"{name}/{key}", arrays)] for key, value in tree.items()]}
    if isinstance(tree, list | tuple):
        kind = "list" if isinstance(tree, list) else "tuple"
        return {kind: [packed(value, f"{name}/{i}", arrays) for i, value in enumerate(tree)]}
    if isinstance(tree, np.generic):
        return tree.item()
    if tree is None or isinstance(tree, bool | int | float | str):
        return tree
    raise SaveError(f"{name} is a {type(tree).__name__} ({tree!r}): only tensors, numbers and strings can be saved")


def unpacked(tree: Any, arrays: Mapping[Any, Array]) -> Any:
    """Return the `state_dict` that `packed` took apart; raises SaveError for anything else."""
    if not isinstance(tree, dict):
        return tree
    kind, value = next(iter(tree.items())) if len(tree) == 1 else ("", [])
    if kind in ("tensor", "array") and value in arrays:
        return torch.from_numpy(arrays[value].copy()) if kind == "tensor" else arrays[value].copy()
    if kind == "items":
        return {key: unpacked(inner, arrays) for key, inner in value}
    if kind in ("list", "tuple"):
        inner = [unpacked(item, arrays) for item in value]
        return inner if kind == "list" else tuple(inner)
    raise SaveError(f"not the state of a torch object: {str(tree)[:80]}")
