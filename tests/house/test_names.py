"""Names that were replaced do not come back into the package."""

import ast
import re
from collections.abc import Iterator

import pytest

from tests.house.repository import parsed, place, python_files

OLD_IDENTIFIERS = {
    "supply": "custom_objects",
    "Supply": "CustomObjects",
    "Pace": "UpdateSchedule",
    "check_pace": "check_schedule",
    "vouched": "declares",
    "JointPhase": "Phase",
    "joint_phases": "phases",
    "double_buffer": "workers, or collect='overlap'",
}
"""Name of an argument, a variable, a class, a function or an attribute -> the name in its place."""
OLD_MEMBERS = {
    ("Streams", "arrived"): "record_step",
    ("Streams", "decided"): "record_actions",
    ("Streams", "remember"): "record_step",
    ("Algorithm", "act_with_carry"): "act",
    ("Weights", "follow"): "update_targets",
    ("GradientSteps", "follow"): "update_targets",
    ("Measurements", "follow"): "measure",
}
"""(Class, method) -> the name in its place."""
OLD_IN_FILES = {
    ("marltrain/jit/views.py", "numbers"): "f32",
    ("marltrain/jit/views.py", "wholes"): "i64",
    ("marltrain/jit/views.py", "outcomes"): "f64",
    ("marltrain/jit/views.py", "flags"): "bools",
    ("marltrain/policies/compiled/optimizers.py", "follow"): "update_target",
}
"""(File, identifier in it) -> the name in its place."""
OLD_FILES = {
    "supply": "custom_objects", "trained": "learner_snapshot", "pace": "update_schedule", "lending": "shard_agents",
    "claims": "in_use", "ending": "finish", "people": "human_player", "catalogue": "catalog",
    "identity": "player_one_hot",
}  # fmt: skip
"""Name of a module -> the name in its place."""
BRITISH = re.compile(
    r"optimis(?!t|m)|normalis|prioritis|initialis|serialis|centralis|regularis|synchronis|organis|minimis|maximis"
    r"|summaris|factoris|recognis|colour|behaviour|neighbour|favour|catalogue|labelled|modelled|grey",
    re.IGNORECASE,
)
"""British spellings; the package is written in American English."""
OF_THE_ORIGINAL = {"normalised_coordinates"}
"""Names that an environment's original gives to its arguments."""


def old_names(tree: ast.Module, file: str) -> Iterator[tuple[ast.AST, str, str]]:
    """Yield (place, old name, name to use) of a file's old identifiers and methods."""
    for node in ast.walk(tree):
        for name in identifiers(node):
            if new := OLD_IDENTIFIERS.get(name) or OLD_IN_FILES.get((file, name)):
                yield node, name, new
        if isinstance(node, ast.ClassDef):
            for part in node.body:
                if isinstance(part, ast.FunctionDef) and (node.name, part.name) in OLD_MEMBERS:
                    yield part, f"{node.name}.{part.name}", OLD_MEMBERS[node.name, part.name]


def identifiers(node: ast.AST) -> Iterator[str]:
    """Yield the names that a node defines or uses."""
    for field in ("id", "attr", "arg", "name", "asname"):
        if isinstance(name := getattr(node, field, None), str):
            yield from name.split(".")


def british(text: str) -> Iterator[tuple[int, str]]:
    """Yield (line, word) of a text's British spellings."""
    for number, line in enumerate(text.splitlines(), 1):
        words = (word for word in re.findall(r"\w+", line) if BRITISH.search(word))
        yield from ((number, word) for word in words if word not in OF_THE_ORIGINAL)


def test_old_names_do_not_come_back() -> None:
    found = [
        f"{place(path, node)}: {old} is called {new}"
        for path in python_files("marltrain")
        for node, old, new in old_names(parsed(path), place(path))
    ]
    assert not found, "\n".join(found)


def test_old_files_do_not_come_back() -> None:
    files = [path for path in python_files("marltrain") if path.stem in OLD_FILES]
    found = [f"{place(path)} is called {OLD_FILES[path.stem]}" for path in files]
    assert not found, "\n".join(found)


def test_the_package_is_written_in_american_english() -> None:
    found = [
        f"{place(path)}:{line}: {word}"
        for path in python_files("marltrain")
        for line, word in british(path.read_text(encoding="utf-8"))
    ]
    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    ("code", "file", "old"),
    [
        ("def load(path, supply=None): pass", "marltrain/policies/agents/saving.py", ["supply"]),
        ("load(path, supply={})", "marltrain/cli/runs.py", ["supply"]),
        ("from marltrain.policies.agents import supply", "marltrain/cli/runs.py", ["supply"]),
        ("import marltrain.policies.agents.supply", "marltrain/cli/runs.py", ["supply"]),
        ("class Pace: pass", "marltrain/trainer/updating/updates.py", ["Pace"]),
        ("run.double_buffer = 2", "marltrain/trainer/run.py", ["double_buffer"]),
        ("class Streams:\n    def arrived(self): pass", "marltrain/policies/memory/streams.py", ["Streams.arrived"]),
        ("class Clock:\n    def arrived(self): pass", "marltrain/trainer/run.py", []),
        ("wholes = _array_of(int64)", "marltrain/jit/views.py", ["wholes"]),
        ("def wholes(address): pass", "marltrain/trainer/run.py", []),
        ("'supply'", "marltrain/trainer/run.py", []),
    ],
)
def test_an_old_name_is_detected(code: str, file: str, old: list[str]) -> None:
    assert [name for _, name, _ in old_names(ast.parse(code), file)] == old


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("optimiser = Adam()\ncolour_of(x)", [(1, "optimiser"), (2, "colour_of")]),
        ("RunningNormalisation", [(1, "RunningNormalisation")]),
        ("optimizer, optimistic, color, supervised, normalised_coordinates", []),
    ],
)
def test_a_british_spelling_is_detected(text: str, words: list[tuple[int, str]]) -> None:
    assert list(british(text)) == words
