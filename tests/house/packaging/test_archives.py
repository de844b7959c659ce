"""The wheel and the sdist hold the package and nothing else; extras are listed once in code."""

import tomllib
from pathlib import Path

import pytest

from marltrain.core.extras import EXTRAS
from tests.house.packaging import archives
from tests.house.repository import PACKAGE, ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
FOR_DEVELOPMENT = {"dev", "docs", "docs-test", "test"}


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    return archives.build(tmp_path_factory.mktemp("built"))


def test_the_wheel_holds_the_package_and_nothing_else(built):
    assert archives.names_in(built[1]) == archives.files_of_wheel()


def test_the_sdist_holds_what_a_wheel_is_built_from_and_nothing_else(built):
    assert archives.names_in(built[0]) == archives.files_of_sdist()


def test_expected_files_are_those_of_the_tree():
    files = archives.package_files()
    assert {"marltrain/__init__.py", "marltrain/py.typed", "marltrain/trainer/tuned.toml"} <= files
    assert not [name for name in files if name.endswith(".pyc")]


def test_a_file_that_the_package_data_forget_is_noticed(tmp_path, monkeypatch):
    """A template without a line in pyproject.toml is in no wheel."""
    names = {"marltrain/py.typed", "marltrain/__init__.py", "marltrain/tools/report.html", "marltrain/tools/module.py"}
    for name in [*names, *archives.BUILT_FROM, "marltrain/core/version.py"]:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes((ROOT / name).read_bytes() if (ROOT / name).exists() else b"x = 1\n")
    (tmp_path / "marltrain/__init__.py").write_text("")
    monkeypatch.setattr(archives, "ROOT", tmp_path)
    monkeypatch.setattr(archives, "PACKAGE", tmp_path / PACKAGE.name)
    (tmp_path / "out").mkdir()
    wheel = archives.build(tmp_path / "out")[1]
    assert archives.files_of_wheel() - archives.names_in(wheel) == {"marltrain/tools/report.html"}


def test_extras_of_the_project_are_listed_in_code():
    assert set(EXTRAS) == set(PROJECT["optional-dependencies"]) - FOR_DEVELOPMENT


def test_dependencies_have_a_lower_bound():
    """`make test-oldest` installs the lower bounds; without one it would install any version."""
    bounded = [
        *PROJECT["dependencies"],
        *(line for lines in PROJECT["optional-dependencies"].values() for line in lines),
    ]
    without = {line for line in bounded if ">=" not in line}
    assert without == {"gymnasium[box2d]", "marltrain[mp4,mpe,openspiel,test]"}, "both are bounded elsewhere"
