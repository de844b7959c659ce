"""The layout of instructions: 16 numbers, whose names depend on the operation."""

import pytest

from marltrain.policies.tape.instructions import (
    ARENA,
    BYTES,
    FIXED,
    FORMS,
    NUMBERS,
    OFFSET,
    SHIFT,
    WIDTH,
    instruction,
    place,
)
from marltrain.policies.tape.interpreter.interpreter import INSTRUCTIONS


def test_every_form_has_the_width_of_an_instruction():
    assert {form.itemsize for form in FORMS.values()} == {BYTES} == {8 * WIDTH}
    assert {(form.names or ("",))[0] for form in FORMS.values()} == {"operation"}


def test_every_operation_has_a_function():
    assert INSTRUCTIONS.keys() == FORMS.keys()


def test_an_instruction_by_the_names_of_its_fields():
    row = instruction("sum", out=7, inner=3, a_inner=2)
    assert len(row) == WIDTH
    names = FORMS["sum"].names or ()
    assert {name: value for name, value in zip(names, row, strict=True) if value} == {
        "operation": NUMBERS["sum"], "out": 7, "inner": 3, "a_inner": 2,
    }  # fmt: skip


def test_a_field_that_an_operation_lacks_is_refused():
    with pytest.raises(KeyError, match="columns"):
        instruction("sum", columns=3)


def test_places():
    made = place(ARENA, 640)
    assert (made >> SHIFT, made & OFFSET) == (FIXED.index("arena"), 640)
