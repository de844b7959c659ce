"""Rules for the sources: size, errors, safe reading, no unfinished code, tests that mirror the package."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from marltrain.policies.agents.registry import ALGORITHMS
from tests.house.repository import PACKAGE, ROOT, dotted, parsed, place, python_files

MAX_LINES = 400
CODE = ("marltrain", "examples", "benchmarks")
EVERYTHING = (*CODE, "tests", "docs")
NAME_ALGORITHMS = {"marltrain/policies/agents/registry.py", "marltrain/tools/doctor/answers.py"}
"""The registry, and the short training of the doctor."""
MIRRORS_NOTHING = {"gpu": "runs on a GPU", "house": "rules of the repository", "whole": "runs of the whole library"}
RUN_ELSEWHERE = {
    "spread.py": "make demo", "gallery.py": "make gallery", "crossing.py": "docs/tutorials/own_environment.md",
}  # fmt: skip
READ_THEIR_PARENT = {
    "marltrain/envs/workers/worker.py",
    "marltrain/policies/learner/parallel/replica.py",
    "marltrain/trainer/cluster/initial_priorities.py",
    "marltrain/trainer/cluster/messages.py",
}  # bytes of a process, not of a file

READERS = {"pickle", "cloudpickle", "dill", "joblib", "marshal", "shelve", "torch", "numpy.lib.format"}


READ_THEIR_OWN = {"marltrain/jit/machine_code.py"}  # with a checksum, written by this user, and by nobody else


def unsafe(tree: ast.Module) -> Iterator[tuple[ast.AST, str]]:
    """Yield calls that could execute code from a file: unpickling, eval, exec."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        called = dotted(node.func)
        module, _, name = called.rpartition(".")
        if called in ("eval", "exec") or (module in READERS and name in ("load", "loads", "open", "Unpickler")):
            yield node, called
        for keyword in node.keywords:
            wanted = {"allow_pickle": True, "weights_only": False}.get(keyword.arg or "")
            if wanted is not None and isinstance(keyword.value, ast.Constant) and keyword.value.value is wanted:
                yield node, f"{called}({keyword.arg}={wanted})"


def silent(handler: ast.ExceptHandler) -> bool:
    """Return whether a handler catches all exceptions, or ignores an exception."""
    if handler.type is None:
        return True
    does_nothing = all(isinstance(line, ast.Pass) for line in handler.body)
    return does_nothing and dotted(handler.type) in ("Exception", "BaseException")


def test_file_length_limit() -> None:
    lengths = {place(path): len(path.read_text(encoding="utf-8").splitlines()) for path in python_files(*EVERYTHING)}
    assert not {name: lines for name, lines in lengths.items() if lines > MAX_LINES}


def test_no_handler_ignores_exceptions() -> None:
    found = [
        place(path, node)
        for path in python_files(*EVERYTHING)
        for node in ast.walk(parsed(path))
        if isinstance(node, ast.ExceptHandler) and silent(node)
    ]
    assert not found, found


@pytest.mark.parametrize(
    ("body", "seen"),
    [
        ("except:\n    raise", True),
        ("except Exception:\n    pass", True),
        ("except KeyError:\n    pass", False),
        ("except Exception as error:\n    report(error)", False),
    ],
)
def test_ignored_exception_is_detected(body: str, seen: bool) -> None:
    (handler,) = (node for node in ast.walk(ast.parse(f"try:\n    f()\n{body}")) if isinstance(node, ast.ExceptHandler))
    assert silent(handler) is seen


def test_package_contains_no_assert_statements() -> None:
    """`python -O` removes assertions; a wrong argument must raise an error of `marltrain.core.errors`."""
    found = [
        place(path, node)
        for path in python_files("marltrain")
        for node in ast.walk(parsed(path))
        if isinstance(node, ast.Assert)
    ]
    assert not found, found


def test_no_file_is_read_by_executing_it() -> None:
    found = [
        f"{place(path, node)} {what}"
        for path in python_files(*CODE)
        for node, what in unsafe(parsed(path))
        if not (what == "cloudpickle.loads" and place(path) in READ_THEIR_PARENT)
        and not (what == "pickle.loads" and place(path) in READ_THEIR_OWN)
    ]
    assert not found, found


@pytest.mark.parametrize(
    "call",
    [
        "pickle.load(file)",
        "cloudpickle.loads(data)",
        "torch.load(path)",
        "np.load(path, allow_pickle=True)",
        "read(path, weights_only=False)",
        "eval(text)",
    ],
)
def test_unsafe_read_is_detected(call: str) -> None:
    assert list(unsafe(ast.parse(call)))


@pytest.mark.parametrize("call", ["json.load(file)", "np.load(path)", "mt.load(path)", "network.eval()"])
def test_safe_read_is_accepted(call: str) -> None:
    assert not list(unsafe(ast.parse(call)))


def test_no_todo_notes_and_no_stubs() -> None:
    """No TODO notes in the repository, no stubs in the package."""
    note = re.compile(r"\b(TODO|FIXME|XXX|HACK)\b")
    found = [
        f"{place(path)}:{number}"
        for path in python_files(*EVERYTHING)
        if path != Path(__file__)
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if note.search(line)
    ]
    found += [
        place(path, node)
        for path in python_files("marltrain")
        for node in ast.walk(parsed(path))
        if isinstance(node, ast.Raise) and node.exc and "'NotImplementedError'" in ast.dump(node.exc)
    ]
    assert not found, found


def test_no_test_is_skipped() -> None:
    skips = ("pytest.skip", "pytest.xfail", "pytest.importorskip", "pytest.mark.skip", "pytest.mark.skipif")
    found = [
        place(path, node)
        for path in python_files("tests")
        if path != ROOT / "tests" / "gpu" / "conftest.py"  # skipped without a GPU, with the reason
        for node in ast.walk(parsed(path))
        if isinstance(node, ast.Attribute) and dotted(node) in (*skips, "pytest.mark.xfail")
    ]
    assert not found, found


def mirrored(test: Path) -> bool:
    """Return whether tests/a/test_b_more.py has a subject: a module or folder marltrain/a/b, or examples/b.

    A suite over twins stands beside their folders: tests/a/test_b for marltrain/a/one/b and marltrain/a/other/b.
    """
    inside = test.relative_to(ROOT / "tests")
    if inside.parts[0] in MIRRORS_NOTHING:
        return True
    folder = ROOT / inside.parent if inside.parts[0] in ("examples", "benchmarks") else PACKAGE / inside.parent
    words = test.stem.removeprefix("test_").split("_")
    subjects = [folder / "_".join(words[:n]) for n in range(1, len(words) + 1)]
    twins = [path.stem for path in folder.glob("*/*.py")]
    return any(
        subject.with_suffix(".py").exists() or subject.is_dir() or twins.count(subject.name) > 1 for subject in subjects
    )


def test_every_test_file_matches_a_module() -> None:
    found = [place(path) for path in python_files("tests") if path.name.startswith("test_") and not mirrored(path)]
    assert not found, f"{found}: name each after what it tests, or put it in tests/whole"


def test_test_file_without_module_is_detected() -> None:
    tests = ROOT / "tests"
    assert mirrored(tests / "core" / "test_spec.py")
    assert mirrored(tests / "envs" / "python" / "test_turns_by_hand.py")
    assert mirrored(tests / "policies" / "backends" / "test_optimizers.py")
    assert not mirrored(tests / "policies" / "backends" / "test_copies.py")
    assert not mirrored(tests / "envs" / "test_nothing_there.py")


def test_every_example_is_run_by_a_test() -> None:
    sources = "\n".join(path.read_text(encoding="utf-8") for path in python_files("tests") if path != Path(__file__))
    found = [
        place(path)
        for path in python_files("examples")
        if path.name not in RUN_ELSEWHERE and path.name not in sources and f"examples.{path.stem}" not in sources
    ]
    assert not found, f"no test runs {found}"


def test_no_other_module_names_an_algorithm() -> None:
    """Only those of `NAME_ALGORITHMS` and the folder of algorithms import or name one; others find it by its name."""
    modules = {module for module, _ in ALGORITHMS.values()}
    found = []
    for path in python_files("marltrain"):
        if path.is_relative_to(PACKAGE / "policies" / "algorithms") or place(path) in NAME_ALGORITHMS:
            continue
        for node in ast.walk(parsed(path)):
            named = isinstance(node, ast.Constant) and node.value in ALGORITHMS
            imported = isinstance(node, ast.ImportFrom) and node.module in modules
            if named or imported:
                found.append(place(path, node))
    assert not found
