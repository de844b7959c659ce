"""Programs of several phases over the minibatches of a rollout, in one call of compiled code."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from marltrain.core.layout import Array
from marltrain.jit.threads import Threads, give_way
from marltrain.jit.views import address_of
from marltrain.policies.tape.interpreter.runs import PASSES, passes_program
from marltrain.policies.tape.program import Execution


class OverMinibatches:
    """The steps of F phases for each minibatch, of K agents that do not depend on each other."""

    def __init__(self, executions: Sequence[Execution]) -> None:
        """Store the programs of the phases, in order."""
        self.executions, agents = list(executions), executions[0].agents
        self._runs = np.array([each.address for each in executions], np.int64)
        self._counts = np.zeros((4, agents), np.int64)
        tickets, done, moved, ended = self._counts
        self._record = np.zeros(1, PASSES)
        record = self._record[0]
        record["phases"], record["agents"], record["give_way"] = len(executions), agents, give_way()
        record["tasks"] = sum(each.groups for each in executions) * agents
        counts = {"tickets": tickets, "done": done, "moved": moved, "ended": ended}
        for name, array in {"runs": self._runs, **counts}.items():
            record[name] = address_of(array)
        self._address = address_of(self._record)

    def run(self, due: Array, threads: Threads, count: int) -> None:
        """Make the steps that are `due` [minibatches, F, K] bool, in at most `count` threads.

        An entry becomes False if the step is not made, because the agent's update ended earlier.
        """
        if not due.flags.c_contiguous or due.dtype != np.bool_:
            raise TypeError(f"due: expected bool in C order, got {due.dtype} with strides {due.strides}")
        record = self._record[0]
        count = max(1, min(count, int(record["tasks"]) // int(record["phases"])))
        for each in self.executions:
            each.reserve(count)
            each.prepare()
        record["minibatches"], record["due"] = len(due), address_of(due)
        self._counts[...] = 0
        threads.run(passes_program(), self._address, count)
