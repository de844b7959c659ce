"""Packages that are missing, old, broken, installed twice; extras and what they bring."""

import sys
from importlib import metadata

import pytest

from marltrain.core.extras import EXTRAS
from marltrain.tools.doctor.packages import Packages, core_section, extras_section, read_packages
from marltrain.tools.doctor.processes import Answer
from marltrain.tools.doctor.report import CORE, EXTRA
from marltrain.tools.doctor.requirements import Needed, normal
from tests.tools.doctor.fakes import distribution

TORCH = Needed("torch>=2.10", "torch", "torch", "2.13", True)
GOOD = Answer({"version": "2.13"})


def told(section):
    return [(f.concerns, f.subject, f.cause, f.remedy) for f in section.findings]


def text_of(section, name):
    return next(str(fact) for fact in section.facts if fact.name == name)


def test_a_whole_core():
    found = core_section(Packages([TORCH], {}), {"torch": GOOD})
    assert [(fact.name, str(fact)) for fact in found.facts] == [("torch", "2.13")]
    assert not found.findings


@pytest.mark.parametrize(
    ("needed", "answer", "text", "cause", "remedy"),
    [
        (Needed("torch>=2.10", "torch", "torch", None, False), None, "MISSING", "is not installed",
         'pip install "torch>=2.10"'),
        (TORCH, Answer({}, "OSError: libgomp"), "2.13, CANNOT BE IMPORTED", "cannot be imported: OSError: libgomp",
         'pip install --force-reinstall --no-deps "torch>=2.10"'),
        (Needed("torch>=2.10", "torch", "torch", "2.9", True, False), GOOD, "2.9, needed: torch>=2.10",
         "version 2.9 is installed, and marltrain needs torch>=2.10", 'pip install "torch>=2.10"'),
        (Needed("torch>=2.10", "torch", "torch", "2.13", True, True, ("torch-x",)), GOOD, "2.13",
         "torch is installed by torch-x too, and they overwrite each other",
         'pip uninstall torch-x, then pip install --force-reinstall "torch>=2.10"'),
    ],
)  # fmt: skip
def test_what_is_wrong_with_a_package(needed, answer, text, cause, remedy):
    answers = {} if answer is None else {"torch": answer}
    found = core_section(Packages([needed], {}), answers)
    assert text_of(found, "torch") == text
    assert told(found) == [(CORE, "torch", cause, remedy)]


def test_packages_that_fail_for_one_reason():
    """PyTorch's reason is that of tianshou, which imports it, and comes before it in the alphabet."""
    other = Needed("tianshou>=2", "tianshou", "tianshou", "2", True)
    extra = Needed("keras", "keras", "keras", "3", True)
    packages = Packages([other, TORCH], {"tensorflow": [extra]})
    answers = dict.fromkeys(["torch", "tianshou", "keras"], Answer({}, "OSError: libgomp"))
    same = "cannot be imported, for the same reason as torch", "mend torch"
    assert told(core_section(packages, answers)) == [
        (CORE, "tianshou", *same),
        (
            CORE,
            "torch",
            "cannot be imported: OSError: libgomp",
            'pip install --force-reinstall --no-deps "torch>=2.10"',
        ),
    ]
    assert told(extras_section(packages, answers)) == [(EXTRA, "keras", *same)]


def test_a_package_of_which_the_module_is_unknown_is_not_imported():
    packages = Packages([Needed("open-cv>=4", "open-cv", "", "4", True)], {})
    assert packages.modules() == []
    found = core_section(packages, {})
    assert (str(found.facts[0]), found.facts[0].value["imported"], found.findings) == ("4", None, [])


def test_an_extra_that_is_missing_is_no_finding():
    extras = {"ray": [Needed("ray>=2.52", "ray", "ray", None, False)]}
    found = extras_section(Packages([], extras), {})
    assert text_of(found, "ray") == f'missing: {EXTRAS["ray"].brings}: pip install "marltrain[ray]"'
    assert found.facts[0].value == {
        "installed": False, "missing": ["ray"], "brings": EXTRAS["ray"].brings, "packages": {"ray": None},
    }  # fmt: skip
    assert not found.findings


def test_an_extra_of_which_a_part_is_there_is_not_imported():
    """MLflow's stores need packages that Optuna needs, too."""
    parts = [
        Needed("mlflow-skinny>=3", "mlflow-skinny", "mlflow", None, False),
        Needed("json", "json", "json", "1", True),
    ]
    packages = Packages([], {"mlflow": parts, "tune": [Needed("csv", "csv", "csv", "1", True)]})
    assert packages.modules() == ["csv"]
    assert extras_section(packages, {}).facts[0].value["missing"] == ["mlflow-skinny"]


def test_a_package_of_two_extras_is_told_once():
    needed = Needed("rliable>=1.2", "rliable", "rliable", "1.1", True, False)
    found = extras_section(Packages([], {"compare": [needed], "learn": [needed]}), {"rliable": GOOD})
    cause = "version 1.1 is installed, and marltrain needs rliable>=1.2"
    assert told(found) == [(EXTRA, "rliable", cause, 'pip install "rliable>=1.2"')]


@pytest.fixture
def installed(tmp_path, monkeypatch):
    """Return a function that installs a distribution before those that are there."""
    monkeypatch.syspath_prepend(tmp_path)
    return lambda *words, **files: distribution(tmp_path, *words, **files)


def test_an_old_ray(installed):
    installed("ray", "2.51.0", ray="")
    installed("marltrain", "0.1.0", "Provides-Extra: ray", 'Requires-Dist: ray>=2.52; extra == "ray"')
    found = extras_section(read_packages(), {"ray": GOOD})
    cause = "version 2.51.0 is installed, and marltrain needs ray>=2.52"
    assert told(found) == [(EXTRA, "ray", cause, 'pip install "ray>=2.52"')]
    assert text_of(found, "ray") == "ray 2.51.0"


def test_extras_of_the_metadata_for_users_and_those_that_old_metadata_lack(installed):
    needs = 'Requires-Dist: pytest; extra == "dev"', 'Requires-Dist: ray>=2.52; extra == "ray"'
    installed("marltrain", "0.1.0", "Provides-Extra: dev", "Provides-Extra: ray", *needs)
    found = read_packages()
    assert list(found.extras) == list(EXTRAS)
    assert [needed.requirement for needed in found.extras["ray"]] == ["ray>=2.52"]
    assert [needed.requirement for needed in found.extras["tune"]] == ["optuna"]
    assert (found.core, found.failure) == ([], "")


def test_requirements_without_the_package_that_reads_them(monkeypatch):
    monkeypatch.setitem(sys.modules, "packaging.requirements", None)
    found = read_packages()
    assert "packaging.requirements" in found.failure and "torch" in found.modules()
    assert [needed.module for needed in found.extras["export"]] == ["onnx", "onnxruntime", "onnxscript"]
    section = core_section(found, {"torch": Answer({}, "OSError: libgomp"), "numba": GOOD})
    assert (text_of(section, "torch"), text_of(section, "numba")) == ("CANNOT BE IMPORTED", "2.13")
    assert [(f.concerns, f.subject) for f in section.findings] == [(CORE, "torch"), (CORE, "requirements")]


def test_requirements_that_cannot_be_read(installed):
    installed("marltrain", "0.1.0", "Requires-Dist: a b c")
    assert "InvalidRequirement" in read_packages().failure


def test_the_modules_of_extras_are_those_of_the_metadata():
    """Both name the same packages: `marltrain.core.extras`, and the metadata of this installation."""
    found, providers = read_packages(), metadata.packages_distributions()
    for extra, needs in found.extras.items():
        if all(needed.found for needed in needs):
            names = {normal(needed.name) for needed in needs}
            for module in EXTRAS[extra].modules:
                assert names & set(map(normal, providers[module])), (extra, module)
