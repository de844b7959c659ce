"""The public names: sorted, importable, documented, and visible to type checkers."""

import ast
import importlib
import inspect
import re
from dataclasses import fields
from pathlib import Path
from textwrap import dedent

import pytest

import marltrain
from marltrain.policies.agents.registry import ALGORITHMS, agent_class
from tests.house.repository import PACKAGE, ROOT, parsed

ENTRY = re.compile(r"^\.\. auto(?:class|function|exception):: (\w+)$", re.MULTILINE)
IN_TABLE = re.compile(r"^   (\w+)$", re.MULTILINE)


def test_public_names_are_sorted_and_unique() -> None:
    assert list(marltrain.__all__) == sorted(set(marltrain.__all__))


@pytest.mark.parametrize("name", marltrain.__all__)
def test_public_name_exists_and_has_a_docstring(name: str) -> None:
    found = getattr(marltrain, name)
    home = marltrain._HOME[name]
    assert f"{found.__module__}.".startswith(f"{home}."), f"{name} is defined in {found.__module__}, not in {home}"
    assert found.__doc__, f"{name} has no docstring"
    inherited = inspect.isclass(found) and any(found.__doc__ is base.__doc__ for base in found.__mro__[1:])
    assert not inherited, f"{name} has no docstring of its own"


def test_api_overview_names_each_public_name_once() -> None:
    """Each name has a page of its own, or is the agent of an algorithm, which its algorithm's page documents."""
    named = re.findall(IN_TABLE, (ROOT / "docs" / "api.rst").read_text(encoding="utf-8"))
    assert sorted(named) == list(marltrain.__all__)
    for name, (_, agent) in ALGORITHMS.items():
        page = ROOT / "docs" / "algorithms" / f"{name}.md"
        assert re.findall(ENTRY, page.read_text(encoding="utf-8")) == [agent]


def test_api_examples_are_those_of_public_names() -> None:
    pages = [path.read_text(encoding="utf-8") for path in (ROOT / "docs" / "api_examples").glob("*.md")]
    names = [name for page in pages for name in re.findall(r"^## (.+)$", page, re.MULTILINE)]
    assert len(names) == len(set(names)) > 80
    assert set(names) <= set(marltrain.__all__)


def guarded_imports(file: Path) -> dict[str, str | None]:
    """Return the names that a file imports for type checkers and exports, with their modules."""
    guarded = next(node for node in parsed(file).body if isinstance(node, ast.If))
    return {
        alias.asname: node.module
        for node in guarded.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
        if alias.asname is not None
    }


def test_type_checking_imports_match_the_lazy_imports() -> None:
    algorithms = guarded_imports(PACKAGE / "policies" / "algorithms" / "__init__.py")
    assert algorithms == {agent: module for module, agent in ALGORITHMS.values()}
    assert guarded_imports(PACKAGE / "__init__.py") | algorithms == marltrain._HOME


@pytest.mark.parametrize("name", ALGORITHMS)
def test_type_checkers_know_the_settings_of_an_agent_class(name: str) -> None:
    kind = agent_class(name)
    arguments = getattr(importlib.import_module(kind.__module__), f"{kind.__name__}Arguments")
    assert issubclass(arguments, marltrain.AgentArguments)
    assert issubclass(arguments, kind.algorithm_class.Settings)
    assert {f.name for f in fields(arguments)} == set(inspect.signature(kind).parameters)
    assert dedent(inspect.getsource(kind.__init__)).startswith(f"@accepts({arguments.__name__})\n")


def test_dir_lists_the_public_names() -> None:
    assert set(marltrain.__all__) | {"__version__"} == set(dir(marltrain))


def test_unknown_name_raises_attribute_error() -> None:
    with pytest.raises(AttributeError, match="'marltrain' has no attribute 'PPPO'"):
        _ = marltrain.PPPO


def test_type_information_is_packaged() -> None:
    assert (PACKAGE / "py.typed").exists()


@pytest.mark.parametrize("name", ALGORITHMS)
def test_algorithm_is_registered_by_its_name(name: str) -> None:
    assert agent_class(name).algorithm_class.name == name
