"""Children import packages that fail, crash, hang and print; the reason is told, and this process goes on."""

import sys

import pytest

from marltrain.tools.doctor.processes import LONGEST, Answer, ask, in_short

LIMIT = 300.0
ABSENT = "raise ImportError('numpy is broken:\\n\\nsee the page') from OSError('libblas.so.3: no such file')"


@pytest.fixture
def package(tmp_path, monkeypatch):
    """Return a function that writes a module and imports it in a child."""
    monkeypatch.syspath_prepend(tmp_path)

    def imported(code, limit=LIMIT):
        (tmp_path / "strange.py").write_text(code)
        return ask(limit, "imported", "strange")

    return imported


@pytest.mark.parametrize(
    ("code", "answer"),
    [
        ("__version__ = '1.2'", Answer({"version": "1.2"})),
        ("__version__ = (1, 2)", Answer({"version": None})),
        ("print('marltrain?', end='')", Answer({"version": None})),
        ("import sys\nsys.stdout = sys.stderr = None", Answer({"version": None})),
        ("import atexit, time\natexit.register(time.sleep, 1000)", Answer({"version": None})),
        ("raise ImportError('no libc')", Answer({}, "ImportError: no libc")),
        (ABSENT, Answer({}, "ImportError: numpy is broken: (caused by OSError: libblas.so.3: no such file)")),
        ("import nothing_there", Answer({}, "ModuleNotFoundError: No module named 'nothing_there'")),
        ("raise SystemExit(3)", Answer({}, "SystemExit: 3")),
        ("x = (", Answer({}, "SyntaxError: '(' was never closed (strange.py, line 1)")),
        ("raise KeyboardInterrupt", Answer({}, "KeyboardInterrupt:")),
        ("import os\nos._exit(4)", Answer({}, "the process ended with exit code 4")),
        (
            "import os, signal, sys\nprint('Illegal\\n', file=sys.stderr)\nos.kill(os.getpid(), signal.SIGILL)",
            Answer({}, "the process was killed by signal 4 (SIGILL): Illegal"),
        ),
    ],
)
def test_what_an_import_may_do(package, code, answer):
    assert package(code) == answer


def test_an_import_that_hangs(package):
    assert package("import time\ntime.sleep(1000)", 2.0) == Answer({}, "no answer within 2 s")


def test_without_a_program_of_python(monkeypatch):
    monkeypatch.setattr(sys, "executable", None)
    assert "sys.executable" in ask(LIMIT, "shared").failure
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    assert ask(LIMIT, "shared").failure == "no process can be started: No such file or directory"


def test_no_module_of_the_working_folder_is_imported(tmp_path):
    """It is the working folder of this test; a downloaded folder may hold a file of any module's name."""
    for name in ("json", "numpy", "strange", "multiprocessing"):
        (tmp_path / f"{name}.py").write_text("open('ran', 'w')\nraise ImportError")
    assert ask(LIMIT, "shared") == Answer({"bytes": 2**20})
    assert ask(LIMIT, "imported", "strange").failure == "ModuleNotFoundError: No module named 'strange'"
    assert not (tmp_path / "ran").exists()


def test_a_long_reason_loses_its_middle():
    assert in_short("a\n b\tc ") == "a b c"
    assert len(in_short("a" * 10_000)) <= LONGEST and "left out" in in_short("a" * 10_000)
