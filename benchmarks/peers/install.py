"""Install each peer into its own virtual environment, .venv-peers/<peer>, with the versions of <peer>.txt.

    python benchmarks/peers/install.py [jaxmarl sb3 ...]

The lists, next to this file, include all dependencies, so pip does not resolve any (--no-deps). They are for Python
3.11 on Linux. If an installation fails, `.venv-peers/<peer>.failed` holds the reason, which the tables of
benchmarks/speed_tables.py show.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).parent
VENVS = HERE.parents[1] / ".venv-peers"
COMPILED = ("pufferlib==3.0.0",)
PEERS = sorted(path.stem for path in HERE.glob("*.txt"))


def installed(name: str) -> bool:
    """Return whether a peer is installed with the versions of its list."""
    text = VENVS / name / "installed.txt"
    return text.exists() and text.read_text() == (HERE / f"{name}.txt").read_text()


def surroundings(folder: Path) -> dict[str, str]:
    """Return the environment variables for compiling PufferLib; folder: receives a file that they refer to.

    PufferLib's games in C are excluded, since they need libraries from other sources. Without them, setup.py of
    version 3.0.0 reads an undefined name, which the file defines. PufferLib compiles for the CPU if it finds no nvcc.
    """
    (folder / "sitecustomize.py").write_text("import builtins\n\nbuiltins.c_extension_paths = []\n")
    places = [place for place in os.environ["PATH"].split(os.pathsep) if not (Path(place) / "nvcc").exists()]
    return {**os.environ, "NO_OCEAN": "1", "PATH": os.pathsep.join(places), "PYTHONPATH": str(folder)}


def install(name: str) -> str:
    """Install a peer into a new virtual environment; return the reason of a failure, or an empty text."""
    place, listed = VENVS / name, (HERE / f"{name}.txt").read_text()
    shutil.rmtree(place, ignore_errors=True)
    pip = [str(place / "bin" / "python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps"]
    compiled = [line for line in listed.split() if line in COMPILED]
    with tempfile.TemporaryDirectory() as folder:
        steps: list[tuple[list[str], dict[str, str] | None]] = [
            ([sys.executable, "-m", "venv", str(place)], None),
            ([*pip, *(line for line in listed.split() if line not in COMPILED)], None),
        ]
        if compiled:  # without isolation: the build uses the other packages
            steps.append(([*pip, "--no-build-isolation", *compiled], surroundings(Path(folder))))
        for command, variables in steps:
            done = subprocess.run(command, capture_output=True, text=True, env=variables)
            if done.returncode:
                shutil.rmtree(place, ignore_errors=True)
                errors = [line for line in done.stderr.splitlines() if "error" in line.lower()]
                return f"not installed here: {errors[-1].strip() if errors else f'pip ended with {done.returncode}'}"
    (place / "installed.txt").write_text(listed)
    return ""


def main() -> None:
    """Install the named peers, or all peers; print the result for each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("peers", nargs="*", help=f"of {', '.join(PEERS)}; all by default")
    args = parser.parse_args()
    unknown = [name for name in args.peers if name not in PEERS]
    if unknown:
        parser.error(f"unknown peers {unknown}; there are {', '.join(PEERS)}")
    VENVS.mkdir(exist_ok=True)
    for name in args.peers or PEERS:
        failed = "" if installed(name) else install(name)
        reason = VENVS / f"{name}.failed"
        reason.unlink(missing_ok=True)
        if failed:
            reason.write_text(failed + "\n")
        print(f"{name}: {failed or f'in {VENVS / name}'}", flush=True)


if __name__ == "__main__":
    main()
