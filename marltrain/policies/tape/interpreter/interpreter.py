"""The interpreter: one compiled function that carries out the instructions of every table."""

from __future__ import annotations

import functools
from typing import Any

from marltrain.jit.compiling import compiled, inner, program
from marltrain.jit.switch import switch
from marltrain.jit.views import entry, i64
from marltrain.policies.tape.instructions import BYTES, FORMS
from marltrain.policies.tape.interpreter import elementwise, images, learning, moves, reductions


@inner
def nothing(i: int, s: int) -> None:
    """Do nothing; measures the cost of an instruction."""


INSTRUCTIONS: dict[str, Any] = {
    **elementwise.INSTRUCTIONS, **reductions.INSTRUCTIONS, **moves.INSTRUCTIONS, **images.INSTRUCTIONS,
    **learning.INSTRUCTIONS, "nothing": nothing,
}  # fmt: skip
"""The function of each operation of `instructions.FORMS`: (address of the instruction, address of the segments)."""
carry_out = switch(tuple(INSTRUCTIONS[name] for name in FORMS))


@compiled
def execute(code: int, start: int, stop: int, segments: int) -> int:
    """Carry out the instructions from `start` to `stop` of a table; return 0.

    code: the address of the instructions.  segments: that of the addresses of the segments.
    """
    for number in range(start, stop):
        i = code + BYTES * number
        carry_out(i64(i, 1)[0], i, segments)
    return 0


@functools.cache
def interpreter() -> Any:
    """Return `execute` as machine code: compiled once for all tables, or loaded from disk."""
    return program(execute)


@functools.cache
def interpreter_entry() -> int:
    """Return the address by which compiled code calls `execute`, as the functions of `runs` do.

    It is compiled apart from its callers, since it takes much longer than they do.
    """
    return entry(interpreter(), 4)
