"""Compiled code on disk: found again by its key, wherever numba keeps it; and a key for all that a function reaches."""

import importlib.util
import os
import subprocess
import sys
import textwrap
import types
from pathlib import Path

import numpy as np
import pytest
from numba import int64
from numba.extending import intrinsic

from marltrain.core.errors import EnvError
from marltrain.jit import compiling, views
from marltrain.jit.cache import cache_folder
from marltrain.jit.compiling import (
    cached_on_disk,
    compiled,
    dependencies,
    inner,
    key_of,
    program,
    python_function,
)

RULES = """
import math
import numpy as np
from numba import float32
from marltrain.jit.compiling import compiled
import helping
from helping import add

ONE = {one}
TABLE = np.array({table})
UNUSED = {unused}

@compiled
def own(x):
    return x + ONE

def rule(x):
    def within(y):
        return y + {within}
    return own(x) + helping.gain(x) + add(x) + TABLE[0] + float32(math.sqrt(4.0))
"""
HELPING = """
STEP, OTHER = {step}, {other}

def gain(x):
    return deeper(x)

def deeper(x):
    return x * STEP if x < 1 else gain(x - 1)

def add(x):
    return x

def aside(x):
    return x + {aside}
"""
SAME = {"one": 1, "table": [1.0], "unused": 3, "within": 0, "step": 2, "other": 5, "aside": 0}


def module(monkeypatch: pytest.MonkeyPatch, folder: Path, name: str, text: str) -> types.ModuleType:
    """Load a module from a file of this text, and let others find it."""
    path = folder / f"{name}.py"
    path.write_text(textwrap.dedent(text))
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    result = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, name, result)
    spec.loader.exec_module(result)
    return result


@pytest.fixture
def told(tmp_path, monkeypatch):
    """A function that returns what is said of `rule` where constants are so.

    Python does not keep compiled modules meanwhile: it knows one by the second and the size of its file.
    """
    monkeypatch.setattr(sys, "dont_write_bytecode", True)

    def told(**constants):
        values = {**SAME, **constants}
        module(monkeypatch, tmp_path, "helping", HELPING.format(**values))
        return list(dependencies(module(monkeypatch, tmp_path, "rules", RULES.format(**values)).rule))

    return told


@pytest.mark.parametrize(
    "change", [{"one": 7}, {"one": 1.0}, {"table": [2.0]}, {"table": [1.0, 1.0]}, {"table": [1]}, {"within": 9},
               {"step": 3}],
)  # fmt: skip
def test_a_change_in_whatever_is_reached_is_told(told, change):
    """A constant here, an array's value, shape and kind, a function within, and a constant of another module."""
    assert told() == told()
    assert told(**change) != told()


@pytest.mark.parametrize("change", [{"unused": 8}, {"other": 6}, {"aside": 1}])
def test_what_is_not_reached_is_not_told(told, change):
    assert told(**change) == told()


def test_a_key_is_of_what_is_told_in_order():
    assert key_of("a", "b") == key_of("a", "b")
    assert len({key_of("a", "b"), key_of("b", "a"), key_of("a"), key_of()}) == 4


def test_instructions_written_by_hand_are_told_with_what_they_enclose():
    """Two that differ only in a number around them, and one that writes something else."""

    def times(factor, add):
        def generate(context, builder, signature, arguments):
            result = builder.mul(arguments[0], arguments[0].type(factor))
            return builder.add(result, arguments[0]) if add else result

        def written(_, x):
            return int64(int64), generate

        return intrinsic(written)

    def used(factor, add=False):
        instruction = times(factor, add)
        result = compiled(lambda x: instruction(x))
        return list(dependencies(python_function(result)))

    assert used(2) == used(2)
    assert len({str(used(2)), str(used(3)), str(used(2, add=True))}) == 3


def test_arrays_of_another_kind_are_another_program():
    """Whoever makes them is one function, which encloses the kind."""
    assert list(dependencies(python_function(views.f32))) != list(dependencies(python_function(views.f64)))


def test_the_function_behind_one_that_is_compiled():
    def rule(x):
        return x

    assert python_function(compiled(rule)) is rule
    assert python_function(rule) is rule


def hits(function, expected=4):
    """Call a kept function, and return how many programs were loaded from disk for it."""
    assert function(3) == expected
    return sum(function.stats.cache_hits.values())


def adder(monkeypatch, folder: Path):
    return module(monkeypatch, folder, "adder", "def add(x):\n    return x + 1\n").add


def test_a_program_is_compiled_once_and_then_loaded_from_its_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path / "cache"))
    assert cache_folder() == tmp_path / "cache" / "marltrain" / "native"
    add = adder(monkeypatch, tmp_path)
    assert [hits(cached_on_disk(add, key)) for key in ("first", "first", "second", "first")] == [0, 1, 0, 1]
    assert {path.name for path in cache_folder().iterdir()} == {"first", "second"}


def test_no_file_of_the_working_folder_chooses_the_cache(tmp_path, monkeypatch):
    """Numba has read these settings from `.numba_config.yaml`; it gets them back for functions of others."""
    own = {"CACHE_DIR": str(tmp_path / "theirs"), "CACHE_LOCATOR_CLASSES": "theirs.Locator"}
    for name, value in own.items():
        monkeypatch.setattr(compiling._CONFIG, name, value)
    monkeypatch.delenv("NUMBA_CACHE_DIR", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    assert cache_folder() == tmp_path / "cache" / "marltrain" / "native"
    function = cached_on_disk(adder(monkeypatch, tmp_path), "first")
    assert {name: getattr(compiling._CONFIG, name) for name in own} == own
    assert hits(function) == 0
    assert [path.name for path in cache_folder().iterdir()] == ["first"]
    assert not (tmp_path / "theirs").exists()


def test_where_that_folder_cannot_be_written_another_key_is_still_another_program(tmp_path, monkeypatch):
    """Numba keeps it beside the source then, where it would look at that file alone."""
    (tmp_path / "cache").write_text("a file, and no folder")
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path / "cache"))
    add = adder(monkeypatch, tmp_path)
    assert [hits(cached_on_disk(add, key)) for key in ("first", "first", "second")] == [0, 1, 0]


def test_code_that_can_be_kept_nowhere_is_told():
    """It comes from no file."""
    names: dict = {}
    exec("def add(x):\n    return x + 1", names)
    with pytest.raises(EnvError, match=r"compiled code cannot be kept: .* Set NUMBA_CACHE_DIR"):
        cached_on_disk(names["add"], "key")


def test_compiled_code_divides_as_numpy_does():
    """By zero, without a test at every division."""

    @compiled
    def divided(x, y):
        return x / y

    assert divided(1.0, 0.0) == np.inf


@inner
def doubled(x):
    return 2 * x


@compiled
def twice_doubled(x):
    return doubled(doubled(x))


def test_what_only_compiled_code_calls():
    assert twice_doubled(1.5) == 6.0
    with pytest.raises(TypeError, match=r"doubled is for compiled code: call it .*, or doubled.py_func from Python"):
        doubled(1.5)
    assert python_function(doubled)(1.5) == 3.0


def test_its_code_is_told_where_it_is_reached():
    code = python_function(doubled).__code__.co_code.hex()
    assert any(code in data for data in dependencies(python_function(twice_doubled)))


def test_a_program_of_its_own(tmp_path, monkeypatch):
    """Its folder is named by its code and by the records that it reads."""
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    records = np.dtype([("a", np.int64)]), np.dtype([("b", np.int64)])
    result = [program(twice_doubled, record) for record in (*records, records[0])]
    assert [hits(one, 12) for one in result] == [0, 0, 1]
    assert len(list(cache_folder().iterdir())) == 2


LOADING = """
import math
import sys
from marltrain.jit.compiling import cached_on_disk, inner, key_of

LONG = "x = math.sin(x) + math.exp(x)" + chr(10)  # too long for LLVM to copy it into its caller

for n in map(int, sys.argv[1:]):
    exec("def number(x):" + chr(10) + 40 * ("    " + LONG) + f"    return {n} if x != 0.125 else 0")
    number = inner(number)
    def run(x):
        return number(x)
    print(cached_on_disk(run, key_of(str(n)))(-9.0))
"""


def test_programs_of_two_processes_keep_their_functions_in_a_third(tmp_path):
    """Both have a function of one name; the symbols of the machine code must have other names."""
    script = tmp_path / "loading.py"
    script.write_text(LOADING)
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path / "kept")}

    def printed(*numbers):
        command = [sys.executable, str(script), *numbers]
        return subprocess.run(command, env=environment, check=True, capture_output=True, text=True).stdout.split()

    assert [printed("2"), printed("3"), printed("2", "3")] == [["2"], ["3"], ["2", "3"]]


def test_a_compilation_is_told_and_what_comes_from_disk_is_not(tmp_path, monkeypatch):
    """Two programs of one key: the first is compiled, the second loaded. What a program calls is a part of it."""
    monkeypatch.setattr(compiling, "cache_folder", lambda: tmp_path)
    data: list[str] = []
    monkeypatch.setattr(compiling, "Compilation", Noted(data))

    def made():
        def outer(x):
            return times(x)

        return compiling.cached_on_disk(outer, "told")

    assert made()(2) == 6
    assert data == ["machine code (test_compiling)", "done"]
    assert made()(3) == 9
    assert data == ["machine code (test_compiling)", "done"]


@compiling.compiled
def times(x):
    return 3 * x


class Noted:
    def __init__(self, told):
        self.told = told

    def __call__(self, what):
        self.told.append(what)
        return self

    def done(self):
        self.told.append("done")
