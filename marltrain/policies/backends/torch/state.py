"""State of torch objects as JSON values and numpy arrays, which a file holds without pickling."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from marltrain.core.errors import SaveError
from marltrain.core.layout import Array
from marltrain.storage.checks import MOST_COUNTED, finite, within

NOT_NEGATIVE = {"step", "exp_avg_sq", "max_exp_avg_sq", "square_avg", "sum", "var", "count"}
"""Names of values in torch's optimizers and running statistics that are never negative."""


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
    """Return the `state_dict` from a result of `packed`; raises SaveError for anything else."""
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


def checked(saved: Any, now: Any, where: str) -> Any:
    """Return the saved `state_dict`; raises SaveError, with the path of the value, for impossible values.

    now: the `state_dict` of the object that loads it. A number must be finite if the number in `now` is finite, since a
    model may hold infinities. Step counts and means of squares must not be negative. A number must not replace text.
    """
    if isinstance(saved, Mapping):
        known = now if isinstance(now, Mapping) else {}
        for key, value in saved.items():
            checked(value, known.get(key), f"{where}/{key}")
    elif isinstance(saved, list | tuple):
        for i, value in enumerate(saved):
            checked(value, now[i] if isinstance(now, list | tuple) and i < len(now) else None, f"{where}/{i}")
    elif isinstance(saved, torch.Tensor | np.ndarray):
        own = None if now is None else np.asarray(now.detach().cpu() if isinstance(now, torch.Tensor) else now)
        _check_numbers(np.asarray(saved), own, where)
    elif isinstance(now, bool | int | float | str) and _kind(saved) is not _kind(now):
        raise SaveError(f"{where} must be of type {type(now).__name__}, got {saved!r:.80}")
    return saved


def _check_numbers(saved: Array, now: Array | None, where: str) -> None:
    if now is None or now.dtype.kind != "f" or np.isfinite(now).all():
        finite(where, saved)
    name = where.rpartition("/")[2]
    if name in NOT_NEGATIVE or name.endswith("running_var"):
        within(where, saved, 0, MOST_COUNTED if name == "step" else np.inf)


def _kind(value: Any) -> type:
    """Return the type of a value, with float for all numbers."""
    return float if type(value) in (int, float) else type(value)
