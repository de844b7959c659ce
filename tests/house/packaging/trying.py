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
from tests.house.packaging.environment import CONSTRAINTS, Environment, FailedError, environment, measured
from tests.house.repository import ROOT

IMPORT = """
import marltrain, pathlib, sys
folder = pathlib.Path(marltrain.__file__).parent
assert pathlib.Path(sys.prefix) in folder.parents, f"imported from {folder}"
assert (folder / "py.typed").exists() and all(hasattr(marltrain, name) for name in marltrain.__all__)
"""
TRAIN = "marltrain/connect_four_v3", "--algo", "ppo", "--self-play", "--steps-per-train", "50000", "--no-progress"
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


def first_film(tried: Environment, name: str) -> None:
    """Train and film as the README says."""
    tried.run("marltrain", "train", *TRAIN, "--run-dir", f"runs/{name}")
    tried.run("marltrain", "play", f"runs/{name}", *FILM, "--out", f"{name}.gif")


def own_game(tried: Environment) -> None:
    """Run the README's script with its own game, shortened."""
    script = (ROOT / "examples" / "first_run.py").read_text(encoding="utf-8")
    short = script.replace("episodes_per_train=2000", "episodes_per_train=200").replace("test_freq=400", "test_freq=40")
    assert short.count("200,") == 1 and "test_freq=40," in short, "examples/first_run.py has other numbers"
    (tried.work / "first_run.py").write_text(short, encoding="utf-8")
    (tried.work / "own_game.py").write_bytes((ROOT / "examples" / "own_game.py").read_bytes())
    tried.run("python", "first_run.py")


STEPS: Mapping[str, Callable[[Environment], object]] = {
    "cold: train connect four, film it": lambda tried: first_film(tried, "cold"),
    "warm: the same again": lambda tried: first_film(tried, "warm"),
    "marltrain doctor": lambda tried: tried.run("marltrain", "doctor"),
    "import": lambda tried: tried.run_python(IMPORT),
    "train an own PettingZoo game by a script": own_game,
    "load, act, look at the film": lambda tried: tried.run_python(LOAD),
}
"""What is tried, in this order; a step that fails raises FailedError."""


def try_out(archive: Path, python: str, place: Path, *, tests: bool) -> None:
    """Install an archive into an environment, try it, and print the seconds of each step."""
    with environment(place, python) as tried:
        print(f"{archive.name}\n   seconds processor", flush=True)
        with measured("install with its dependencies"):
            tried.install("-c", CONSTRAINTS, archive)
        print(f"{'':24}{len(tried.packages())} packages, {tried.megabytes():,.0f} MB", flush=True)
        for name, step in STEPS.items():
            with measured(name):
                step(tried)
        if tests:
            tried.install("-c", CONSTRAINTS, f"{archive}[test]")
            with measured("the short tier of the tests"):
                print(f"{'':24}{tried.run_tests()}")


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
