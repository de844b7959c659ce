"""Functions that are linked into programs: no machine code of their own, and the numbers of plain Python."""

from typing import Any

import numba
import numpy as np
import pytest
from numba.core.registry import cpu_target

from marltrain.jit.compiling import compiled, inner


@inner
def half(x):
    return 0.5 * x


@inner
def halved_sum(values):
    total = 0.0
    for value in values:
        total += half(value)
    return total


@inner
def power(base, exponent):
    return base * power(base, exponent - 1) if exponent else 1.0


@compiled
def cube(base):
    return power(base, 3)


@compiled
def two_sums(values):
    return halved_sum(values), halved_sum(values[1:])


def test_a_chain_of_functions_computes_as_python_does():
    values = np.array([1.0, 4.0, -2.5])
    assert two_sums(values) == (0.5 * 2.5, 0.5 * 1.5)
    assert two_sums(values.astype(np.float32)) == (0.5 * 2.5, 0.5 * 1.5)


def test_a_function_that_calls_itself_may_get_numbers_of_the_code():
    """Numba alone compiles a version for the number 3, which does not find the one for any number."""
    assert cube(2.0) == 8.0


def test_only_the_program_has_machine_code():
    engine = cpu_target.target_context.codegen()._engine

    def third(x):
        return x / 3.0

    for make, has_code in ((inner, False), (compiled, True)):
        made: Any = make(third)
        dispatcher = getattr(made, "_made", made)
        dispatcher.compile((numba.float64,))
        (result,) = dispatcher.overloads.values()
        assert engine.is_symbol_defined(result.fndesc.mangled_name) is has_code


@inner
def positive(x):
    if x <= 0:
        raise ValueError("expected a positive number, got", x)
    return x


@compiled
def positive_half(x):
    return half(positive(x))


def test_an_error_names_its_numbers():
    assert positive_half(3) == 1.5
    with pytest.raises(ValueError) as error:
        positive_half(-2)
    assert error.value.args == ("expected a positive number, got", -2)
