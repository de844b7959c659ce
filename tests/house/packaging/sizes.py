"""Measure what an installation takes, without and with each extra: packages, megabytes, seconds of the import.

    python -m tests.house.packaging.sizes [--extras ray tune]

The package is installed with the versions of constraints.txt into an environment of its own. Each extra is added, its
new packages are counted, and they are removed again. Prints the table of docs/install.md. An import is the quickest of
five, by `python -X importtime`.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from marltrain.core.extras import EXTRAS
from tests.house.packaging.archives import build
from tests.house.packaging.environment import CONSTRAINTS, Environment, environment

IMPORTS = {
    "`import marltrain`": "import marltrain",
    "with the trainer and an agent": "import marltrain as mt; mt.DecentralizedTrainer; mt.PPO",
    "with PyTorch": "import torch; import marltrain as mt; mt.DecentralizedTrainer; mt.PPO",
}
TIMES = 5


def import_seconds(tried: Environment, code: str) -> float:
    """Return the quickest time of the imports that some code makes, from the report of `-X importtime`."""
    found = []
    for _ in range(TIMES + 1):  # the first one compiles the modules
        said = tried.run("python", "-X", "importtime", "-c", f"import sys; print('begin', file=sys.stderr); {code}")
        lines = [line.split("|") for line in said.partition("begin\n")[2].splitlines() if line.count("|") == 2]
        found.append(sum(int(line[0].split(":")[1]) for line in lines) / 1e6)
    return min(found)


def table_of(tried: Environment, wheel: Path, extras: list[str]) -> list[str]:
    """Return the rows of the table; the core's packages are those of the archive."""
    tried.install("--no-compile", "-c", CONSTRAINTS, wheel)
    core, size = tried.packages(), tried.megabytes()
    rows = ["| | packages | MB | for |", "|---|---|---|---|"]
    rows.append(f"| marltrain | {len(core) - len({'pip', 'setuptools'} & set(core))} | {size:,.0f} | |")
    for name in extras:
        tried.install("--no-compile", "-c", CONSTRAINTS, f"{wheel}[{name}]")
        new = sorted(set(tried.packages()) - set(core))
        rows.append(f"| `{name}` | +{len(new)} | +{tried.megabytes() - size:,.0f} | {EXTRAS[name].brings} |")
        tried.run("python", "-m", "pip", "uninstall", "--quiet", "--yes", *new)
    return rows


def main() -> None:
    """Print both tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--extras", nargs="*", default=list(EXTRAS), choices=EXTRAS)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="marltrain-sizes-") as name:
        _, wheel = build(Path(name))
        with environment(Path(name) / "tried", sys.executable) as tried:
            print(*table_of(tried, wheel, args.extras), sep="\n", flush=True)
            for title, code in IMPORTS.items():
                print(f"{title}: {import_seconds(tried, code):.3f} s")


if __name__ == "__main__":
    main()
