"""Global generators that are lent to a user's code, with signals that raise between any two lines."""

from __future__ import annotations

import random
import sys
from contextlib import AbstractContextManager, suppress
from typing import Any

import numpy as np
import pytest
from numpy.random import mtrand

from marltrain.policies.backends import make_backend
from marltrain.policies.backends.randomness import numpy_seeded
from tests.policies.backends.both import BOTH


def interrupted(context: Any, files: str, line: int) -> bool:
    """Enter a context, and raise before the line-th line of its files; return whether there are so many until then."""
    seen = 0

    def trace(frame: Any, event: str, argument: Any) -> Any:
        nonlocal seen
        if not frame.f_code.co_filename.endswith(files):
            return None
        seen += event == "line"
        if event == "line" and seen == line:
            raise KeyboardInterrupt
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        with suppress(KeyboardInterrupt), context():
            sys.settrace(before)
    finally:
        sys.settrace(before)
    return seen >= line


def generators() -> tuple[Any, Any, Any]:
    """What a user's code would draw from next: numpy's and Python's generators, and the state of numpy's."""
    state: Any = np.random.get_state()
    return mtrand.get_bit_generator(), random.getstate(), (state[0], state[1].tolist(), *state[2:])


@pytest.mark.parametrize("backend", ["numpy", *BOTH])
def test_generators_are_given_back_where_a_signal_raises_at_the_exchange(backend):
    """A signal that raises while they are exchanged leaves none that an agent's stream has seeded."""

    def context() -> AbstractContextManager[None]:
        return numpy_seeded(3) if backend == "numpy" else make_backend(backend).seeded(np.random.default_rng(3))

    with context():
        pass  # what is made at the first use is there
    before, line = generators(), 1
    while interrupted(context, "randomness.py", line):
        left = generators()
        mtrand.set_bit_generator(before[0])
        random.setstate(before[1])
        assert left == before, f"line {line}"
        line += 1
    assert line > 4


def test_random_numbers_within_depend_on_the_seed_alone():
    drawn = []
    for outside in (1, 2):
        np.random.seed(outside)
        after = np.random.random(2)
        np.random.seed(outside)
        with numpy_seeded(5):
            drawn.append(np.random.random(3).tolist())
        assert (np.random.random(2) == after).all()
    assert drawn[0] == drawn[1]
