"""Choice of the rows k and j of triplets in compiled code, along the decisions of a player; see `Triplets`."""

from __future__ import annotations

import functools
from typing import Any

from marltrain.jit.compiling import compiled, program
from marltrain.policies.memory.compiled.hindsight_kernel import onward


@compiled
def choose_triplets(
    following: Any, learnable: Any, cells: Any, wanted: Any, random: Any, capacity: int, envs: int, near: Any,
    last: Any, near_offset: Any, offset: Any,
) -> None:  # fmt: skip
    """Choose for each closed row i, at cells [n], a row k and the row before j, and write their cells.

    following, learnable: the ring's `next` and `learnable`, flattened.
    wanted: [n] int64, offsets of j, cut at the number of decisions that are left; 0: uniform, by `random[0]`.
    random: [2, n] float64 in [0, 1), for j and for k.
    near, last, near_offset, offset: [n] int64, the results; the next observation of row `last` has the goal of j.
    """
    for i in range(len(cells)):
        left, cell = 1, cells[i]
        while left != wanted[i]:
            cell = onward(following, cell, capacity, envs)
            if cell < 0 or not learnable[cell // envs]:
                break
            left += 1
        offset[i] = left if wanted[i] else 1 + int(random[0, i] * left)
        near_offset[i] = 0 if offset[i] == 1 else 1 + int(random[1, i] * (offset[i] - 1))
        cell = cells[i]
        for step in range(offset[i]):
            if step:
                cell = onward(following, cell, capacity, envs)
            if step == near_offset[i]:
                near[i] = cell
        last[i] = cell


@functools.cache
def triplets_program() -> Any:
    """Return the compiled `choose_triplets`, from the disk cache if it is there."""
    return program(choose_triplets)
