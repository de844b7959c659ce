"""A function of tensors as a compiled torch graph, one for each structure and shape of its arguments."""

from __future__ import annotations

from collections.abc import Callable
from types import FunctionType
from typing import Any

import torch
from torch import Tensor

from marltrain.policies.backends.traces import Key, Traces


class Graph(Traces):
    """Calls a function through `torch.compile`, for the very shapes it was called with.

    What else it reads (weights, moments) must stay the same tensors of the same shapes: torch's own checks of that are
    left out, which take a large part of a small pass (`benchmarks/kernels.py`).
    """

    def leaf(self, given: Tensor) -> tuple[Any, Key]:
        """See `Traces`."""
        return given, (given.dtype, given.device, given.shape, given.stride())

    def traced(self, call: Callable[..., Any], leaves: list[Any]) -> Callable[..., Any]:
        """See `Traces`."""
        options: dict[str, Any] = {"guard_filter_fn": torch.compiler.skip_all_guards_unsafe}
        if all(leaf.device.type == "cpu" for leaf in leaves):
            options["cpp_wrapper"] = True  # kernels are called from C++, not from Python
        # torch keeps graphs by code object, and without checks it takes the first: every trace has one of its own
        own = FunctionType(call.__code__.replace(), call.__globals__, closure=call.__closure__)
        compiled: Callable[..., Any] = torch.compile(own, dynamic=False, fullgraph=True, options=options)
        return compiled
