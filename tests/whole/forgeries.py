"""Alterations of a checkpoint, drawn at random: the nastier the better."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

WHOLE = (-(2**63), -(2**62), -(2**31), -(10**9), -1000, -130, -66, -65, -4, -3, -2, -1, 0, 1, 2, 3, 7, 63, 64, 65, 100,
         255, 1000, 10**6, 2**31 - 1, 2**31, 2**53, 2**62, 2**63 - 1)  # fmt: skip
REAL = (np.nan, np.inf, -np.inf, 1e308, -1e308, 3e38, 1e30, -1e30, 1e10, 1e-45, 0.0, -1.0, 0.5, 1.0)
DTYPES = (np.int8, np.int32, np.int64, np.uint8, np.uint64, np.float16, np.float32, np.float64, np.bool_)
JSON: tuple[Any, ...] = (
    *WHOLE, 2**64, -(2**64), 10**30, 10**400, 0.0, -1.0, 0.5, 1e308, -1e308, 1e-300, 1.0, 1e30, "", "0", "1", "nan",
    "x" * 1000, "\ud800", "\0", "../..", "memory/0/rows/next", True, False, None, [], {}, [[]], [0], [None], [1, 2],
    {"a": 1}, {"dict": {}}, {"tuple": []}, {"tuple": [None]}, {"dict": []}, {"": {"": {}}}, [[[[[[0]]]]]],
    {"state": 1, "inc": 2}, {"float": "nan"}, {"float": "x"}, {"float": "inf"}, {"mapping": {}}, {"mapping": 1},
)  # fmt: skip


def altered(
    told: dict[str, Any], info: dict[str, Any], arrays: dict[str, dict[str, np.ndarray]], rng: np.random.Generator
) -> str:
    """Alter a checkpoint somewhere, in place; return where and how.

    told: its manifest.  info: its JSON values.  arrays: those of each file.
    """
    kind = rng.choice(["memory", "run", "info", "both", "told"], p=[0.38, 0.25, 0.29, 0.05, 0.03])
    if kind in ("memory", "run"):
        file = next(name for name in arrays if name.startswith(str(kind)))
        return f"{file}: {array_altered(arrays[file], rng)}"
    if kind == "info":
        return f"state.json: {json_altered(info, rng)}"
    if kind == "told":
        return f"checkpoint.json: {json_altered(told, rng)}"
    name, value = str(rng.choice(["env_steps", "episodes"])), int(rng.choice(np.array(WHOLE, object)))
    told[name] = value
    if isinstance(info.get("counters"), dict):
        info["counters"][name] = value  # as a forger would, in both
    return f"{name} = {value}, in state.json and checkpoint.json"


def array_altered(arrays: dict[str, np.ndarray], rng: np.random.Generator) -> str:
    """Alter one array, or its place."""
    name = str(rng.choice(sorted(arrays)))
    old = arrays[name]
    how = rng.choice(["entries", "off by one", "all", "dtype", "shape", "missing", "swapped", "bytes"],
                     p=[0.44, 0.16, 0.08, 0.08, 0.08, 0.04, 0.08, 0.04])  # fmt: skip
    if how == "missing":
        del arrays[name]
        return f"{name} is gone"
    if how == "swapped":
        other = another(arrays, name, rng)
        arrays[name], arrays[other] = arrays[other], arrays[name]
        return f"{name} and {other} are swapped"
    with np.errstate(all="ignore"):
        result = {"entries": entries, "off by one": off_by_one, "all": everything, "dtype": of_dtype, "shape": of_shape,
                "bytes": any_bytes}[str(how)](old.copy(), rng)  # fmt: skip
    arrays[name] = result
    where = [np.argwhere(result != old)[:3].tolist(), result[result != old][:3]] if result.shape == old.shape else ""
    return f"{name} {old.dtype}{old.shape}, {how}: {result.dtype}{result.shape} {where}"


def another(arrays: Mapping[str, np.ndarray], name: str, rng: np.random.Generator) -> str:
    """Return the name of another array, of the same dtype and shape where there are some."""
    own = arrays[name]
    twins = [n for n, a in arrays.items() if n != name and (a.dtype, a.shape) == (own.dtype, own.shape)]
    return str(rng.choice(twins if twins and rng.random() < 0.7 else sorted(arrays)))


def replaced(dtype: np.dtype[Any], rng: np.random.Generator) -> Any:
    """Draw a value that the dtype can hold."""
    if dtype.kind == "f":
        return rng.choice(REAL)
    if dtype.kind == "b":
        return bool(rng.integers(2))
    limits = np.iinfo(dtype)
    return min(max(int(rng.choice(np.array(WHOLE, object))), int(limits.min)), int(limits.max))


def entries(array: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Replace up to three entries."""
    flat = array.reshape(-1)
    for at in rng.integers(len(flat), size=rng.integers(1, 4)) if len(flat) else ():
        flat[at] = ~flat[at] if array.dtype == bool else replaced(array.dtype, rng)
    return array


def off_by_one(array: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Move one entry, or all, by one."""
    flat, step = array.reshape(-1), int(rng.choice([-1, 1]))
    places = slice(None) if not len(flat) or rng.random() < 0.3 else slice(at := int(rng.integers(len(flat))), at + 1)
    flat[places] = ~flat[places] if array.dtype == bool else flat[places] + np.array(step).astype(array.dtype)
    return array


def everything(array: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Replace all entries by one value."""
    array[...] = replaced(array.dtype, rng)
    return array


def of_dtype(array: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Change the dtype."""
    return array.astype(rng.choice(np.array(DTYPES, object)))


def of_shape(array: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Change the shape."""
    shapes = [
        array.reshape(-1), array[None], array[..., None], array.T, array[:0] if array.ndim else array.reshape(1),
        np.resize(array, (*array.shape[:-1], array.shape[-1] + 1)) if array.ndim else np.zeros((2, 2), array.dtype),
        np.concatenate([array, array]) if array.ndim else array, array[1:] if array.ndim else array,
        np.zeros((), array.dtype), np.zeros(0, array.dtype),
    ]  # fmt: skip
    return np.ascontiguousarray(shapes[rng.integers(len(shapes))])


def any_bytes(array: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Write any bytes over some of the array's own: truth values of 255, and numbers that nobody thinks of."""
    if not array.size:
        return array
    array = np.atleast_1d(array)
    raw = array.view(np.uint8).reshape(-1)
    raw[rng.integers(len(raw), size=4)] = rng.integers(256, size=4)
    return array


def json_altered(value: Any, rng: np.random.Generator) -> str:
    """Alter JSON values somewhere inside: half of the time in a leaf."""
    where, place = [], value
    while True:
        keys = list(place) if isinstance(place, dict) else list(range(len(place)))
        key = keys[rng.integers(len(keys))]
        where.append(key)
        inner = place[key]
        if not (isinstance(inner, dict | list) and inner) or rng.random() < 0.12:
            break
        place = inner
    how = rng.choice(["replaced", "missing", "near", "swapped"], p=[0.6, 0.1, 0.2, 0.1])
    if how == "missing":
        del place[key]
    elif how == "near" and type(inner) in (int, float):
        place[key] = [inner + 1, inner - 1, -inner, float(inner), str(inner), [inner], bool(inner)][rng.integers(7)]
    elif how == "swapped":
        other = keys[rng.integers(len(keys))]
        place[key], place[other] = place[other], place[key]
    else:
        place[key] = JSON[rng.integers(len(JSON))]
    return f"{where}, {how}: {inner!s:.60} -> {str(place[key])[:60] if how != 'missing' else 'nothing'}"
