"""Run the short tier of the tests with the oldest or the newest versions of all dependencies.

    python -m tests.house.packaging.bounds oldest|newest [--python python3.13] [--core] [words for pytest ...]

oldest: the lower bounds of pyproject.toml, resolved by uv (`make test-oldest`).  newest: the newest versions that pip
finds (`make test-newest`). Both install the package with its extras (--core: without) into an environment of its own,
which is removed at the end. PyTorch may come with its CUDA libraries, some gigabytes.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import tomllib
from pathlib import Path

from marltrain.core.extras import EXTRAS
from tests.house.packaging.archives import build
from tests.house.packaging.environment import Environment, FailedError, environment, measured
from tests.house.repository import ROOT

LEFT_OUT = {"learn"}
"""Extras that are not tried: the oldest Gymnasium asks for `pygame` beside `pygame-ce`, and both are one module."""

TOLD = ("DeprecationWarning", "PendingDeprecationWarning", "FutureWarning", "ResourceWarning",
        "pytest.PytestUnraisableExceptionWarning")  # fmt: skip
AGED = [word for name in TOLD for word in ("-W", f"default::{name}")]
"""Options of pytest: a deprecation between two packages is no error, nor is a file that a package leaves open.

Ray 2.52 leaves files and processes to the garbage collector.
"""


def tried_extras(core: bool) -> list[str]:
    """Return the names of the extras that are installed: those for tests, and the users'."""
    return ["test", *(() if core else sorted(set(EXTRAS) - LEFT_OUT))]


def direct_names(extras: list[str]) -> list[str]:
    """Return the names of the packages that pyproject.toml asks for, in lower case."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    lines = [*project["dependencies"], *(line for name in extras for line in project["optional-dependencies"][name])]
    return sorted({line.split(">=")[0].split("[")[0].lower().replace("_", "-") for line in lines})


def lower_bounds(tried: Environment, extras: list[str]) -> Path:
    """Return a file with the lowest versions that pyproject.toml allows, and the newest of their own dependencies."""
    tried.install("uv")
    result, words = tried.work / "oldest.txt", [word for name in extras for word in ("--extra", name)]
    version = tried.run_python("import platform; print(platform.python_version())").strip()
    tried.run(
        "uv", "pip", "compile", "--quiet", "--resolution", "lowest-direct", "--python-version", version,
        *words, ROOT / "pyproject.toml", "--output-file", result,
    )  # fmt: skip
    return result


def main() -> None:
    """Install, run the tests, print the versions and the result."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("versions", choices=("oldest", "newest"))
    parser.add_argument("--python", default=sys.executable, help="interpreter of the environment")
    parser.add_argument("--core", action="store_true", help="without the extras")
    args, words = parser.parse_known_args()
    extras = tried_extras(args.core)
    with tempfile.TemporaryDirectory(prefix="marltrain-bounds-") as name:
        _, wheel = build(Path(name))
        try:
            with environment(Path(name) / "tried", args.python) as tried:
                bounds = ("-c", lower_bounds(tried, extras)) if args.versions == "oldest" else ("--upgrade",)
                listed = f"{wheel}[{','.join(extras)}]"
                with measured("install with all extras"):
                    tried.install("--no-compile", "--no-cache-dir", *bounds, listed)
                found = tried.packages()
                print(tried.run("python", "--version").strip(), end=", ")
                print(*(f"{name} {found[name]}" for name in direct_names(extras)), sep=", ")
                print(f"{tried.megabytes():,.0f} MB", flush=True)
                with measured("the short tier of the tests"):
                    print(tried.run_tests(*AGED, *words))
        except FailedError as error:
            sys.exit(str(error))


if __name__ == "__main__":
    main()
