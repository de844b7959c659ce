"""What child processes have in common."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from marltrain.processes.children import fate, without_main
from tests.toys import Identity


@pytest.mark.parametrize(
    ("code", "said"),
    [(None, "stopped answering"), (-9, "was killed by signal 9 (SIGKILL)"), (3, "ended with exit code 3")],
)
def test_the_end_of_a_process_in_words(code, said):
    assert fate(code) == said


def test_a_child_does_not_see_the_script_and_the_parent_has_it_back():
    script = sys.modules["__main__"]
    with pytest.raises(OSError), without_main():
        assert not hasattr(sys.modules["__main__"], "__file__")
        raise OSError
    assert sys.modules["__main__"] is script


SCRIPT = """
import os, sys
from marltrain.envs import make_vector
from tests.processes.test_children import Curious

with make_vector(Curious, None, 1, vector="subproc", num_workers=1) as vector:
    vector.reset(0)
assert "PYTHONSAFEPATH" not in os.environ
"""


class Curious(Identity):
    """Notes what a worker passes on to programs, and which folders it imports from."""

    def reset(self, seed=None, options=None):
        Path("seen").write_text(repr((os.environ.get("PYTHONSAFEPATH"), "" in sys.path, os.getcwd() in sys.path)))
        return super().reset(seed=seed)


def test_starting_workers_executes_nothing_of_the_working_folder(tmp_path):
    hostile, script = tmp_path / "downloaded", tmp_path / "script.py"
    hostile.mkdir()
    for name in {*sys.stdlib_module_names, "cloudpickle", "numpy", "gymnasium"}:
        (hostile / f"{name}.py").write_text("open('ran', 'a').write(__name__)\nraise ImportError(__name__)\n")
    script.write_text(SCRIPT)
    subprocess.run([sys.executable, script], cwd=hostile, check=True, timeout=170)
    assert not (hostile / "ran").exists()
    assert (hostile / "seen").read_text() == "(None, False, False)"
