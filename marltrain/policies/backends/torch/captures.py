"""A function of tensors as CUDA graphs: its operations are captured once and started together by one call.

On a GPU, a gradient step of a small network consists of hundreds of short operations, whose starts take longer than the
operations. A CUDA graph starts all of them at once. It repeats the same operations on the same memory, so a function
that is captured

- reads tensors that stay at their addresses: its arguments, which are copied into fixed tensors, weights and moments;
- reads no number of a tensor (`.item()`, `.cpu()`, a condition), selects no rows by booleans, makes no tensor from
  numbers of the CPU, and draws no random numbers: they are arguments.

See "Constraints" in https://docs.pytorch.org/docs/stable/notes/cuda.html#cuda-graphs.
"""

from __future__ import annotations

import functools
import gc
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from marltrain.core.errors import ConfigError, error_text
from marltrain.core.layout import map_tree
from marltrain.policies.backends.torch.capture_protocol import Capture, Function, Replay
from marltrain.policies.backends.torch.places import instead
from marltrain.policies.backends.traces import Key, Traces

MOST_CAPTURES = 64
"""Largest number of captures of a function; calls with arguments of further shapes are computed without a capture."""


class Captured(Traces):
    """Calls a function through a capture for each structure and shape of its arguments.

    The first call with arguments of some shapes computes the function as it is, and the second captures it. Weights and
    moments that the function reads must stay at their addresses.
    """

    def __init__(self, function: Function, capture: Capture) -> None:
        """Wrap `function`, whose results are trees."""
        super().__init__(function)
        self._capture = capture

    def leaf(self, given: Tensor) -> tuple[Any, Key]:
        """See `Traces`."""
        return given, (given.dtype, given.device, given.shape, given.stride())

    def traced(self, call: Function, leaves: list[Any]) -> Function:
        """See `Traces`."""
        return _CapturedCall(call, self._capture) if leaves and len(self._traces) < MOST_CAPTURES else call


class _CapturedCall:
    """A function of tensors of certain shapes: computed at its first call, captured at the second."""

    def __init__(self, call: Function, capture: Capture) -> None:
        self._call, self._capture = call, capture
        self._is_warm = False
        self._replay: Replay | None = None

    def __call__(self, *leaves: Tensor) -> Any:
        if self._replay is None and not self._is_warm:
            self._is_warm = True
            return self._capture.warmed_up(self._call, leaves)
        if self._replay is None:
            self._replay = self._capture(self._call, leaves)
        return self._replay(leaves)


class CudaCapture:
    """CUDA graphs of one device, with a common pool of memory.

    The graphs are started one after the other, on the stream of the caller; a graph may use the memory of another's
    intermediate results. The results that a graph keeps are copied before another is started.
    """

    def __init__(self, device: torch.device) -> None:
        """Make the stream of captures and the pool."""
        self._device, self._lock = device, threading.RLock()
        with torch.cuda.device(device):
            self._stream: Any = torch.cuda.Stream()
            self._pool = torch.cuda.graph_pool_handle()

    def warmed_up(self, function: Function, given: Sequence[Tensor]) -> Any:
        """See `Capture`; libraries allocate their memory for the stream of captures now."""
        with self._lock, torch.cuda.device(self._device):
            self._stream.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(self._stream):
                result = function(*given)
            torch.cuda.current_stream().wait_stream(self._stream)
            return result

    def __call__(self, function: Function, examples: Sequence[Tensor]) -> Replay:
        """See `Capture`."""
        fixed, graph = [tensor.detach().clone() for tensor in examples], torch.cuda.CUDAGraph()
        with self._lock, torch.cuda.device(self._device):
            self._stream.wait_stream(torch.cuda.current_stream())
            options: dict[str, Any] = {"stream": self._stream, "capture_error_mode": "thread_local"}
            try:
                with _no_garbage_collected(), torch.cuda.graph(graph, self._pool, **options):
                    kept = map_tree(Tensor.detach, function(*fixed))
            except RuntimeError as error:
                raise cannot_capture(error_text(error)) from error
        groups = by_dtype(fixed)

        def replay(given: Sequence[Tensor]) -> Any:
            with self._lock:
                for into, places in groups:
                    torch._foreach_copy_(into, [given[i] for i in places])
                graph.replay()
                return map_tree(Tensor.clone, kept)

        return replay


@contextmanager
def _no_garbage_collected() -> Iterator[None]:
    """Delay the collection of garbage: it may release memory of a GPU, which ends a capture by an error."""
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collects:
            gc.enable()


def by_dtype(tensors: Sequence[Tensor]) -> list[tuple[list[Tensor], list[int]]]:
    """Return the tensors of each dtype with their places: torch copies such lists in one operation."""
    places: dict[torch.dtype, list[int]] = {}
    for i, tensor in enumerate(tensors):
        places.setdefault(tensor.dtype, []).append(i)
    return [([tensors[i] for i in own], own) for own in places.values()]


def cannot_capture(reason: str) -> ConfigError:
    """Return the error of a function that cannot be captured."""
    return ConfigError(
        "jit_compile=True captures gradient steps and acting as CUDA graphs, and one of them cannot be captured: "
        f"{reason}. A loss of your own, or `act`, must compute with `ops` alone: without numbers read from tensors "
        "(.item(), .cpu(), conditions), rows selected by booleans, tensors made from numbers of the CPU, and random "
        "numbers that are not its arguments. Change this, or leave jit_compile out"
    )


def capture_on(device: torch.device) -> Capture:
    """Return the capture of a device that is a GPU, or treated as one."""
    return instead() or _cuda_capture(device)


@functools.cache
def _cuda_capture(device: torch.device) -> CudaCapture:
    return CudaCapture(device)
