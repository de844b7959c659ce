"""Speed of marltrain and its peers on the same work, and the costs of W1 by players, environments and width.

    python benchmarks/speed_tables.py [W1 W1x2 W4 W2 W3 W5 W6 players environments width] [--write]
        [--peers jaxmarl sb3 ...] [--ours torch tensorflow-compiled ...] [--rounds 3] [--seconds 6] [--seeds 5]
        [--processor]

benchmarks/peers/common.py describes the works. W1x2 is W1 on two cores; all other works run on one core. Each peer is
installed into its own virtual environment by `make peers`. Each run is a separate process, pinned to its cores. Runs
alternate, so that ratios compare runs that are adjacent in time. --processor measures processor time in place of time
by the clock, for libraries that collect and learn in one thread; other programs disturb it less. --write writes the
tables to docs/benchmarks.md.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import statistics
import subprocess
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
VENVS = ROOT / ".venv-peers"
PAGE = ROOT / "docs" / "benchmarks.md"
PATIENCE = 240.0
"""Seconds that a run may take in addition to the measurement: compiling, building, filling a replay buffer."""

ALL = ("jaxmarl", "sb3", "pufferlib", "tianshou", "xuance", "benchmarl", "rllib")
WORKS = {
    "W1": ALL, "W1x2": ("jaxmarl",), "W4": ("jaxmarl", "sb3"),
    "W2": ("jaxmarl", "sb3", "tianshou", "xuance", "benchmarl", "rllib"), "W3": ("sb3", "pufferlib"),
    "W5": ("xuance", "benchmarl"), "W6": ("xuance", "benchmarl"),
}  # fmt: skip
"""Peers that are measured on each work."""
TITLES = {
    "W1": "PPO, 3 players, one core", "W1x2": "PPO, 3 players, two cores", "W4": "PPO, 8 players, one core",
    "W2": "Double DQN, 3 players, one core", "W3": "PPO on cart-pole to a mean return of 475, one core",
    "W5": "MAPPO, 3 players, one core", "W6": "QMIX, 3 players, one core",
}  # fmt: skip
COSTS = {"players": (3, 8, 16, 32, 64), "environments": (16, 64, 256, 1024, 4096), "width": (32, 64, 128, 256, 512)}
OPTIONS = {"players": "--players", "environments": "--envs", "width": "--width"}
OURS = ("torch", "torch-compiled", "tensorflow", "tensorflow-compiled")


@dataclass(frozen=True)
class Rival:
    """A library that is measured.

    name: its name in the tables.  command: its command line up to the work.  missing: the reason why it cannot run.
    alone: limit OMP_NUM_THREADS to 1 on any number of cores, since its own threads use the other cores.
    """

    name: str
    command: tuple[str, ...] = ()
    missing: str = ""
    alone: bool = False

    @property
    def ours(self) -> bool:
        """Whether it is marltrain."""
        return self.name.startswith("marltrain")


@dataclass
class FoundCheckpoint:
    """Results of a rival's runs, and the reason why a run failed."""

    lines: list[dict[str, Any]] = field(default_factory=list)
    failed: str = ""

    def all(self, name: str) -> list[float]:
        """Return a result of all runs by its name."""
        return [float(line[name]) for line in self.lines]


def marltrain(kind: str, collect: str | None = None) -> Rival:
    """Return marltrain on one of OURS. collect: the way of collecting; None: the default."""
    backend, _, compiled = kind.partition("-")
    more = (*(("--compiled",) if compiled else ()), *(("--collect", collect) if collect else ()))
    name = ", ".join(["marltrain", backend, *(["compiled"] if compiled else []), *([collect] if collect else [])])
    return Rival(name, (sys.executable, "-m", "benchmarks.peers.ours", "--backend", backend, *more),
                 alone=collect == "overlap")  # fmt: skip


def peer(name: str, venvs: Path) -> Rival:
    """Return a peer, with the reason if it is not installed."""
    python, reason = venvs / name / "bin" / "python", venvs / f"{name}.failed"
    if python.exists():
        return Rival(name, (str(python), "-W", "ignore", "-m", f"benchmarks.peers.{name}"))
    return Rival(name, missing=reason.read_text().strip() if reason.exists() else "not installed: `make peers`")


def run(rival: Rival, arguments: Sequence[str], cores: Sequence[int], seconds: float, into: FoundCheckpoint) -> None:
    """Run a process on its cores; add its line of results, or the reason of its failure, to `into`."""
    if rival.missing or into.failed:
        into.failed = into.failed or rival.missing
        return
    threads = 1 if rival.alone else len(cores)
    environment = {**os.environ, "OMP_NUM_THREADS": str(threads), "TF_CPP_MIN_LOG_LEVEL": "3", "TQDM_DISABLE": "1"}
    command = ["taskset", "-c", ",".join(map(str, cores)), *rival.command, *arguments, "--seconds", str(seconds)]
    try:
        done = subprocess.run(
            command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=seconds + PATIENCE
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        into.failed = f"nothing after {seconds + PATIENCE:.0f} s"
        return
    printed = [line for line in done.stdout.splitlines() if line.startswith('{"peer"')]
    if printed:
        into.lines.append(json.loads(printed[-1]))
        print(f"  {printed[-1]}", flush=True)
    else:
        said = done.stderr.strip().splitlines()
        into.failed = f"failed: {said[-1][:120].replace('|', '/') if said else f'ended with {done.returncode}'}"
        print(f"  {rival.name}: {into.failed}", flush=True)


def in_turn(
    rivals: Sequence[Rival], work: str, cores: Sequence[int], rounds: Iterable[int], seconds: float,
    options: Sequence[str] = (),
) -> dict[Rival, FoundCheckpoint]:  # fmt: skip
    """Run all rivals one after another in each round; the number of the round is the seed."""
    found = {rival: FoundCheckpoint() for rival in rivals}
    for seed in rounds:
        for rival in rivals:
            run(rival, (work, "--seed", str(seed), *options), cores, seconds, found[rival])
    return found


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a Markdown table."""
    return "\n".join(f"| {' | '.join(row)} |" for row in (header, ["---"] * len(header), *rows))


def best(found: dict[Rival, FoundCheckpoint], number: str, choose: Any) -> float:
    """Return the best median among marltrain's results; nan without results."""
    medians = [statistics.median(runs.all(number)) for rival, runs in found.items() if rival.ours and runs.lines]
    return float(choose(medians, default=float("nan")))


def rates(found: dict[Rival, FoundCheckpoint]) -> str:
    """Return the table of environment steps per second."""
    mine, rows = best(found, "env_steps_per_s", max), []
    for rival, runs in found.items():
        if not runs.lines:
            rows.append([rival.name, runs.failed, *[""] * 5])
            continue
        values, last = runs.all("env_steps_per_s"), runs.lines[-1]
        middle = statistics.median(values)
        networks = last["networks"] + ("" if last.get("double", True) else ", not double")
        networks += f"; then {runs.failed}" if runs.failed else ""
        rows.append([
            rival.name, networks, f"{min(values):,.0f}", f"{middle:,.0f}", f"{max(values):,.0f}",
            "" if rival.ours else f"{mine / middle:.2f}", f"{statistics.median(runs.all('setup_s')):.0f}",
        ])  # fmt: skip
    return table(["", "networks", "lowest", "median", "highest", "marltrain / peer", "set-up (s)"], rows)


def times(found: dict[Rival, FoundCheckpoint]) -> str:
    """Return the table of seconds until cart-pole is solved; a seed that does not solve it counts as infinite."""
    for runs in found.values():
        for line in runs.lines:
            line["seconds"] = line["seconds"] if line["solved"] else float("inf")
    mine, rows = best(found, "seconds", min), []
    for rival, runs in found.items():
        if not runs.lines:
            rows.append([rival.name, runs.failed, *[""] * 5])
            continue
        values, solved = runs.all("seconds"), sum(line["solved"] for line in runs.lines)
        middle, steps = statistics.median(values), statistics.median(runs.all("env_steps"))
        rows.append([
            rival.name, f"{solved} of {len(values)}", f"{min(values):.1f}", f"{middle:.1f}", f"{max(values):.1f}",
            f"{steps:,.0f}", "" if rival.ours else f"{middle / mine:.2f}",
        ])  # fmt: skip
    return table(["", "seeds", "lowest (s)", "median", "highest", "env steps", "peer / marltrain"], rows)


def costs(what: str, kind: str, cores: Sequence[int], rounds: int, seconds: float) -> str:
    """Return the table of the costs of W1 by players, environments or width."""
    rival, found = marltrain(kind), {value: FoundCheckpoint() for value in COSTS[what]}
    for _ in range(rounds):
        for value, runs in found.items():
            run(rival, ("W1", OPTIONS[what], str(value)), cores, seconds, runs)
    rows, first = [], float("nan")
    for value, runs in found.items():
        if not runs.lines:
            rows.append([str(value), runs.failed, *[""] * 2])
            continue
        each = [1e6 / (line["env_steps_per_s"] * line["agents"]) for line in runs.lines]
        middle = statistics.median(each)
        first = middle if value == COSTS[what][0] else first
        rows.append([
            f"{value:,}", f"{statistics.median(runs.all('env_steps_per_s')):,.0f}",
            f"{middle:.2f} ({min(each):.2f} to {max(each):.2f})", f"{middle / first:.2f}",
        ])  # fmt: skip
    return table([what, "env steps/s", "µs an agent step", "of the first row's"], rows)


def processor() -> str:
    """Return the processor's name."""
    data = re.search(r"^model name\s*:\s*(.*)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    return data[1].strip() if data else "unknown processor"


def versions(found: dict[Rival, FoundCheckpoint]) -> str:
    """Return the versions of the measured packages."""
    data = {name: number for runs in found.values() for line in runs.lines for name, number in line["versions"].items()}
    return ", ".join(f"{name} {number}" for name, number in sorted(data.items()))


def write(name: str, text: str) -> None:
    """Write a table between its marks in the page."""
    page = PAGE.read_text(encoding="utf-8")
    marks = re.compile(rf"(<!-- table: {re.escape(name)} -->\n).*?(<!-- end -->)", re.DOTALL)
    if not marks.search(page):
        raise SystemExit(f"{PAGE} has no marks for {name!r}: <!-- table: {name} --> and <!-- end -->")
    PAGE.write_text(marks.sub(lambda found: f"{found[1]}{text}\n\n{found[2]}", page), encoding="utf-8")


def measured(name: str, args: argparse.Namespace) -> str:
    """Measure one table; return it with a line that describes the measurement."""
    if name in COSTS:
        result = costs(name, args.ours[0], (0,), args.rounds, args.seconds)
        return f"{marltrain(args.ours[0]).name}; W1, {args.rounds} runs in turn; {processor()}.\n\n{result}"
    work, _, cores = name.partition("x")
    ours = [marltrain(kind, how) for kind in args.ours for how in (args.collect if cores else [None])]
    rivals = [*ours, *(peer(each, args.venvs) for each in WORKS[name] if each in args.peers)]
    rounds = args.seeds if work == "W3" else args.rounds
    options = ("--processor",) if args.processor else ()
    found = in_turn(rivals, work, range(int(cores or 1)), range(rounds), args.seconds, options)
    unit = "env steps per processor second" if args.processor else "env steps/s"
    text = "seeds" if work == "W3" else f"rounds of {args.seconds:g} s each; {unit}"
    result = times(found) if work == "W3" else rates(found)
    return f"{TITLES[name]}; {rounds} {text}; {processor()}.\n\n{result}\n\n{versions(found)}."


def main() -> None:
    """Measure the named tables, or all tables; print them, and write them with --write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tables", nargs="*", help=f"of {', '.join((*WORKS, *COSTS))}; all by default")
    parser.add_argument("--peers", nargs="*", choices=ALL, default=ALL)
    parser.add_argument("--ours", nargs="+", choices=OURS, default=["torch-compiled", "tensorflow-compiled"],
                        help="marltrain's backends; the first one's costs are measured")  # fmt: skip
    parser.add_argument("--collect", nargs="+", default=["serial", "overlap"], help="marltrain's ways on two cores")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=6.0, help="of measuring, in every run")
    parser.add_argument("--seeds", type=int, default=5, help="of W3")
    parser.add_argument("--venvs", type=Path, default=VENVS, help="where the peers are installed")
    parser.add_argument("--processor", action="store_true", help="processor time, not time by the clock")
    parser.add_argument("--write", action="store_true", help="write docs/benchmarks.md")
    args = parser.parse_args()
    unknown = [name for name in args.tables if name not in (*WORKS, *COSTS)]
    if unknown:
        parser.error(f"unknown tables {unknown}; there are {', '.join((*WORKS, *COSTS))}")
    everything: tuple[str, ...] = (*WORKS, *COSTS)
    if not args.tables and not args.venvs.exists():
        print("no peers are installed: make peers first; what follows is marltrain alone", flush=True)
        everything = (*COSTS,)
    for name in args.tables or everything:
        print(f"{name}:", flush=True)
        text = measured(name, args)
        print(text, flush=True)
        if args.write:
            write(name, text)


if __name__ == "__main__":
    main()
