"""Spaces of Gymnasium: action masks inside observations, bounds of actions, and descriptions as JSON."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from gymnasium import spaces

from marltrain.core.errors import SpecError
from marltrain.core.layout import LARGEST, Array, Space, size_of

_FARTHEST = np.iinfo(np.int64).max


def without_mask(space: Space) -> tuple[Space, bool]:
    """Return the observation space without "action_mask", and whether there was a mask.

    If only the key "observation" remains, as in PettingZoo's classic games, its space is returned.
    """
    if not isinstance(space, spaces.Dict) or "action_mask" not in space.spaces:
        return space, False
    rest = {name: inner for name, inner in space.items() if name != "action_mask"}
    return (rest["observation"] if list(rest) == ["observation"] else spaces.Dict(rest)), True


def split_mask(observation: Any) -> tuple[Any, Any]:
    """Split an observation and its "action_mask": return (observation as in `without_mask`, mask or None)."""
    if not isinstance(observation, Mapping) or "action_mask" not in observation:
        return observation, None
    rest = {key: value for key, value in observation.items() if key != "action_mask"}
    return (rest["observation"] if list(rest) == ["observation"] else rest), observation["action_mask"]


def check_actions(space: Space) -> None:
    """Raise SpecError for an empty action space, and for one with more than LARGEST choices or numbers."""
    size = size_of(space)
    if size == 0:
        raise SpecError(f"action space {space} is empty: there is nothing to do. Give it at least one number or choice")
    if size is not None and size > LARGEST:
        raise SpecError(
            f"action space {space} has {size:,} choices or numbers; at most {LARGEST:,} can be handled. Split it into "
            "several small choices (MultiDiscrete), or use a Box"
        )


def as_choices(space: Space) -> Space:
    """Return the MultiDiscrete space in which agents act for MultiBinary actions and a Box of integers.

    It has the same shape: one choice for each value of an entry, from its lowest value on. Other spaces are returned
    unchanged. Raises SpecError for an entry with more than LARGEST values.
    """
    if isinstance(space, spaces.MultiBinary):
        return spaces.MultiDiscrete(np.full(space.shape, 2))
    if not isinstance(space, spaces.Box) or space.dtype.kind not in "biu" or not space.low.size:
        return space
    low, high = space.low.astype(object), space.high.astype(object)  # integers without bounds
    sizes = np.asarray(high - low + 1, object)
    if sizes.max() > LARGEST or high.max() > _FARTHEST:
        raise SpecError(
            f"action space {space} has an entry of {int(sizes.max()):,} values, up to {int(high.max()):,}; at most "
            f"{LARGEST:,} can be handled. Narrow its bounds to the values that differ, or give a Box of floats and "
            "round them"
        )
    return spaces.MultiDiscrete(sizes.astype(np.int64), start=low.astype(np.int64))


def action_bounds(space: spaces.Box) -> tuple[Array, Array]:
    """Return the least and the greatest float32 inside a Box of floats, [A] float32 each.

    They may differ from the rounded bounds of a float64 Box: float32(0.1) > 0.1. If no float32 lies between two bounds,
    the rounded bounds are returned.
    """
    low, high = space.low.reshape(-1), space.high.reshape(-1)
    with np.errstate(over="ignore"):  # bounds beyond float32 become infinite, then its largest value
        least, greatest = low.astype(np.float32), high.astype(np.float32)
    up = np.where(least < low, np.nextafter(least, np.float32(np.inf)), least)
    down = np.where(greatest > high, np.nextafter(greatest, np.float32(-np.inf)), greatest)
    return np.where(up <= down, up, least), np.where(up <= down, down, greatest)


def describe_space(space: Space) -> dict[str, Any]:
    """Return a space as JSON values; equal spaces give equal descriptions. Raises SpecError for unsupported spaces."""
    if isinstance(space, spaces.Box):
        low, high = _bounds_json(space.low), _bounds_json(space.high)
        return {"type": "Box", "shape": list(space.shape), "dtype": str(space.dtype), "low": low, "high": high}
    if isinstance(space, spaces.Discrete):
        return {"type": "Discrete", "n": int(space.n), "start": int(space.start)}
    if isinstance(space, spaces.MultiDiscrete):
        return {"type": "MultiDiscrete", "nvec": space.nvec.tolist(), "start": space.start.tolist()}
    if isinstance(space, spaces.MultiBinary):
        return {"type": "MultiBinary", "n": space.n if isinstance(space.n, int) else list(space.n)}
    if isinstance(space, spaces.Dict):
        return {"type": "Dict", "spaces": [[key, describe_space(inner)] for key, inner in space.items()]}
    if isinstance(space, spaces.Tuple):
        return {"type": "Tuple", "spaces": [describe_space(inner) for inner in space.spaces]}
    raise SpecError(f"space {space} of type {type(space).__name__} has no description; see marltrain.core.layout")


def space_from(description: Mapping[str, Any]) -> Space:
    """Return the space of a description by `describe_space`; raises SpecError for anything else."""
    try:
        kind = description["type"]
        if kind == "Box":
            shape, dtype = tuple(description["shape"]), np.dtype(description["dtype"])
            if math.prod(shape) > LARGEST:
                raise ValueError(f"an observation or action of {math.prod(shape):,} numbers")
            low, high = (_bounds_array(description[side], shape, dtype) for side in ("low", "high"))
            return spaces.Box(low, high, shape, dtype.type)
        if kind == "Discrete":
            return spaces.Discrete(description["n"], start=description["start"])
        if kind == "MultiDiscrete":
            return spaces.MultiDiscrete(np.array(description["nvec"]), start=np.array(description["start"]))
        if kind == "MultiBinary":
            return spaces.MultiBinary(description["n"])
        if kind == "Dict":
            return spaces.Dict({key: space_from(inner) for key, inner in description["spaces"]})
        if kind == "Tuple":
            return spaces.Tuple([space_from(inner) for inner in description["spaces"]])
    except (KeyError, TypeError, ValueError) as error:
        raise SpecError(f"not the description of a space: {description!r:.200}: {error}") from error
    raise SpecError(f"not the description of a space: unknown type {kind!r}")


def _bounds_json(values: Array) -> Any:
    """Return a flat list of bounds, or one element if all are equal; infinities as strings, since JSON has none."""
    flat = values.reshape(-1).tolist()
    listed = flat[:1] if flat and all(v == flat[0] for v in flat) else flat
    return [v if np.isfinite(v) else ("inf" if v > 0 else "-inf") for v in listed]


def _bounds_array(listed: list[Any], shape: tuple[int, ...], dtype: Any) -> Array:
    values = np.array([float(v) if isinstance(v, str) else v for v in listed])
    return np.full(shape, values[0], dtype) if len(values) == 1 else values.astype(dtype).reshape(shape)
