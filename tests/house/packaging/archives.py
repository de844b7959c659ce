"""The wheel and the sdist: built without a network, and the files that each must hold."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Sequence
from pathlib import Path

from marltrain.core.version import __version__
from tests.house.repository import PACKAGE, ROOT

NAME = f"marltrain-{__version__}"
BUILT_FROM = ("LICENSE", "MANIFEST.in", "README.md", "pyproject.toml")
"""Files beside the package from which the archives are built."""
METADATA = ("METADATA", "RECORD", "WHEEL", "entry_points.txt", "licenses/LICENSE", "top_level.txt")
EGG_INFO = ("PKG-INFO", "SOURCES.txt", "dependency_links.txt", "entry_points.txt", "requires.txt", "top_level.txt")
BUILD = """
import sys
from setuptools import build_meta
folder = sys.argv[1]  # setuptools changes the arguments
build_meta.build_sdist(folder)
build_meta.build_wheel(folder)
"""


def package_files() -> set[str]:
    """Return all files of the package, as "marltrain/...", but compiled modules."""
    found = (path for path in PACKAGE.rglob("*") if path.is_file() and "__pycache__" not in path.parts)
    return {path.relative_to(ROOT).as_posix() for path in found}


def files_of_wheel() -> set[str]:
    """Return the names that the wheel must hold: the package and its metadata."""
    return package_files() | {f"{NAME}.dist-info/{name}" for name in METADATA}


def files_of_sdist() -> set[str]:
    """Return the names that the sdist must hold: what a wheel is built from."""
    beside = {"PKG-INFO", "setup.cfg", *BUILT_FROM, *(f"marltrain.egg-info/{name}" for name in EGG_INFO)}
    return {f"{NAME}/{name}" for name in package_files() | beside}


def names_in(archive: Path) -> set[str]:
    """Return the names of the files in a wheel or an sdist."""
    if archive.suffix == ".whl":
        with zipfile.ZipFile(archive) as wheel:
            return set(wheel.namelist())
    with tarfile.open(archive) as sdist:
        return {member.name for member in sdist.getmembers() if member.isfile()}


def build(folder: Path) -> tuple[Path, Path]:
    """Build the sdist and the wheel of a copy of the working tree in an empty folder; return their paths.

    The copy keeps metadata of an earlier build, which setuptools would read again, out of the archives.
    """
    source, result = folder / "source", folder / "dist"
    shutil.copytree(PACKAGE, source / "marltrain", ignore=shutil.ignore_patterns("__pycache__"))
    for name in BUILT_FROM:
        shutil.copy(ROOT / name, source / name)
    result.mkdir()
    done = subprocess.run([sys.executable, "-c", BUILD, str(result)], cwd=source, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"the archives cannot be built:\n{done.stdout}\n{done.stderr}")
    return result / f"{NAME}.tar.gz", result / f"{NAME}-py3-none-any.whl"


def keep(archives: Sequence[Path]) -> None:
    """Copy archives into dist/, and print their sizes."""
    (ROOT / "dist").mkdir(exist_ok=True)
    for archive in archives:
        shutil.copy(archive, ROOT / "dist")
        print(
            f"dist/{archive.name}  {archive.stat().st_size / 1e6:.2f} MB, {len(names_in(archive)):,} files", flush=True
        )


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as place:
        keep(build(Path(place)))
