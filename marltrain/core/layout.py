"""Layout of observations as arrays: one float32 vector, and uint8 images.

All parts of an observation but images are flattened into one float32 vector with named parts (Discrete one-hot).
An image is a uint8 Box of rank 2 or 3 and stays unchanged, in its bounds; with frames stacked on axis 0 its rank is one
higher.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain, count
from typing import Any

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from marltrain.core.errors import SpecError
from marltrain.core.values import Values

Array = NDArray[Any]
Obs = NDArray[Any] | dict[str, NDArray[Any]]
"""One array, or a mapping from parts to arrays if there are images and other parts. Leading axes are shared."""
Space = spaces.Space[Any]
Allocate = Callable[[tuple[int, ...], Any], Array]

VECTOR = "vector"
NUMBERS = "biuf"
"""Kinds of dtypes for real numbers and bool values."""
LARGEST = 2**26
"""Maximum number of values of an observation, and of choices of an action: 8,192 x 8,192."""


def map_tree(function: Callable[[Any], Any], tree: Any) -> Any:
    """Apply a function to an array, or to each array of nested mappings; None stays None.

    Returns the results in the same form. Arrays may also be tensors.
    """
    if isinstance(tree, dict):  # without a call for each array
        return {
            name: map_tree(function, inner) if isinstance(inner, dict) else None if inner is None else function(inner)
            for name, inner in tree.items()
        }
    return None if tree is None else function(tree)


def arrays_of(obs: Obs) -> list[Array]:
    """Return the arrays of an observation, in their fixed order."""
    return list(obs.values()) if isinstance(obs, dict) else [obs]


def assign_obs(target: Obs, index: Any, value: Obs) -> None:
    """Write `target[index] = value`, array by array, in place."""
    for into, array in zip(arrays_of(target), arrays_of(value), strict=True):
        into[index] = array


@dataclass(frozen=True)
class Part:
    """One leaf of an observation space and its place in the arrays.

    name: its path in the space, joined by dots ("" for a space that is a single leaf). Two parts may have one name.
    image: whether it is kept as an image.  array: the name of its array, `VECTOR` or one of its own for an image.
    start, stop: its columns in the vector; 0, 0 for an image.
    stack: number of frames of an image on axis 0; 1 for a single frame.
    """

    name: str
    path: tuple[str | int, ...]
    space: Space
    image: bool
    array: str
    start: int = 0
    stop: int = 0
    stack: int = 1

    @property
    def where(self) -> str:
        """The part's name for messages."""
        return f" part {self.name!r}" if self.name else ""

    @cached_property
    def values(self) -> Values:
        """The allowed values."""
        return Values(self.space, image=self.image)

    def check(self, array: Array, *, batched: bool, bounds: bool) -> None:
        """Raise SpecError for values that their conversion to arrays would change; see `Values.fault`."""
        if fault := self.values.fault(self.where, array, batched=batched, bounds=bounds):
            raise SpecError(fault)


def _leaves(space: Space, path: tuple[str | int, ...] = ()) -> list[tuple[tuple[str | int, ...], Space]]:
    if isinstance(space, spaces.Dict):
        return [leaf for key, inner in space.items() for leaf in _leaves(inner, (*path, key))]
    if isinstance(space, spaces.Tuple):
        return [leaf for i, inner in enumerate(space.spaces) for leaf in _leaves(inner, (*path, i))]
    return [(path, space)]


def is_image(space: Space, stack: int) -> bool:
    """Return whether a leaf space is kept as an image; stack: number of frames on axis 0 of images."""
    if not isinstance(space, spaces.Box) or space.dtype != np.uint8:
        return False
    stacked = stack > 1 and space.shape[:1] == (stack,)
    return len(space.shape) - stacked in (2, 3)


def distinct(
    names: Sequence[str], taken: Sequence[str] = (), mark: str = "~", fold: Callable[[str], str] = str
) -> list[str]:
    """Return names, in order, that differ from each other and from those that are taken.

    A name that is not free gets the mark and the first number from 2 on that makes it free.
    fold: makes equal what must not differ only in this, such as `str.lower`.
    """
    used, result = set(map(fold, taken)), list[str]()
    for name in names:
        numbered = (f"{name}{mark}{i}" for i in count(2))
        free = next(each for each in chain([name], numbered) if fold(each) not in used)
        used.add(fold(free))
        result.append(free)
    return result


def size_of(space: Space) -> int | None:
    """Return the number of array values of a leaf space, or of choices of an action; None for other spaces."""
    if isinstance(space, spaces.Box | spaces.MultiBinary):
        return math.prod(space.shape or ())
    if isinstance(space, spaces.Discrete):
        return int(space.n)
    if isinstance(space, spaces.MultiDiscrete):
        return sum(map(int, space.nvec.reshape(-1)))
    return None


def _width(space: Space, path: tuple[str | int, ...]) -> int:
    size = size_of(space)
    if size is not None:
        return size
    raise SpecError(
        f"observation space{' part ' + repr(path) if path else ''} is a {type(space).__name__}; marltrain takes Box, "
        "Discrete, MultiDiscrete, MultiBinary, and Dict and Tuple of these. Wrap the environment to give one of them."
        + (" gymnasium.wrappers.FilterObservation(env, [...]) keeps the named parts of a Dict only." if path else "")
    )


def _one_hot(value: Array, n: int) -> Array:
    return (value[..., None] == np.arange(n)).astype(np.float32)


class Layout:
    """The arrays that represent observations of one space.

    shapes: array name -> (shape without leading axes, dtype). A single array is used without a mapping.
    """

    def __init__(self, space: Space, stack: int = 1) -> None:
        """Compute the layout of a space; raises SpecError for unsupported, empty or too large spaces.

        stack: number of frames on axis 0 of its images.
        """
        parts: list[Part] = []
        column, leaves = 0, _leaves(space)
        names = [".".join(map(str, path)) for path, _ in leaves]
        images = [name or "image" for name, (_, leaf) in zip(names, leaves, strict=True) if is_image(leaf, stack)]
        arrays = iter(distinct(images, [VECTOR]))
        for name, (path, leaf) in zip(names, leaves, strict=True):
            if is_image(leaf, stack):
                frames = stack if stack > 1 and leaf.shape is not None and leaf.shape[0] == stack else 1
                parts.append(Part(name, path, leaf, True, next(arrays), stack=frames))
            else:
                width = _width(leaf, path)
                parts.append(Part(name, path, leaf, False, VECTOR, column, column + width))
                column += width
        empty = [part for part in parts if part.image and math.prod(part.space.shape or ()) == 0]
        if empty or not (column or any(part.image for part in parts)):
            where = empty[0].where if empty else ""
            raise SpecError(
                f"observation space {space}{where} holds no numbers: there is nothing to observe. Leave it out, or "
                "give the player something to see, for example a constant Box(0, 1, (1,))"
            )
        if column > LARGEST:
            raise SpecError(
                f"observation space {space} becomes {column:,} numbers; at most {LARGEST:,} can be handled. Discrete "
                "spaces become one number for each value (one-hot): give a large one as binary digits (MultiBinary), "
                "or as a Box"
            )
        self.space = space
        self.stack = stack
        self.parts = tuple(parts)
        self.vector_size = column

    @cached_property
    def shapes(self) -> dict[str, tuple[tuple[int, ...], type]]:
        """Array name -> (shape, dtype): the vector first, then the images."""
        found: dict[str, tuple[tuple[int, ...], type]] = {}
        if self.vector_size:
            found[VECTOR] = ((self.vector_size,), np.float32)
        for part in self.images:
            found[part.array] = (tuple(part.space.shape or ()), np.uint8)
        return found

    @cached_property
    def images(self) -> tuple[Part, ...]:
        """The image parts, in order."""
        return tuple(part for part in self.parts if part.image)

    @property
    def single(self) -> bool:
        """Whether an observation is one array and not a mapping."""
        return len(self.shapes) == 1

    @cached_property
    def bounds(self) -> tuple[Array, Array] | None:
        """Lowest and highest values of the vector, [V] float32 each; None if all parts are unbounded."""
        low = np.full(self.vector_size, -np.inf, np.float32)
        high = np.full(self.vector_size, np.inf, np.float32)
        for part in self.parts:
            place = slice(part.start, part.stop)
            if isinstance(part.space, spaces.MultiBinary):
                low[place], high[place] = 0, 1
            elif not part.image and isinstance(part.space, spaces.Box):
                low[place], high[place] = _bounds_of(part.space)
        return None if np.isneginf(low).all() and np.isposinf(high).all() else (low, high)

    def empty(self, leading: tuple[int, ...], allocate: Allocate = np.zeros) -> Obs:
        """Allocate arrays for `leading` axes of observations."""
        result = {name: allocate((*leading, *shape), dtype) for name, (shape, dtype) in self.shapes.items()}
        return next(iter(result.values())) if self.single else result

    def encode(self, observation: Any, *, bounds: bool = True) -> tuple[Obs, bool]:
        """Convert an observation, or a batch with one leading axis, to arrays; return them, and whether it is a batch.

        bounds: whether values that their arrays show are checked, too; `contract` checks these of many environments.
        Raises SpecError if a part is missing, has another shape than its space, or holds values that would change.
        """
        vectors: list[Array] = []
        images: dict[str, Array] = {}
        batched: bool | None = None
        for part in self.parts:
            value, has_batch = self._leaf(part, _take(observation, part), bounds=bounds)
            if batched is not None and has_batch != batched:
                raise SpecError(f"observation{part.where}: some parts carry a batch axis and some do not")
            batched = has_batch
            if part.image:
                images[part.array] = value
            else:
                vectors.append(value)
        result: dict[str, Array] = {}
        if vectors:
            result[VECTOR] = vectors[0] if len(vectors) == 1 else np.concatenate(vectors, -1)
        result.update(images)
        return (next(iter(result.values())) if self.single else result), bool(batched)

    def write(self, observation: Any, target: Obs, index: Any) -> None:
        """Write one observation into `target[index]`; raises SpecError if it does not fit the space.

        Values out of range that the array shows are not checked; see `encode`.
        """
        if self._plain:  # fast path of the most common case, for every environment step
            value = np.asarray(observation)
            if value.shape != self.parts[0].space.shape or value.dtype.kind not in NUMBERS:
                raise SpecError(_misfit(self.parts[0], value))
            if self._whole and value.dtype.kind == "f":
                self.parts[0].check(value, batched=False, bounds=False)
            target[index] = value if value.ndim == 1 else value.reshape(-1)
            return
        encoded, batched = self.encode(observation, bounds=False)
        if batched:
            raise SpecError(f"observation has one axis more than its space {self.space}")
        assign_obs(target, index, encoded)

    def decode(self, obs: Obs) -> Any:
        """Convert arrays [B, ...] back to the structure of the space, with leading axis B."""
        arrays = obs if isinstance(obs, dict) else {next(iter(self.shapes)): obs}
        values = {part.path: self._unpack(part, arrays) for part in self.parts}
        return _assemble(self.space, values)

    @cached_property
    def _plain(self) -> bool:
        return isinstance(self.space, spaces.Box) and not self.parts[0].image  # (not a mapping with a single part)

    @cached_property
    def _whole(self) -> bool:
        return self._plain and not np.issubdtype(self.space.dtype, np.floating)

    def _leaf(self, part: Part, value: Any, *, bounds: bool) -> tuple[Array, bool]:
        array, shape = np.asarray(value), tuple(part.space.shape or ())
        if array.dtype.kind not in NUMBERS:
            raise SpecError(_misfit(part, array))
        if array.shape == shape:
            batched = False
        elif array.shape[1:] == shape and array.ndim == len(shape) + 1:
            batched = True
        else:
            raise SpecError(_misfit(part, array))
        part.check(array, batched=batched, bounds=bounds)
        if part.image:
            return array.astype(np.uint8, copy=False), batched
        lead = array.shape[:1] if batched else ()
        if isinstance(part.space, spaces.Discrete):
            return _one_hot(array - part.space.start, int(part.space.n)), batched
        if isinstance(part.space, spaces.MultiDiscrete):
            start = part.space.start.reshape(-1)
            flat = array.reshape(*lead, -1) - start
            hot = [_one_hot(flat[..., i], int(n)) for i, n in enumerate(part.space.nvec.reshape(-1))]
            return np.concatenate(hot, -1), batched
        return array.reshape(*lead, -1).astype(np.float32, copy=False), batched

    def _unpack(self, part: Part, arrays: dict[str, Array]) -> Array:
        if part.image:
            return arrays[part.array]
        flat = arrays[VECTOR][..., part.start : part.stop]
        if isinstance(part.space, spaces.Discrete):
            return flat.argmax(-1) + part.space.start
        if isinstance(part.space, spaces.MultiDiscrete):
            cuts = np.cumsum(part.space.nvec.reshape(-1))[:-1]
            index = np.stack([hot.argmax(-1) for hot in np.split(flat, cuts, -1)], -1)
            return index.reshape(*flat.shape[:-1], *part.space.shape) + part.space.start
        shaped = flat.reshape(*flat.shape[:-1], *(part.space.shape or ()))
        if isinstance(part.space, spaces.Box) and np.issubdtype(part.space.dtype, np.integer):
            return _whole_numbers(shaped, part.space)
        return shaped.astype(part.space.dtype, copy=False)


def _bounds_of(space: spaces.Box) -> tuple[Array, Array]:
    """Return the lowest and highest values of a Box that its dtype and float32 hold, [V] float32 each."""
    low, high = space.low.reshape(-1), space.high.reshape(-1)
    if space.dtype == np.float16:
        largest = np.float32(np.finfo(np.float16).max)
        return np.maximum(low.astype(np.float32), -largest), np.minimum(high.astype(np.float32), largest)
    with np.errstate(over="ignore"):  # bounds beyond float32 are infinite
        return low.astype(np.float32), high.astype(np.float32)


def _whole_numbers(values: Array, space: spaces.Box) -> Array:
    """Convert float32 values to integers of a Box; those that float32 rounds past a bound become the bound."""
    wide = values.astype(np.float64)
    over, under = wide >= space.high, wide <= space.low
    result = np.where(over | under, 0, wide).astype(space.dtype)
    return np.where(over, space.high, np.where(under, space.low, result))


def _misfit(part: Part, array: Array) -> str:
    if array.dtype.kind not in NUMBERS:
        return f"observation{part.where} is an array of dtype {array.dtype}, its space {part.space} holds real numbers"
    return f"observation{part.where} has shape {array.shape}, its space says {part.space.shape}"


def _take(observation: Any, part: Part) -> Any:
    value = observation
    for key in part.path:
        try:
            value = value[key]
        except (KeyError, IndexError, TypeError) as error:
            raise SpecError(f"observation has no part {part.name!r}, which its space {part.space} promises") from error
    return value


def _assemble(space: Space, values: dict[tuple[str | int, ...], Array], path: tuple[str | int, ...] = ()) -> Any:
    if isinstance(space, spaces.Dict):
        return {key: _assemble(inner, values, (*path, key)) for key, inner in space.items()}
    if isinstance(space, spaces.Tuple):
        return tuple(_assemble(inner, values, (*path, i)) for i, inner in enumerate(space.spaces))
    return values[path]
