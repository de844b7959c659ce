"""Checksums of fixed runs: two commits that print the same lines compute the same numbers.

`python -m tests.whole.hashes [CASE ...]` prints a line for each run, the checksum and the name. A CASE may have
wildcards: "*qmix*". `--against FILE` reads lines that were printed before, and prints only those that differ now; the
exit code is 1 if there are any, or if a run fails. The runs need OMP_NUM_THREADS=1 for equal sums.

A checksum depends on the values of arrays, tables and random generators: not on names, nor on the order or nesting of
arrays and columns, nor on settings that are saved. To hold another commit against this one, copy `hashes`, `hash_runs`,
`hash_cases` and `resuming` into its checkout.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import sys
import time
import traceback
from collections.abc import Iterator, Mapping
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from tests.whole.hash_cases import CASES

FAILED = "failed"
"""In place of a checksum: the run raised an error, which is shown."""


def main() -> int:
    """Print the lines; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.whole.hashes", description=__doc__.partition("\n")[0])
    parser.add_argument("cases", nargs="*", metavar="CASE", help="name of a run, or a pattern such as '*qmix*'")
    parser.add_argument("--against", type=Path, metavar="FILE", help="print only lines that differ from these")
    parser.add_argument("--times", action="store_true", help="show the seconds of each run on stderr")
    given = parser.parse_args()
    if os.environ.get("OMP_NUM_THREADS") != "1":
        parser.error("set OMP_NUM_THREADS=1: sums of several threads have other last bits")
    unknown = [pattern for pattern in given.cases if not any(fnmatchcase(name, pattern) for name in CASES)]
    if unknown:
        parser.error(f"no case is called {', '.join(unknown)}")
    before = None if given.against is None else lines_of(given.against)
    names = [name for name in CASES if not given.cases or any(fnmatchcase(name, pattern) for pattern in given.cases)]
    bad = 0
    for name in names:
        start = time.perf_counter()
        made = hashed(name)
        if given.times:
            print(f"{time.perf_counter() - start:6.2f} s {name}", file=sys.stderr, flush=True)
        if before is None:
            print(made, name, flush=True)
        elif made == FAILED or before.get(name) != made:
            print(made, name, f"(was {before.get(name, 'not there')})", flush=True)
        bad += made == FAILED or (before is not None and before.get(name) != made)
    for name in [] if before is None or given.cases else before.keys() - CASES.keys():
        print("gone", name, flush=True)
        bad += 1
    return int(bad > 0)


def lines_of(path: Path) -> dict[str, str]:
    """Return the checksums in a file, by name."""
    return {name: made for made, _, name in (line.partition(" ") for line in path.read_text().splitlines())}


def hashed(name: str) -> str:
    """Return the checksum of a run, or `FAILED`."""
    try:
        return checksum(CASES[name]())
    except Exception:
        traceback.print_exc()
        return FAILED


def checksum(left: list[Any]) -> str:
    """Return a checksum of values in this order, each of which is the sorted checksums of what is in it."""
    digest = hashlib.sha256()
    for value in left:
        digest.update("".join(sorted(leaves(value))).encode())
        digest.update(b"\n")
    return digest.hexdigest()[:16]


def leaves(value: Any) -> Iterator[str]:
    """Yield the checksum of each array, column of numbers and state of a random generator in a value.

    Text may be a name, and single numbers may be settings: both are left out.
    """
    if isinstance(value, Mapping) and "bit_generator" in value:
        yield hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()
    elif isinstance(value, pd.DataFrame):
        for _, column in value.select_dtypes(["number", "bool"]).items():
            yield from leaves(column.to_numpy(np.float64))
    elif isinstance(value, Mapping | list | tuple):
        for each in value.values() if isinstance(value, Mapping) else value:
            yield from leaves(each)
    elif isinstance(value, np.ndarray):
        if value.dtype.hasobject:
            raise TypeError(f"a run left an array of {value.dtype}, which has no bytes of its own")
        yield hashlib.sha256(value.dtype.str.encode() + value.tobytes()).hexdigest()
    elif value is not None and not isinstance(value, str | bool | int | float):
        raise TypeError(f"a run left a {type(value).__name__}, which has no checksum")


if __name__ == "__main__":
    sys.exit(main())
