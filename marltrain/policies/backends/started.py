"""Calls of functions of tensors that have been started, and whose results are read later."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol


class Started(Protocol):
    """A call whose operations have been started; on a GPU they may be under way."""

    @property
    def result(self) -> Callable[[], Any]:
        """Waits for the operations, and returns the results as writable arrays; None stays None. Call it once."""


Start = Callable[..., Started]
"""(*trees) -> the call that has been started with them."""


class Read(NamedTuple):
    """A call whose results a function reads."""

    result: Callable[[], Any]
