"""Requirements of installed distributions: cores, extras, extras of others, and of one's own."""

from importlib import metadata

import pytest

from marltrain.tools.doctor.requirements import Needed, Requirements, is_there, module_of
from tests.tools.doctor.fakes import distribution


@pytest.fixture
def installed(tmp_path, monkeypatch):
    """Return a function that installs a distribution."""
    monkeypatch.syspath_prepend(tmp_path)
    return lambda *words, **files: distribution(tmp_path, *words, **files)


def named(needs):
    return [needed.requirement for needed in needs]


def test_the_core_and_its_versions(installed):
    installed("mine", "1.0", "Requires-Dist: first>=2,<3", "Requires-Dist: Second_One>=2", "Requires-Dist: absent>=1",
              'Requires-Dist: never>1; python_version < "3"')  # fmt: skip
    installed("first", "2.5rc1+cpu", first_module="")
    installed("second.one", "1.9", second_one="")
    assert Requirements("mine").core == [
        Needed("first<3,>=2", "first", "first_module", "2.5rc1+cpu", True, True),
        Needed("Second_One>=2", "second-one", "second_one", "1.9", True, False),
        Needed("absent>=1", "absent", "absent", None, False, True),
    ]


def test_extras_of_others_and_of_its_own(installed):
    installed(
        "mine", "1.0", "Provides-Extra: a", "Provides-Extra: all", "Requires-Dist: core",
        'Requires-Dist: x>1; extra == "a"',
        'Requires-Dist: core; extra == "a"', 'Requires-Dist: other[fast]; extra == "a"',
        'Requires-Dist: mine[a]; extra == "all"', 'Requires-Dist: y; extra == "all"',
    )  # fmt: skip
    installed("other", "1.0", "Provides-Extra: fast", "Requires-Dist: z",
              'Requires-Dist: y2; python_version > "3"', 'Requires-Dist: wheels==2; extra == "fast"')  # fmt: skip
    found = Requirements("mine")
    assert found.extras == ("a", "all")
    assert named(found.core) == ["core"]
    assert named(found.of("a")) == ["x>1", "other", "wheels==2"]
    assert named(found.of("all")) == ["x>1", "other", "wheels==2", "y"]


def test_two_distributions_of_one_module(installed):
    """As pygame and pygame-ce. Two parts of one package, of which one has the first file, are none."""
    installed("mine", "1.0", "Requires-Dist: game-ce", "Requires-Dist: part")
    installed("game-ce", "2.5", game="")
    installed("game", "2.6", game="")
    installed("part", "1", part="")
    installed("part-more", "1", **{"part/more": ""})
    assert [needed.others for needed in Requirements("mine").core] == [("game",), ()]


def test_a_module_without_a_distribution_is_there(installed, tmp_path):
    """As tensorflow from tensorflow-cpu."""
    installed("mine", "1.0", "Requires-Dist: flow>=2")
    (tmp_path / "flow.py").write_text("raise ImportError")
    assert Requirements("mine").core == [Needed("flow>=2", "flow", "flow", None, True, True)]


def test_a_distribution_without_a_list_of_its_files(installed, tmp_path):
    """Its module is that of its name, or unknown; a module that is listed and gone is one that cannot be imported."""
    installed("mine", "1.0", "Requires-Dist: open-cv", "Requires-Dist: flow", "Requires-Dist: half")
    installed("open-cv", "4")
    installed("flow", "2")
    (tmp_path / "flow.py").touch()
    installed("half", "3", half="")
    (tmp_path / "half" / "__init__.py").unlink()
    (tmp_path / "half").rmdir()
    found = {needed.name: (needed.module, needed.found) for needed in Requirements("mine").core}
    assert found == {"open-cv": ("", True), "flow": ("flow", True), "half": ("half", True)}


def test_metadata_without_a_version(installed):
    installed("mine", "1.0", "Requires-Dist: broken>=2")
    installed("broken", None, broken="")
    (needed,) = Requirements("mine").core
    assert (needed.version, needed.fits) == ("unknown", True)


def test_what_is_not_installed():
    with pytest.raises(metadata.PackageNotFoundError):
        Requirements("nothing-there")


def test_modules_of_known_distributions():
    """Those that have other names than their distributions."""
    names = {"pygame-ce": "pygame", "pettingzoo": "pettingzoo", "torch": "torch"}
    assert {name: module_of(name, metadata.distribution(name)) for name in names} == names
    assert is_there("json") and not is_there("nothing_there")


def test_requirements_of_marltrain():
    found = Requirements()
    assert {"torch", "numba", "numpy", "gymnasium", "pettingzoo"} <= {needed.name for needed in found.core}
    assert named(found.of("tensorflow"))[0].startswith("tensorflow>=")
    assert all(needed.found and needed.fits for needed in found.core)
