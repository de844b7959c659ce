"""The interface of what captures calls of functions of tensors, such as CUDA graphs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from torch import Tensor

Function = Callable[..., Any]
"""(*tensors) -> a tree: a tensor, None, or a dict of trees."""
Replay = Callable[[Sequence[Tensor]], Any]
"""tensors -> a tree of new tensors."""


class Capture(Protocol):
    """Captures calls of functions; implementations: `captures.CudaCapture` and `recorded_capture.RecordedCapture`."""

    def warmed_up(self, function: Function, given: Sequence[Tensor]) -> Any:
        """Call the function without a capture, such that it can be captured next time; return its result."""

    def __call__(self, function: Function, examples: Sequence[Tensor]) -> Replay:
        """Capture a call of the function with tensors like the examples, without any effect on tensors.

        Returns the captured call. Raises ConfigError if the function cannot be captured.
        """
