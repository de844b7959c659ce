"""Install the wheel and the sdist as a stranger does, each into an empty environment, and use it (`make dist-test`).

    python -m tests.house.packaging.trying [--python python3.12] [--without-tests]

The versions are those of constraints.txt. Every command runs away from the repository. "cold" is the first training
and film after the installation: nothing is compiled yet, neither modules nor machine code; "warm" is the same again.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path

from tests.house.packaging.archives import build, keep
from tests.house.packaging.environment import CONSTRAINTS, Environment, FailedError, environment
from tests.house.repository import ROOT

IMPORT = """
import marltrain, pathlib, sys
folder = pathlib.Path(marltrain.__file__).parent
assert pathlib.Path(sys.prefix) in folder.parents, f"imported from {folder}"
assert (folder / "py.typed").exists() and all(hasattr(marltrain, name) for name in marltrain.__all__)
"""
TRAIN = "marltrain/connect_four_v3", "--algo", "ppo", "--self-play", "--steps-per-train", "100000", "--no-progress"
FILM = "--env", "pettingzoo/classic/connect_four_v3"
LOAD = """
import sys
import gymnasium, numpy, marltrain as mt
from PIL import Image
agents = mt.load("runs/cold/best")
board = {"observation": numpy.zeros((6, 7, 2), numpy.int8), "action_mask": numpy.ones(7, numpy.int8)}
assert len(agents) == 2 and 0 <= agents[0].act(board) < 7
assert mt.tuned("ppo", "gymnasium/CartPole-v1")["agents"]
assert Image.open("cold.gif").n_frames >= 8, "a game of connect four has at least seven moves"
"""
COLD_LIMIT, WARM_LIMIT = 120.0, 30.0
"""Seconds from the end of the installation to the first film, and to another one."""


def first_film(tried: Environment, name: str) -> float:
    """Train and film as the README says; return the seconds of both."""
    seconds = tried.run("marltrain", "train", *TRAIN, "--run-dir", f"runs/{name}")[0]
    return seconds + tried.run("marltrain", "play", f"runs/{name}", *FILM, "--out", f"{name}.gif")[0]


def own_game(tried: Environment) -> float:
    """Run the README's script with its own game, shortened; return the seconds."""
    script = (ROOT / "examples" / "first_run.py").read_text(encoding="utf-8")
    short = script.replace("episodes_per_train=2000", "episodes_per_train=200").replace("test_freq=400", "test_freq=40")
    assert short.count("200,") == 1 and "test_freq=40," in short, "examples/first_run.py has other numbers"
    (tried.work / "first_run.py").write_text(short, encoding="utf-8")
    (tried.work / "own_game.py").write_bytes((ROOT / "examples" / "own_game.py").read_bytes())
    return tried.run("python", "first_run.py")[0]


STEPS: Mapping[str, Callable[[Environment], float]] = {
    "cold: train connect four, film it": lambda tried: first_film(tried, "cold"),
    "warm: the same again": lambda tried: first_film(tried, "warm"),
    "marltrain doctor": lambda tried: tried.run("marltrain", "doctor")[0],
    "import": lambda tried: tried.run_python(IMPORT)[0],
    "train an own PettingZoo game by a script": own_game,
    "load, act, look at the film": lambda tried: tried.run_python(LOAD)[0],
}
"""What is tried, in this order; each returns its seconds, or raises FailedError."""


def try_out(archive: Path, python: str, place: Path, *, tests: bool) -> None:
    """Install an archive into an environment, try it, and print the seconds of each step."""
    with environment(place, python) as tried:
        print(archive.name, flush=True)
        show(tried.install("-c", CONSTRAINTS, archive), "install with its dependencies")
        print(f"{tried.megabytes():9,.0f} MB  in {len(tried.packages())} packages", flush=True)
        taken = {}
        for name, step in STEPS.items():
            taken[name] = step(tried)
            show(taken[name], name)
        for limit, name in zip((COLD_LIMIT, WARM_LIMIT), taken, strict=False):
            if taken[name] > limit:
                raise FailedError(f"{name}: {taken[name]:.0f} s, more than {limit:.0f} s")
        if tests:
            tried.install("-c", CONSTRAINTS, f"{archive}[test]")
            seconds, result = tried.run_tests()
            show(seconds, f"short tier of the tests: {result}")


def show(seconds: float, name: str) -> None:
    """Print a line of the report."""
    print(f"{seconds:9.1f} s   {name}", flush=True)


def main() -> None:
    """Build both archives and try them out."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--python", default=sys.executable, help="interpreter of the environments")
    parser.add_argument("--without-tests", action="store_true", help="do not run the short tier of the tests")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="marltrain-dist-") as name:
        place = Path(name)
        try:
            keep(archives := build(place))
            for archive in reversed(archives):
                try_out(archive, args.python, place / "tried", tests=not args.without_tests)
        except FailedError as error:
            sys.exit(str(error))


if __name__ == "__main__":
    main()
