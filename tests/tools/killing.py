"""Runs that end as if by a signal, at a chosen call of a function."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


class Killed(BaseException):
    """Ends a run as a signal would: nothing catches it."""


def die() -> None:
    raise Killed


def kill(patch: Any, owner: Any, name: str, call: int, end: Callable[[], None] = die) -> None:
    """Let a function call `end` first, in its n-th call."""
    original, calls = getattr(owner, name), []

    def dying(*arguments, **more):
        calls.append(1)
        if len(calls) == call:
            end()
        return original(*arguments, **more)

    patch.setattr(owner, name, dying)
