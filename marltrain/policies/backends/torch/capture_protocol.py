"""The interface of what captures calls of functions of tensors, such as CUDA graphs."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import torch
from torch import Tensor

Function = Callable[..., Any]
"""(*tensors) -> a tree: a tensor, None, or a dict of trees."""
Graph = Callable[[Sequence[Any]], Any]
"""Starts a captured call and returns the tree of its results, the same tensors in each call, which the next call of any
graph may overwrite.

It gets the arrays and tensors whose numbers the fixed arguments have, for checks.
"""


class Mark(Protocol):
    """A place in the order of a device's operations, such as a CUDA event."""

    def record(self) -> None:
        """Move the mark behind the operations that have been started."""

    def synchronize(self) -> None:
        """Wait for the operations before the mark; return at once if it was never recorded."""


class Capture(Protocol):
    """Captures calls of functions; implementations: `captures.CudaCapture` and `recorded_capture.RecordedCapture`.

    device: of the tensors.
    lock: held while arguments are copied, a graph is started, and its results are copied.
    """

    device: torch.device
    lock: threading.RLock

    def warmed_up(self, function: Function, given: Sequence[Tensor]) -> Any:
        """Call the function without a capture, such that it can be captured next time; return its result."""

    def __call__(self, function: Function, fixed: Sequence[Tensor]) -> Graph:
        """Capture a call of the function with these tensors, without any effect on tensors.

        Raises ConfigError if the function cannot be captured.
        """

    def host(self, size: int) -> Tensor:
        """Return uninitialized memory of the CPU for `send` or `fetch`, [size] uint8."""

    def send(self, memory: Tensor, into: Tensor) -> None:
        """Start a copy from `host` memory to the device, behind the operations that have been started.

        The memory must not change before a `Mark` behind the copy is passed.
        """

    def fetch(self, results: Tensor, memory: Tensor) -> None:
        """Start a copy from the device to `host` memory, behind the operations that have been started.

        The memory has the numbers when a `Mark` behind the copy is passed.
        """

    def mark(self) -> Mark:
        """Return a mark that was never recorded."""
