"""Where tensors are: in the memory of the CPU, or of a GPU, in whose place a CPU may stand."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TypeVar

import torch

from marltrain.policies.backends.torch.capture_protocol import Capture

STAND_INS: list[Capture] = []
"""The captures of the `cpu_as_gpu` blocks that are open: with any, a CPU stands in for a GPU."""
Some = TypeVar("Some", bound="Capture")


def on_cpu(device: torch.device) -> bool:
    """Return whether tensors of a device are in the memory of the CPU, and are not treated as those of a GPU."""
    return device.type == "cpu" and not STAND_INS


@contextmanager
def cpu_as_gpu(capture: Some) -> Iterator[Some]:
    """Treat the CPU as a GPU in the `with` block, to run and test the code for GPUs on a machine without one.

    Agents that are made in the block copy arrays to tensors and back, use the operations for GPUs, act by tensors, and
    capture their calls with `jit_compile`.  capture: captures the calls.
    """
    STAND_INS.append(capture)
    try:
        yield capture
    finally:
        STAND_INS.pop()


def instead() -> Capture | None:
    """Return the capture of the innermost `cpu_as_gpu`; None outside of it."""
    return STAND_INS[-1] if STAND_INS else None
