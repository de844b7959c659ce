"""Work: a part of each batch step in compiled code, whose environments are divided among threads."""

from __future__ import annotations

from time import perf_counter

import numpy as np

from marltrain.envs.native.batch import FINE
from marltrain.jit.threads import Threads
from marltrain.trainer.collecting.fused_arguments import FusedArguments
from marltrain.trainer.collecting.fused_kernel import fused_program

LEAST = 5e-5
"""Least seconds of work for which a thread is used: about the time in which one that sleeps begins."""
MEASURED = 5
"""Number of first calls that are measured, in one thread."""


class Work:
    """A part of batch steps in the environments `low` to `high`.

    most: largest number of threads.
    """

    def __init__(self, arguments: FusedArguments, threads: Threads, part: int, low: int, high: int) -> None:
        """Take the arguments of the kernel.  part: see `fused_kernel`."""
        self._arguments, self._threads, self._part = arguments, threads, part
        self._low, self._high = low, high
        self._calls, self._seconds, self.most = 0, float("inf"), 1
        self._wrong = np.full(1, FINE)

    def run(self) -> None:
        """Do the part."""
        given, blocks = self._arguments, self.blocks
        if len(self._wrong) != blocks:
            self._wrong = np.full(blocks, FINE)
        given.divide(self._wrong)
        given.phases([self._part])
        given.record["low"], given.record["high"] = self._low, self._high
        given.counts[...] = 0
        started = perf_counter()
        self._threads.run(fused_program(), given.address, blocks)
        if self._calls < MEASURED:
            self._calls += 1
            self._seconds = min(self._seconds, perf_counter() - started)

    @property
    def blocks(self) -> int:
        """Number of blocks of environments, of which each is the task of a thread."""
        if self._calls < MEASURED:
            return 1
        return max(1, min(self.most, int(self._seconds / LEAST), self._high - self._low))
