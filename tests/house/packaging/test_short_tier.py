"""The short tier runs in environments away from the repository."""

import ast
from pathlib import Path

import pytest

from tests.house.repository import ROOT, parsed, place
from tests.tiers import SHORT

OF_THE_REPOSITORY = ("benchmarks", "docs", "examples", "tests.house")


def repository_of(tree: ast.Module) -> set[str]:
    """Return the imports of a test, and its constants, that name a part of the repository beside the tests."""
    named = [node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    named += [alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names]
    texts = [node.value for node in ast.walk(tree) if isinstance(node, ast.Constant) and isinstance(node.value, str)]
    files = {text for text in texts if text.startswith(tuple(f"{part}/" for part in OF_THE_REPOSITORY))}
    return files | {name for name in named if name == "tests.house" or name.startswith(OF_THE_REPOSITORY)}


def files_of(entry: str) -> list[Path]:
    """Return the tests of an entry of the tier, a file or a folder."""
    return sorted((ROOT / entry).rglob("test_*.py")) if (ROOT / entry).is_dir() else [ROOT / entry]


@pytest.mark.parametrize("entry", SHORT)
def test_entry_exists_and_needs_no_repository(entry):
    files = files_of(entry)
    assert files and all(path.is_file() for path in files)
    assert not [(place(path), found) for path in files if (found := repository_of(parsed(path)))]


@pytest.mark.parametrize(
    ("line", "needs"),
    [
        ("import examples.apples", True), ("from tests.house.pages import blocks_of", True),
        ("from tests import toys", False), ("x = 'docs/limits.md'", True), ("from benchmarks import learn", True),
        ("x = 'docs'", False),
    ],
)  # fmt: skip
def test_a_need_of_the_repository_is_noticed(line, needs):
    assert bool(repository_of(ast.parse(line))) is needs
