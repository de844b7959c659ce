"""The whole report, with answers in place of child processes."""

import pytest

from marltrain.tools.doctor import examine as module
from marltrain.tools.doctor.examine import examine
from marltrain.tools.doctor.packages import Packages
from marltrain.tools.doctor.requirements import Needed
from tests.tools.doctor.fakes import asking

CORE = [Needed(f"{name}>=1", name, name, "1.2.3", True) for name in ("torch", "numba", "numpy")]
EXTRAS = {
    "tensorflow": [Needed("tensorflow>=2", "tensorflow", "tensorflow", None, False)],
    "ray": [Needed("ray>=2.52", "ray", "ray", "2.51.0", True, False)],
}
NUMBA = {"version": "1.2.3", "features": ["avx2"], "threads": 1, "vector": 8}


@pytest.fixture(autouse=True)
def _packages(monkeypatch, tmp_path):
    """Packages of this test, an empty cache, and no token of Ray."""
    monkeypatch.setattr(module, "read_packages", lambda: Packages(CORE, EXTRAS))
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("RAY_AUTH_TOKEN_PATH", str(tmp_path / "token"))


def test_an_installation_that_works():
    found = examine(asking(numba=NUMBA))
    assert found.problems == []
    assert [finding.subject for finding in found.warnings] == ["ray"]
    data = found.described()
    assert data["training"] == {"works": True, "seconds": 1.5} and data["works"]
    assert data["extras"]["tensorflow"]["missing"] == ["tensorflow"]
    assert data["ray"]["version"] == "2.51.0" and data["processor"]["features"] == ["avx2"]
    assert found.line().endswith(
        "torch 1.2.3, no tensorflow, numpy 1.2.3, numba 1.2.3, no gymnasium, no pettingzoo, no tianshou, "
        "ray 2.51.0 | training works | warnings: ray"
    )
    assert "yes: 64 env steps of marltrain/CartPole-v1 in 1.5 s" in found.text()


def test_torch_cannot_be_imported():
    failure = "ImportError: libgomp"
    found = examine(asking({"torch": failure, "trained": failure}, numba=NUMBA))
    assert [finding.subject for finding in found.problems] == ["torch", "training"]
    assert found.problems[1].remedy == "mend the above first: torch"
    assert "torch 1.2.3 BROKEN, " in found.line() and "2 problems: torch, training" in found.line()


def test_a_broken_package_that_training_does_not_need_is_a_warning():
    found = examine(asking({"numpy": "ImportError: odd"}, numba=NUMBA))
    assert (found.problems, [finding.subject for finding in found.warnings]) == ([], ["numpy", "ray"])


def test_a_training_that_fails_for_no_known_reason():
    found = examine(asking({"trained": "EnvError: no"}, numba=NUMBA))
    (problem,) = found.problems
    assert (problem.subject, problem.cause) == ("training", "EnvError: no") and problem.remedy.startswith("report it")
    assert found.described()["training"] == {"works": False}


def test_everything_fails():
    names = ["torch", "numba", "numpy", "ray", "trained", "shared", "imageio_ffmpeg"]
    found = examine(asking(dict.fromkeys(names, "killed")))
    assert [finding.subject for finding in found.problems] == ["torch", "numba", "numpy", "training"]
    assert [finding.subject for finding in found.warnings] == ["ray", "ray", "workers"]
    assert "NO: killed" in found.text()


def test_the_line_names_no_path(tmp_path):
    (tmp_path / "runs").write_text("")
    found = examine(asking(numba=NUMBA))
    assert [finding.subject for finding in found.problems] == ["runs folder"]
    assert str(tmp_path) not in found.line() and "/" not in found.line()
