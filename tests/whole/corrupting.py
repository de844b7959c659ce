"""Checkpoints and saved agents, damaged in one place after another: each is refused by name, or reads as before.

`python -m tests.whole.corrupting PLACES [SEED]` flips a bit in so many regions of every file.
"""

from __future__ import annotations

import itertools
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import marltrain as mt
from marltrain.core.errors import SaveError
from marltrain.trainer.saving.checkpoint import find
from tests.whole.resuming import CASES, summary

CUTS = 20
NAMES = ("dqn", "ppo by turns", "ragged", "line-up", "frames", "native")


@dataclass
class Saved:
    """A folder to damage, and another of its kind.

    read: returns all that is in it, as plain values.  offered: what the message must offer besides.
    """

    folder: Path
    other: Path
    read: Callable[[], Any]
    offered: str = ""


def main() -> None:
    """Damage what runs of several kinds have saved; say what came of it."""
    places, seed = int(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 0
    rng, folder = np.random.default_rng(seed), Path(tempfile.mkdtemp())
    total = np.zeros(2, int)
    for name in NAMES:
        for saved in made(name, folder / name):
            total += damaged(saved, places, rng) + mixed(saved)
    shutil.rmtree(folder)
    print(f"{total[0]} damages were refused, the file named; {total[1]} fell between two values and changed nothing")


def made(name: str, folder: Path) -> list[Saved]:
    """Run a case; return its newest checkpoint and its best agents, each with another of its kind."""
    case = CASES[name]
    case.train(folder, case.steps, callbacks=[mt.Checkpoint(every_steps=case.steps // 4, keep=2)])
    before, newest = sorted((folder / "checkpoints").iterdir(), key=lambda path: int(path.name))
    return [
        Saved(newest, before, lambda: everything(folder), f"resume={str(before)!r}"),
        Saved(folder / "best", folder / "last", lambda: [summary(a.state()) for a in mt.load(folder / "best")]),
    ]


def everything(run: Path) -> Any:
    """Return all that is in a run's newest checkpoint."""
    found = find(run)
    assert found is not None
    return found.manifest, summary(found.state)


def damaged(saved: Saved, places: int, rng: np.random.Generator) -> np.ndarray:
    """Damage each file in many places; return how many were refused, and how many changed nothing."""
    expected, counts = saved.read(), np.zeros(2, int)
    for file in sorted(saved.folder.iterdir()):
        good = file.read_bytes()
        for bad in damages(good, places, rng):
            file.write_bytes(bad)
            counts += is_refused(saved, [file], expected)
        file.unlink()
        counts += is_refused(saved, [file], None)
        file.write_bytes(good)
    return counts


def damages(good: bytes, places: int, rng: np.random.Generator) -> Iterator[bytes]:
    """Give a file cut off at random places, and with a bit flipped somewhere in each of its regions."""
    for end in rng.integers(len(good), size=CUTS):
        yield good[:end]
    for region in range(places):
        at = int((region + rng.random()) / places * len(good))
        yield good[:at] + bytes([good[at] ^ (1 << rng.integers(8))]) + good[at + 1 :]


def mixed(saved: Saved) -> np.ndarray:
    """Put some files, and not all, of the other folder into this one; and each file in another's place."""
    counts = np.zeros(2, int)
    files = sorted(saved.folder.iterdir())
    sets = [some for n in range(1, len(files)) for some in itertools.combinations(files, n)]
    swaps = [{file: saved.other / file.name for file in some} for some in sets]
    swaps += [{one: other} for one, other in itertools.permutations(files, 2)]
    good = {file: file.read_bytes() for file in files}
    for swap in swaps:
        data = {file: source.read_bytes() for file, source in swap.items()}
        for file in files:
            file.write_bytes(data.get(file, good[file]))
        counts += is_refused(saved, files, None)
    for file in files:
        file.write_bytes(good[file])
    return counts


def is_refused(saved: Saved, files: Sequence[Path], expected: Any) -> np.ndarray:
    """Return (1, 0) where one of these files is named and refused, (0, 1) where what is read is what was saved."""
    try:
        found = saved.read()
    except SaveError as error:
        named = any(str(file) in str(error) for file in files)
        if named and saved.offered in str(error):
            return np.array([1, 0])
        raise
    if expected is None or found != expected or any(file.suffix != ".json" for file in files):
        raise SystemExit(f"{', '.join(map(str, files))}: damaged, and read all the same")
    return np.array([0, 1])


if __name__ == "__main__":
    main()
