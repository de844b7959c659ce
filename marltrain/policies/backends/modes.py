"""Modes of frameworks that hold for the whole process or thread, kept over a use of agents, without importing any."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from numpy.random import mtrand

from marltrain.policies.backends.randomness import LENT


@contextmanager
def modes_kept(*, gradients: bool) -> Iterator[None]:
    """Leave torch's recording of gradients and numpy's global generator as they are now.

    A signal whose handler raises, such as Ctrl-C, can end the code inside just where a context such as `torch.no_grad`
    begins or ends, which then restores nothing: every later training of the process would fail.
    gradients: record them inside the block, also if the caller does not (`torch.no_grad`).
    """
    generator, recording = mtrand.get_bit_generator(), _recording()
    try:
        if gradients:
            _record(True)
        yield
    finally:
        _record(recording)
        if mtrand.get_bit_generator() is LENT:
            mtrand.set_bit_generator(generator)


def _recording() -> bool:
    """Return whether torch records gradients in this thread; it does when it is imported."""
    torch: Any = sys.modules.get("torch")
    return torch is None or torch.is_grad_enabled()


def _record(on: bool) -> None:
    torch: Any = sys.modules.get("torch")
    if torch is not None and torch.is_grad_enabled() != on:
        torch.set_grad_enabled(on)
