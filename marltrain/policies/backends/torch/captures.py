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
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from marltrain.core.errors import ConfigError, error_text
from marltrain.core.layout import map_tree
from marltrain.policies.backends.torch.buffers import Arguments, Fetches, Packed
from marltrain.policies.backends.torch.capture_protocol import Capture, Function, Graph, Mark
from marltrain.policies.backends.torch.places import instead
from marltrain.policies.backends.torch.transfers import sent
from marltrain.policies.backends.traces import Key, Traces

MOST_CAPTURES = 64
"""Largest number of captures of a function; calls with arguments of further shapes are computed without a capture."""


class Captured(Traces):
    """Calls a function through a capture for each structure and shape of its arguments, arrays and tensors.

    The first call with arguments of some shapes computes the function as it is, and the second captures it. Weights and
    moments that the function reads must stay at their addresses.
    """

    def __init__(self, function: Function, capture: Capture) -> None:
        """Wrap `function`, whose results are trees."""
        super().__init__(function)
        self._capture = capture

    def leaf(self, given: Any) -> tuple[Any, Key]:
        """See `Traces`."""
        if isinstance(given, np.ndarray):
            return given, (given.dtype, given.shape)
        return given, (given.dtype, given.device, given.shape, given.stride())

    def traced(self, call: Function, leaves: list[Any]) -> Function:
        """See `Traces`."""
        return self._call(call, leaves)

    def _call(self, call: Function, leaves: list[Any]) -> CapturedCall:
        captures = bool(leaves) and len(self._traces) < MOST_CAPTURES
        return CapturedCall(call, self._capture, captures=captures)


class Starting(Captured):
    """The same for a function whose results are read as arrays: a call starts it and returns a `buffers.Fetch`."""

    def traced(self, call: Function, leaves: list[Any]) -> Function:
        """See `Traces`."""
        packed = Packed(call)
        return partial(self._call(packed, leaves).run, Fetches(packed, self._capture).start)


class CapturedCall:
    """A function of arguments of certain shapes: computed at its first call, captured at the second."""

    def __init__(self, call: Function, capture: Capture, *, captures: bool) -> None:
        """Wrap the function; captures: False: compute it at every call."""
        self._call, self._capture, self._captures = call, capture, captures
        self._is_warm = False
        self._arguments: Arguments | None = None
        self._graph: Graph | None = None

    def __call__(self, *given: Any) -> Any:
        """Return the results as new tensors."""
        return self.run(_copied, *given)

    def run(self, take: Callable[[Any], Any], *given: Any) -> Any:
        """Call the function and return what `take` makes of the results, before a later call may overwrite them."""
        capture = self._capture
        if not self._captures:
            return take(self._call(*_tensors(given, capture.device)))
        with capture.lock:
            if self._arguments is not None and self._graph is not None:
                self._arguments.write(given)
                return take(self._graph(given))
            if not self._is_warm:
                self._is_warm = True
                return take(capture.warmed_up(self._call, _tensors(given, capture.device)))
            self._arguments = Arguments(given, capture)
            self._graph = capture(self._call, self._arguments.fixed)
            return self.run(take, *given)


def _tensors(given: Sequence[Any], device: torch.device) -> list[Tensor]:
    """Return arguments as tensors."""
    arrays = sent({str(i): each for i, each in enumerate(given) if isinstance(each, np.ndarray)}, device)
    return [arrays.get(str(i), each) for i, each in enumerate(given)]


def _copied(results: Any) -> Any:
    return map_tree(Tensor.clone, results)


class CudaCapture:
    """CUDA graphs of one device, with a common pool of memory.

    The graphs are started one after the other, on the stream of the caller; a graph may use the memory of another's
    intermediate results. The results that a graph keeps are copied before another is started.
    """

    def __init__(self, device: torch.device) -> None:
        """Make the stream of captures and the pool."""
        self.device, self.lock = device, threading.RLock()
        with torch.cuda.device(device):
            self._stream: Any = torch.cuda.Stream()
            self._pool = torch.cuda.graph_pool_handle()

    def warmed_up(self, function: Function, given: Sequence[Tensor]) -> Any:
        """See `Capture`; libraries allocate their memory for the stream of captures now."""
        with torch.cuda.device(self.device):
            self._stream.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(self._stream):
                result = function(*given)
            torch.cuda.current_stream().wait_stream(self._stream)
            return result

    def __call__(self, function: Function, fixed: Sequence[Tensor]) -> Graph:
        """See `Capture`."""
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.device(self.device):
            self._stream.wait_stream(torch.cuda.current_stream())
            options: dict[str, Any] = {"stream": self._stream, "capture_error_mode": "thread_local"}
            try:
                with _no_garbage_collected(), torch.cuda.graph(graph, self._pool, **options):
                    kept = map_tree(Tensor.detach, function(*fixed))
            except RuntimeError as error:
                raise cannot_capture(error_text(error)) from error

        def start(given: Sequence[Any]) -> Any:
            graph.replay()
            return kept

        return start

    def host(self, size: int) -> Tensor:
        """See `Capture`: pinned memory."""
        return torch.empty(size, dtype=torch.uint8, pin_memory=self.device.type == "cuda")

    def send(self, memory: Tensor, into: Tensor) -> None:
        """See `Capture`."""
        into.copy_(memory, non_blocking=True)

    def fetch(self, results: Tensor, memory: Tensor) -> None:
        """See `Capture`."""
        memory.copy_(results, non_blocking=True)

    def mark(self) -> Mark:
        """See `Capture`."""
        return CudaMark(self.device.index)


class CudaMark:
    """An event of the caller's stream on a device."""

    def __init__(self, index: int | None) -> None:
        """Make the event; index: number of the device, by which torch finds its stream at once."""
        self._index, self._event = index, torch.cuda.Event()

    def record(self) -> None:
        """See `Mark`."""
        self._event.record(torch.cuda.current_stream(self._index))

    def synchronize(self) -> None:
        """See `Mark`."""
        self._event.synchronize()


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
    return instead() or _cuda_capture(torch.empty(0, device=device).device)  # which has a number


@functools.cache
def _cuda_capture(device: torch.device) -> CudaCapture:
    return CudaCapture(device)
