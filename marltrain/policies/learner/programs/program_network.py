"""ProgramNetwork: the outputs of a network for all rows of a rollout, by a program."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from marltrain.core.layout import Array
from marltrain.jit.threads import Threads
from marltrain.policies.backends.base import Backend, Forward, Network
from marltrain.policies.learner.programs.program_step import MOST_PROGRAMS, kept_within
from marltrain.policies.learner.programs.recorded_step import DTYPES, arrays_in, as_arrays
from marltrain.policies.learner.programs.row_blocks import RowBlocks
from marltrain.policies.learner.programs.step_program import LEAST_FOR_THREADS
from marltrain.policies.tape.assembly.assemble import assemble
from marltrain.policies.tape.assembly.assembler import Assembler
from marltrain.policies.tape.assembly.table import Role, Section
from marltrain.policies.tape.network import RecordedNetwork
from marltrain.policies.tape.over_minibatches import OverMinibatches
from marltrain.policies.tape.program import Program
from marltrain.policies.tape.recording import Recording
from marltrain.policies.tape.symbols import Tape

INPUT, OUTPUT = "input", "output"
"""Beginnings of the names of segments."""
WEIGHTS = f"weights/{INPUT}"
"""The segment of the network's weights."""
GROUPS = 16
"""Groups of an agent's blocks, the tasks of threads."""


def evaluated(
    nets: Mapping[str, Network], backend: Backend, blocks: RowBlocks, threads: Threads
) -> dict[str, Forward]:  # fmt: skip
    """Return networks whose outputs for many rows programs compute; the others as they are.

    Others are those that cannot be recorded: models of the user, networks of images and ensembles.
    threads: divide the rows.
    """
    plans = {name: getattr(net, "plan", None) for name, net in nets.items()}
    return {
        name: net if plan is None or plan.images or plan.members > 1 else ProgramNetwork(net, backend, blocks, threads)
        for (name, net), plan in zip(nets.items(), plans.values(), strict=True)
    }


class ProgramNetwork:
    """The stacked networks of K agents; a call computes the outputs of rows without gradients.

    The outputs of a row do not depend on the number of rows.
    """

    def __init__(self, net: Any, backend: Backend, blocks: RowBlocks, threads: Threads) -> None:
        """Store the network, whose weights are read where they are."""
        self.net, self.backend, self.blocks, self.threads = net, backend, blocks, threads
        self._programs: dict[Any, tuple[Program, tuple[tuple[int, ...], ...]]] = {}
        self._kept: dict[Any, OverMinibatches] = {}

    def __call__(self, *inputs: Any) -> list[Any]:
        """Return the outputs [K, B, ...] of inputs [K, B, ...], as the network does."""
        given = {str(i): as_arrays(self.backend, each) for i, each in enumerate(inputs)}
        arrays = arrays_in(given, INPUT)
        agents, rows = next(iter(arrays.values())).shape[:2]
        wide = self.blocks.widened(rows)
        kinds = tuple((name, array.shape[2:], array.dtype.char) for name, array in arrays.items())
        if (found := self._programs.get(kinds)) is None:
            found = self._programs[kinds] = self._recorded(given)
        program, shapes = found
        passes = self._passes(program, (kinds, agents, wide))
        (execution,) = passes.executions
        outputs = [np.empty((agents, wide, *shape), np.float32) for shape in shapes]
        named = {name: self._padded(array, wide) for name, array in arrays.items()}
        named |= {f"{OUTPUT}/{i}": output for i, output in enumerate(outputs)}
        execution.exchange(named)
        if (weights := self.net.numbers()) is not execution.arrays.get(WEIGHTS):
            execution.bind({WEIGHTS: weights})
        if execution.multiply_adds < LEAST_FOR_THREADS:
            execution.run()
        else:
            passes.run(np.ones((1, 1, agents), np.bool_), self.threads, self.backend.threads())
        for name in named:  # not the weights, which stay where they are
            del execution.arrays[name]
        return [self.backend.tensor(output[:, :rows]) for output in outputs]

    def _passes(self, program: Program, kind: tuple[Any, int, int]) -> OverMinibatches:
        """Return the program with buffers for inputs of a kind: names and types, agents, rows."""
        if (passes := self._kept.get(kind)) is None:
            _, agents, rows = kind
            whole, rests = self.blocks.of(rows)
            groups = min(GROUPS, whole + rests)
            execution = program.execution(agents=agents, blocks=whole, rests=rests, groups=groups)
            passes = kept_within(self._kept, MOST_PROGRAMS)[kind] = OverMinibatches([execution])
        return passes

    def _padded(self, array: Array, rows: int) -> Array:
        """Return an array [K, B, ...] with so many rows, without gaps."""
        if (missing := rows - array.shape[1]) == 0:
            return np.ascontiguousarray(array)
        return np.concatenate([array, np.zeros((len(array), missing, *array.shape[2:]), array.dtype)], 1)

    def _recorded(self, given: Any) -> tuple[Program, tuple[tuple[int, ...], ...]]:
        """Return the program for inputs of these shapes, and the shapes of a row of each output."""
        recordings: dict[Section, Recording] = {
            "block": self._recording(given, self.blocks.block), "rest": self._recording(given, self.blocks.rest)
        }  # fmt: skip
        outputs = recordings["block"].outputs
        roles: dict[str, Role] = dict.fromkeys([*arrays_in(given, INPUT), *outputs], "rows")
        assembler = Assembler(roles)
        for section, recording in recordings.items():
            assemble(assembler, section, recording)
        return Program(assembler.table()), tuple(value.shape[2:] for value in outputs.values())

    def _recording(self, given: Any, rows: int) -> Recording:
        tape = Tape()
        network = RecordedNetwork(tape, INPUT, self.net.plan, 1)

        def symbols(tree: Any, path: str) -> Any:
            if isinstance(tree, Mapping):
                return {name: symbols(part, f"{path}/{name}") for name, part in tree.items()}
            return None if tree is None else tape.input(path, (1, rows, *tree.shape[2:]), DTYPES[tree.dtype])

        with tape.no_gradient():
            outputs = network(*symbols(given, INPUT).values())
        return Recording(
            tape, {f"{OUTPUT}/{i}": value.broadcast((1, rows, *value.shape[2:])) for i, value in enumerate(outputs)}, ()
        )
