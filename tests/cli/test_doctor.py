"""`marltrain doctor` prints a report, and answers where no package can be imported."""

import json
import os
import subprocess
import sys

import pytest

from marltrain.cli import doctor as module, main
from marltrain.core.extras import EXTRAS
from marltrain.tools.doctor.examine import examine
from tests.cli.running import said
from tests.tools.doctor.fakes import asking

NUMBA = {"version": "1", "features": ["avx2"], "threads": 1, "vector": 8}
COMMAND = "import sys; from marltrain.cli import main; sys.exit(main())"
BROKEN = ("cloudpickle", "gymnasium", "llvmlite", "matplotlib", "numba", "numpy", "packaging", "pandas", "pettingzoo",
          "pyarrow", "pygame", "ray", "rich", "safetensors", "tensorboard", "tensorflow", "tianshou", "torch", "tqdm",
          "imageio", "imageio_ffmpeg", *(name for extra in EXTRAS.values() for name in extra.modules))  # fmt: skip


@pytest.fixture
def answers(monkeypatch, tmp_path):
    """Return a function that sets the failures of child processes."""
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path / "cache"))
    return lambda failures: monkeypatch.setattr(module, "examine", lambda: examine(asking(failures, numba=NUMBA)))


def test_the_report_and_its_line(capsys, answers):
    answers({})
    lines = said(capsys, "doctor").splitlines()
    assert lines[0] == "installation" and lines[1].startswith("  marltrain             0.1.0 in ")
    assert lines[-1].startswith("marltrain 0.1.0 | CPython ") and "training works" in lines[-1]


def test_json(capsys, answers):
    answers({})
    found = json.loads(said(capsys, "doctor", "--json"))
    assert found["works"] and found["installation"]["python"] == sys.version.split()[0]
    assert set(found["extras"]) == set(EXTRAS)


def test_where_training_does_not_work_the_exit_code_is_1(capsys, answers):
    answers({"trained": "ImportError: torch"})
    assert main(["doctor"]) == 1
    assert "problem: training: ImportError: torch" in capsys.readouterr().out
    assert main(["doctor", "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["works"] is False


def test_it_answers_where_no_package_can_be_imported(tmp_path):
    """All packages of others are broken, and the home cannot be written."""
    for name in BROKEN:
        (tmp_path / "broken").mkdir(exist_ok=True)
        (tmp_path / "broken" / f"{name}.py").write_text(f"raise ImportError('{name} is broken')")
    (tmp_path / "home").write_text("")
    path = os.pathsep.join([str(tmp_path / "broken"), os.environ["PYTHONPATH"]])
    environment = {**os.environ, "PYTHONPATH": path, "HOME": str(tmp_path / "home")}
    for name in ("NUMBA_CACHE_DIR", "XDG_CACHE_HOME"):
        environment.pop(name, None)
    done = subprocess.run(
        [sys.executable, "-P", "-c", COMMAND, "doctor", "--json"], capture_output=True, text=True, check=False,
        env=environment, cwd=tmp_path,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (1, "")
    found = json.loads(done.stdout)
    causes = {problem["subject"]: problem["cause"] for problem in found["problems"]}
    assert "packaging is broken" in causes["requirements"]
    assert "is broken" in causes["training"] and "is not a folder" in causes["machine code"]
    assert found["packages"]["torch"] == {"version": None, "imported": False, "needed": "torch"}
    assert found["devices"] == {"torch": None, "tensorflow": None, "CUDA_VISIBLE_DEVICES": ""}


def test_another_error_of_a_package_names_the_doctor(tmp_path):
    """A command whose imports fail shows the traceback, and where to look."""
    (tmp_path / "numpy.py").write_text("raise ImportError('numpy is broken')")
    path = os.pathsep.join([str(tmp_path), os.environ["PYTHONPATH"]])
    done = subprocess.run(
        [sys.executable, "-P", "-c", COMMAND, "envs"], capture_output=True, text=True, check=False,
        env={**os.environ, "PYTHONPATH": path},
    )  # fmt: skip
    assert done.returncode == 1
    assert done.stderr.count("`marltrain doctor`") == 1 and "ImportError: numpy is broken" in done.stderr
