"""The interpreter is compiled once, and another process loads it from disk."""

import subprocess
import sys

import numpy as np

from marltrain.policies.tape.assembly.assembler import Assembler
from marltrain.policies.tape.instructions import NUMBERS
from marltrain.policies.tape.interpreter.interpreter import interpreter
from marltrain.policies.tape.program import Program

RUN = """
import numpy as np
from marltrain.policies.tape.assembly.assembler import Assembler
from marltrain.policies.tape.interpreter.interpreter import interpreter
from marltrain.policies.tape.program import Program

Program(Assembler({}).table()).execution().run()
print(sum(interpreter().stats.cache_hits.values()), sum(interpreter().stats.cache_misses.values()))
"""


def test_another_process_loads_it():
    Program(Assembler({}).table()).execution().run()  # compiled, and on disk
    done = subprocess.run([sys.executable, "-c", RUN], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["1", "0"]


def test_one_machine_code_for_all_tables():
    for size in (3, 300):
        assembler = Assembler({}, by_agent=False)
        x = np.ones(size, np.float32)
        out = assembler.segment("x", x.shape, "float", "block", written=True)
        assembler.emit("block", "zero", out=out, size=size)
        execution = Program(assembler.table()).execution()
        execution.bind({"x": x})
        execution.run()
        assert not x.any()
    assert len(interpreter().signatures) == 1


def test_a_number_that_no_operation_has_does_nothing():
    assembler = Assembler({}, by_agent=False)
    assembler.emit("block", "nothing")
    table = assembler.table()
    table.instructions.flags.writeable = True
    table.instructions[0, 0] = len(NUMBERS)
    Program(table).execution().run()
