"""Virtual environments of their own, in which the package is installed as users install it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from tests.house.repository import ROOT
from tests.tiers import SHORT

CONSTRAINTS = ROOT / "constraints.txt"
LISTING = """
import importlib.metadata as m, json
print(json.dumps({d.metadata["Name"].lower().replace("_", "-"): d.version for d in m.distributions()}))
"""
HIDDEN = ("PYTHONPATH", "PYTHONHOME", "PYTHONDONTWRITEBYTECODE", "VIRTUAL_ENV")
"""Variables of this process that would show in the environment."""


class FailedError(Exception):
    """A command in an environment failed; its text is the command's output."""


@dataclass(frozen=True)
class Environment:
    """A virtual environment and an empty folder to work in, both away from the repository.

    folder: holds both, the home of its user, and all caches; removed by `environment`.
    """

    folder: Path
    variables: Mapping[str, str] = field(default_factory=dict)

    @property
    def python(self) -> Path:
        """Return the path of its interpreter."""
        return self.folder / "venv" / "bin" / "python"

    @property
    def work(self) -> Path:
        """Return the folder in which its commands run."""
        return self.folder / "work"

    def install(self, *words: str | Path) -> None:
        """Run `pip install` with these arguments."""
        quiet = ("--quiet", "--disable-pip-version-check")
        self._run([self.python, "-m", "pip", "install", *quiet, *words], self._outside())

    def run(self, *words: str | Path, **variables: str) -> str:
        """Run a command of the environment in its folder; return its output.

        Raises FailedError with the output if it fails.
        """
        home = {"HOME": str(self.folder / "home"), "XDG_CACHE_HOME": str(self.folder / "cache")}
        path = os.pathsep.join([str(self.python.parent), os.environ["PATH"]])
        return self._run(words, {**self._outside(), **home, **self.variables, "PATH": path, **variables})

    def run_python(self, code: str) -> str:
        """Run Python code; see `run`."""
        return self.run("python", "-c", code)

    def run_tests(self, *words: str) -> str:
        """Run the short tier with the tests of the repository, copied; return the last line of pytest."""
        shutil.copytree(ROOT / "tests", self.work / "tests", ignore=shutil.ignore_patterns("__pycache__", "house"))
        shutil.copy(ROOT / "pyproject.toml", self.work)  # pytest's settings
        pytest = ("python", "-m", "pytest", "-q", "-n", "2", "--dist", "worksteal", "-p", "no:cacheprovider")
        said = self.run(*pytest, *words, *SHORT, OMP_NUM_THREADS="1", TF_CPP_MIN_LOG_LEVEL="3")
        return said.strip().splitlines()[-1]

    def packages(self) -> dict[str, str]:
        """Return the version of each installed package, by its name in lower case with hyphens."""
        found: dict[str, str] = json.loads(self.run_python(LISTING))
        return found

    def megabytes(self) -> float:
        """Return the size of the installed packages, in 10^6 bytes, without compiled modules, pip and links."""
        (packages,) = (self.folder / "venv" / "lib").glob("python*/site-packages")
        found = (path for path in packages.rglob("*") if path.is_file() and not path.is_symlink())
        return sum(path.stat().st_size for path in found if not {"pip", "__pycache__"} & set(path.parts)) / 1e6

    def _outside(self) -> dict[str, str]:
        return {name: value for name, value in os.environ.items() if name not in HIDDEN}

    def _run(self, words: Sequence[str | Path], variables: Mapping[str, str]) -> str:
        done = subprocess.run(
            list(map(str, words)), cwd=self.work, env=dict(variables), text=True,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip
        if done.returncode:
            raise FailedError(f"{' '.join(map(str, words))}\nended with {done.returncode}:\n{done.stdout}")
        return done.stdout


@contextmanager
def measured(name: str) -> Iterator[None]:
    """Print the seconds of what is done inside, and the processor seconds of its child processes."""
    started, before = time.perf_counter(), os.times()
    yield
    after = os.times()
    used = after.children_user + after.children_system - before.children_user - before.children_system
    print(f"{time.perf_counter() - started:8.1f} s {used:8.1f} s   {name}", flush=True)


@contextmanager
def environment(folder: Path, python: str = sys.executable) -> Iterator[Environment]:
    """Yield a new environment of an interpreter in `folder`, and remove it at the end."""
    result = Environment(folder)
    shutil.rmtree(folder, ignore_errors=True)
    for inner in ("work", "home"):
        (folder / inner).mkdir(parents=True)
    try:
        subprocess.run([python, "-m", "venv", str(folder / "venv")], check=True, cwd=folder)
        yield result
    finally:
        shutil.rmtree(folder, ignore_errors=True)
