"""Recordings and single instructions carried out by the interpreter."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from marltrain.policies.tape.assembly.assemble import assemble
from marltrain.policies.tape.assembly.assembler import Assembler
from marltrain.policies.tape.assembly.table import Table
from marltrain.policies.tape.operations import DType
from marltrain.policies.tape.program import Program
from marltrain.policies.tape.recording import Recording

KINDS: dict[str, DType] = {"float32": "float", "int64": "integer", "bool": "bytes", "uint8": "pixels"}
EDGE = 40
"""Numbers watched on either side: more than the widest vector holds."""


class Amid:
    """An array in the midst of NaN, or of 77 if it has integers, which must stay."""

    def __init__(self, values: Any, kind: Any = np.float32) -> None:
        values = np.asarray(values, kind)
        around = np.nan if values.dtype == np.float32 else 77
        self._all = np.full(values.size + 2 * EDGE, around, values.dtype)
        self.array = self._all[EDGE : EDGE + values.size].reshape(values.shape)
        self.array[...] = values
        self._before = self._all.copy()

    def assert_kept(self) -> None:
        for part in (slice(EDGE), slice(EDGE + self.array.size, None)):
            np.testing.assert_array_equal(self._all[part], self._before[part])


def carry_out(operation: str, out: Any, arrays: Mapping[str, Any], **fields: int) -> Any:
    """Carry out one instruction; return its result `out` (which may hold numbers before).

    arrays: by the fields of the instruction that are places.
    """
    return carry_out_all(operation, {"out": out, **arrays}, **fields)["out"]


def carry_out_all(operation: str, arrays: Mapping[str, Any], **fields: int) -> dict[str, Any]:
    """Carry out one instruction; return copies of its arrays afterwards. Nothing may be written beside them.

    arrays: by the fields of the instruction that are places.  fields: its numbers, and places in other segments.
    """
    assembler = Assembler({}, by_agent=False)
    assembler.zeros(EDGE)
    held = {name: Amid(array, np.asarray(array).dtype) for name, array in arrays.items()}
    places = {
        name: assembler.segment(f"the {name}", each.array.shape, KINDS[each.array.dtype.name], "block", written=True)
        for name, each in held.items()
    }
    assembler.emit("block", operation, **places, **fields)
    execution = Program(assembler.table()).execution()
    execution.bind({f"the {name}": each.array for name, each in held.items()})
    execution.run()
    for each in held.values():
        each.assert_kept()
    return {name: each.array for name, each in held.items()}


def unary(operation: str, x: Any) -> Any:
    """Return the result of an operation on numbers [N]."""
    x = np.asarray(x, np.float32)
    out = np.full(x.shape, 77, np.float32)
    return carry_out(operation, out, {"a": x}, rows=1, columns=x.size, a_column=1)


def table_of(recording: Recording, *, checks: bool = False) -> Table:
    """Return the table of a recording of all rows of a team, in one block."""
    assembler = Assembler({}, by_agent=False, checks=checks)
    assemble(assembler, "block", recording)
    return assembler.table()


def execute(
    recording: Recording, inputs: Mapping[str, Any], weights: Mapping[str, Any], *, checks: bool = False
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the outputs by name and the gradients by network, as `evaluate` does."""
    table = table_of(recording, checks=checks)
    execution = Program(table).execution()
    given = {**inputs, **{f"weights/{name}": array for name, array in weights.items()}}
    gradients = {name: np.zeros_like(array) for name, array in weights.items()}
    arrays, outputs = {}, {}
    for segment in table.segments:
        if segment.name in given:
            array = np.ascontiguousarray(given[segment.name])
            arrays[segment.name] = array.view(np.bool_) if segment.dtype == np.bool_ else array
        elif segment.name.startswith("gradient/"):
            arrays[segment.name] = gradients[segment.name.removeprefix("gradient/")]
        else:
            arrays[segment.name] = outputs[segment.name] = np.full(segment.shape, 77, segment.dtype)
    execution.bind(arrays)
    execution.run()
    return outputs, gradients
