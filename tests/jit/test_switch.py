"""A choice among compiled functions by number."""

import numpy as np
import pytest

from marltrain.jit.compiling import compiled, dependencies, inner, python_function
from marltrain.jit.switch import switch
from marltrain.jit.views import address_of, i64


@inner
def doubled(x, y):
    i64(y, 1)[0] = 2 * x


@inner
def negative(x, y):
    i64(y, 1)[0] = -x


choose = switch((doubled, negative))


@compiled
def called(number, x, y):
    choose(number, x, y)


@pytest.mark.parametrize(("number", "expected"), [(0, 14), (1, -7), (2, 99), (-1, 99)])
def test_the_function_with_the_number_is_called(number, expected):
    out = np.array([99])
    called(number, 7, address_of(out))
    assert out[0] == expected


def test_machine_code_depends_on_the_functions():
    """A changed function must not be loaded from disk with its old code."""
    texts = list(dependencies(python_function(called)))
    for function in (doubled, negative):
        assert any(python_function(function).__code__.co_code.hex() in text for text in texts)
