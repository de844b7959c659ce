"""Whether the batches of a learner are gathered in the memory of its device, see `memory.wide_columns`."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Protocol

import numpy as np

from marltrain.policies.batches.normalization import NORMALIZED
from marltrain.policies.interface.algorithm import Algorithm
from marltrain.policies.interface.joint import JointAlgorithm
from marltrain.policies.learner.trained_team import Stack
from marltrain.policies.memory.needs import Needs
from marltrain.policies.memory.readers import Reader
from marltrain.policies.memory.wide_columns import mirror_size

MOST_SHARE = 0.5
"""Largest share of the free memory of a device that the rows of a reader may take."""
LEAST_BYTES = 2**19
"""Bytes of observations and global states from which on a batch of replay is gathered on a GPU: a gather takes a dozen
operations there, so that smaller batches are gathered and sent in less time by main memory."""
_USUAL = {
    "prepare": Algorithm.prepare, "adapted": Algorithm.adapted, "row_errors": None,
    "prepare_team": JointAlgorithm.prepare_team,
}  # fmt: skip
"""The methods that get a whole batch, as algorithms have them that do not define them."""


class Learning(Stack, Protocol):
    """A learner that reads batches by its needs."""

    needs: Needs


def gather_on_device(members: Sequence[Learning], reader: Reader, rows: int) -> str:
    """Let a reader of learners gather batches on the GPU on which they compute; return why a GPU is not used so, or "".

    Rollouts are gathered there, and batches of replay of at least `LEAST_BYTES`.

    members: the learners of one reader, all on one device.  rows: those of an agent in a batch of replay.
    """
    memory = members[0].backend.row_memory()
    if memory is None or not (reader.rollouts or rows * sum(map(_row_bytes, members)) >= LEAST_BYTES):
        return ""
    for member in members:
        if why := _hindrance(member):
            return why
    size, free = mirror_size(reader.ring, reader.needs), memory.free()
    if size > MOST_SHARE * free:
        return (
            f"its rows take {size / 1e9:,.1f} GB, more than half of the {free / 1e9:,.1f} GB that are free on "
            f"{memory.name}"
        )
    reader.mirror(memory)
    return ""


def _row_bytes(learner: Learning) -> int:
    """Return the bytes of the observations and global states of a transition, of all agents."""
    kinds = learner.algorithm.layout.shapes.values()
    state = 0 if learner.needs.state is None else 4 * learner.needs.state.size
    seen = sum(math.prod(shape) * np.dtype(dtype).itemsize for shape, dtype in kinds)
    return 2 * learner.num_agents * (seen + state)


def _hindrance(learner: Learning) -> str:
    """Return what needs the observations of batches as arrays, "" if nothing does."""
    algorithm, needs = learner.algorithm, learner.needs
    replay = needs.replay
    reasons = {
        "strategy= divides batches over devices": learner.backend.strategy is not None,
        "observations are normalized": any(name in learner.weights.statistics for name in NORMALIZED),
        "its goals are replaced": replay is not None and bool(replay.with_goals),
        "it learns from a reservoir": bool(needs.reservoir),
        "it computes rewards by a reward model": getattr(algorithm, "reward_model", None) is not None,
        "its `prepare` may read arrays": reads_arrays(algorithm),
    }
    return next((reason for reason, holds in reasons.items() if holds), "")


def reads_arrays(algorithm: Algorithm) -> bool:
    """Return whether a method of an algorithm that gets a whole batch may read arrays, see `Algorithm.reads_arrays`.

    A subclass that overrides such a method without the flag does not inherit the flag.
    """
    kind = type(algorithm)
    own = [name for name, function in _USUAL.items() if getattr(kind, name, function) is not function]
    definers = [next(cls for cls in kind.__mro__ if name in vars(cls)) for name in own]
    set_later = "row_errors" not in own and algorithm.row_errors is not None
    return any(vars(cls).get("reads_arrays", True) for cls in definers) or (set_later and algorithm.reads_arrays)
