"""Calls from Python of the compiled code in `priority_kernel`."""

from __future__ import annotations

import functools
from typing import Any

from marltrain.jit.compiling import compiled, program
from marltrain.policies.memory.compiled.priority_kernel import (
    PRIORITIES,
    draw_rows,
    follow_ring,
    keep_effective,
    rebuild,
    set_priorities,
    share_out,
    trees_at,
    withdraw,
)


@compiled
def follow_once(address: int, now: int) -> None:
    """Follow the ring to batch step `now`."""
    follow_ring(trees_at(address), now)


@compiled
def rebuild_once(address: int) -> None:
    """Compute everything from the priorities."""
    rebuild(trees_at(address))


@compiled
def draw_once(
    address: int, drawing: Any, random: Any, cells: Any, weights: Any, rows: Any, effective: Any
) -> None:  # fmt: skip
    """Draw the rows of the agents that are drawing, [K] bool; see `draw_rows` for the arrays [K, B] and `effective`."""
    t = trees_at(address)
    for k in range(len(drawing)):
        if drawing[k]:
            effective[k] = draw_rows(t, k, random[k], cells[k], weights[k], rows[k])


@compiled
def learn_once(address: int, there: Any, rows: Any, errors: Any, admits: bool) -> int:
    """Set the priorities of the agents' rows; return the first agent with an error that is not finite, or -1."""
    t = trees_at(address)
    for k in range(len(there)):
        if there[k] and not set_priorities(t, k, rows[k], errors[k], admits):
            return k
    return -1


@compiled
def withdraw_once(address: int, rows: Any) -> None:
    """Remove the priorities of rows in all trees."""
    t = trees_at(address)
    for row in rows:
        withdraw(t, row)


@compiled
def keep_effective_once(address: int, shares: Any, start: int, stop: int, kept: int) -> None:
    """Call `keep_effective` for the least shares [K] of all agents."""
    t = trees_at(address)
    for k in range(t.agents):
        keep_effective(t, k, shares[k], start, stop, kept)


@compiled
def share_once(weight: Any, shares: Any, scale: Any) -> None:
    """Call `share_out` for K agents."""
    for k in range(len(weight)):
        scale[k] = share_out(weight[k], shares[k])


@functools.cache
def follow_program() -> Any:
    """Return the compiled `follow_once`, from the disk cache if it is there."""
    return program(follow_once, PRIORITIES)


@functools.cache
def rebuild_program() -> Any:
    """Return the compiled `rebuild_once`, from the disk cache if it is there."""
    return program(rebuild_once, PRIORITIES)


@functools.cache
def draw_program() -> Any:
    """Return the compiled `draw_once`, from the disk cache if it is there."""
    return program(draw_once, PRIORITIES)


@functools.cache
def learn_program() -> Any:
    """Return the compiled `learn_once`, from the disk cache if it is there."""
    return program(learn_once, PRIORITIES)


@functools.cache
def share_program() -> Any:
    """Return the compiled `share_once`, from the disk cache if it is there."""
    return program(share_once)


@functools.cache
def keep_effective_program() -> Any:
    """Return the compiled `keep_effective_once`, from the disk cache if it is there."""
    return program(keep_effective_once, PRIORITIES)


@functools.cache
def withdraw_program() -> Any:
    """Return the compiled `withdraw_once`, from the disk cache if it is there."""
    return program(withdraw_once, PRIORITIES)
