"""Install each peer into an environment of its own, .venv-peers/<peer>, with the versions of <peer>.txt beside this.

    python benchmarks/peers/install.py [jaxmarl sb3 ...]

The lists are complete, so pip resolves nothing (--no-deps); they are for Python 3.11 on Linux. Why a peer cannot be
installed is kept in `.venv-peers/<peer>.failed`, and the tables of benchmarks/speed_tables.py say so.
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
    """Say whether a peer is there with the versions of its list."""
    told = VENVS / name / "installed.txt"
    return told.exists() and told.read_text() == (HERE / f"{name}.txt").read_text()


def surroundings(folder: Path) -> dict[str, str]:
    """Return the environment variables that PufferLib is compiled with; `folder` is for what they name.

    Its games in C would be linked with libraries fetched from elsewhere, so they are left out, and without them its
    setup.py 3.0.0 reads a name that it has not defined. Where it finds no nvcc, it compiles for the CPU.
    """
    (folder / "sitecustomize.py").write_text("import builtins\n\nbuiltins.c_extension_paths = []\n")
    places = [place for place in os.environ["PATH"].split(os.pathsep) if not (Path(place) / "nvcc").exists()]
    return {**os.environ, "NO_OCEAN": "1", "PATH": os.pathsep.join(places), "PYTHONPATH": str(folder)}


def install(name: str) -> str:
    """Install a peer anew; return why that failed, or nothing."""
    place, listed = VENVS / name, (HERE / f"{name}.txt").read_text()
    shutil.rmtree(place, ignore_errors=True)
    pip = [str(place / "bin" / "python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps"]
    compiled = [line for line in listed.split() if line in COMPILED]
    with tempfile.TemporaryDirectory() as folder:
        steps: list[tuple[list[str], dict[str, str] | None]] = [
            ([sys.executable, "-m", "venv", str(place)], None),
            ([*pip, *(line for line in listed.split() if line not in COMPILED)], None),
        ]
        if compiled:  # with the help of the others
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
    """Install the named peers, or all, and say of each what came of it."""
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
