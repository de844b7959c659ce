"""A function of trees of tensors, traced or compiled once for each structure of its arguments."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from marltrain.core.errors import ConfigError, error_text
from marltrain.core.version import version_of

Key = tuple[Any, ...]


class Traces(ABC):
    """Calls `function(*trees)` through a cache of traces; a tree is a tensor, None, or a dict of trees.

    The frameworks' own caches handle more cases and are slower.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        """Wrap `function`; the first call traces it."""
        self.function = function
        self._traces: dict[Key, Callable[..., Any]] = {}

    @abstractmethod
    def leaf(self, given: Any) -> tuple[Any, Key]:
        """Return the tensor to call a trace with, and its part of the cache key."""

    @abstractmethod
    def traced(self, call: Callable[..., Any], leaves: list[Any]) -> Callable[..., Any]:
        """Return a trace of `call`, a function of as many tensors as there are `leaves`, for tensors like them."""

    def __call__(self, *trees: Any) -> Any:
        """Call the function through its trace for such trees."""
        trace, leaves = self.bound(*trees)
        return trace(*leaves)

    def bound(self, *trees: Any) -> tuple[Callable[..., Any], list[Any]]:
        """Return the trace for such trees, and the tensors to call it with."""
        leaves: list[Any] = []
        parts: list[Key | None] = []  # the names of dicts and the keys of tensors
        left = [*reversed(trees)]
        while left:
            tree = left.pop()
            if tree is None:
                parts.append(None)
            elif isinstance(tree, dict):
                parts.append(tuple(tree))
                left.extend(reversed(tree.values()))
            else:
                leaf, part = self.leaf(tree)
                leaves.append(leaf)
                parts.append(part)
        key = tuple(parts)
        trace = self._traces.get(key)
        if trace is None:
            trace = self._traces[key] = self.traced(self._of_leaves(trees), leaves)
        return trace, leaves

    def _of_leaves(self, trees: tuple[Any, ...]) -> Callable[..., Any]:
        function, skeleton = self.function, tuple(_emptied(tree) for tree in trees)

        def call(*given: Any) -> Any:
            remaining = iter(given)
            return function(*(_filled(tree, remaining) for tree in skeleton))

        return call


def _emptied(tree: Any) -> Any:
    """Return a tree's structure with True for each tensor, so that a trace keeps no tensor of the first call alive."""
    if isinstance(tree, dict):
        return {name: _emptied(inner) for name, inner in tree.items()}
    return None if tree is None else True


def _filled(tree: Any, leaves: Iterator[Any]) -> Any:
    if isinstance(tree, dict):
        return {name: _filled(inner, leaves) for name, inner in tree.items()}
    return None if tree is None else next(leaves)


@contextmanager
def compiler_errors(framework: str, *errors: type[Exception]) -> Iterator[None]:
    """Turn errors of a framework's compiler in the `with` block into ConfigErrors that name versions and remedies."""
    try:
        yield
    except errors as error:
        raise ConfigError(
            f"jit_compile=True: the compiler of {framework} {version_of(framework)} cannot compile a gradient pass. "
            f"Leave jit_compile out, or install the version of {framework} with which marltrain is tested "
            f"(constraints.txt). The compiler's error: {error_text(error)}"
        ) from error
