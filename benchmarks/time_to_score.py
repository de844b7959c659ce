"""Seconds from the start of a process to a tested return on simple_spread: marltrain's MAPPO and JaxMARL's scripts.

    python benchmarks/time_to_score.py --seeds 0 1 2 3 4
    python benchmarks/time_to_score.py --seeds 0 --cold
    python benchmarks/time_to_score.py --seeds 0 --jaxmarl PYTHON FOLDER --algorithms mappo_rnn ippo_ff --limit 900

A run is a new process, which is ended at its last score or at the limit. Time begins with the process, so that imports
and compilation count. A score is the mean return of a player, of 100 greedy episodes in a test every 100,000 env steps;
a score is reached in the first test of at least this return. marltrain's sampled actions are tested, too, on the same
episodes. JaxMARL's PPO has no tests: its score is that of the sampled actions of training, see
`peers/jaxmarl_scripts.py`. Each figure is by the clock, then by the processor.

--cold: marltrain's compiled code is kept in an empty folder; else a first process fills the cache. JaxMARL compiles
anew in each process.  PYTHON FOLDER: of an environment with JaxMARL, and the folder `baselines` of its repository.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

ROOT = Path(__file__).parents[1]
ROW = "together-spread-10m-mappo"
"""Row of the learning table with the settings."""
SCORES = (-9.8, -7.8)
EVERY, EPISODES = 100_000, 100
KINDS = ("greedy", "sampled")


@dataclass(frozen=True)
class Point:
    """A test of a process.

    seconds, processor: since its start.  returns: "greedy" or "sampled" -> mean return of a player.
    """

    seconds: float
    processor: float
    env_steps: int
    returns: Mapping[str, float]


def points_of(command: list[str], limit: float, more: Mapping[str, str]) -> Iterator[Point]:
    """Start a process and yield the tests that it prints, a line of JSON each; end it after the limit, in seconds."""
    start = time.perf_counter()
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT), **more}
    ) as process:
        assert process.stdout is not None
        try:
            for line in process.stdout:
                if line.startswith("{"):
                    found = json.loads(line)
                    seconds = time.perf_counter() - start
                    yield Point(seconds, found.pop("processor"), found.pop("env_steps"), found)
                if time.perf_counter() - start > limit:
                    return
        finally:
            process.kill()


@dataclass
class Found:
    """What the tests of a process reached.

    first: of each kind of actions and score, the first test of at least this return; None: not reached.
    best: of each kind of actions, the test with the largest return.
    """

    first: dict[tuple[str, float], Point | None] = field(default_factory=dict)
    best: dict[str, Point] = field(default_factory=dict)


def reached(tests: Iterable[Point], scores: Iterable[float]) -> Found:
    """Read tests until all scores are reached by all kinds of actions that the tests have."""
    found = Found()
    for test in tests:
        for kind, value in test.returns.items():
            if kind not in found.best or value > found.best[kind].returns[kind]:
                found.best[kind] = test
            for score in scores:
                if found.first.setdefault((kind, score), None) is None and value >= score:
                    found.first[kind, score] = test
        if found.first and None not in found.first.values():
            break
    return found


def train(seed: int) -> None:
    """Train with the row's settings; print each test."""
    import marltrain as mt
    from benchmarks.learn.rows import row_of
    from benchmarks.learn.training import settings_of

    class Printing(mt.Callback):
        """Prints the returns of a test."""

        def on_test_end(self, moment: mt.Moment) -> None:
            """Print a line of JSON."""
            returns = dict(zip(KINDS, (moment.data["metric"], moment.data["sampled_metric"]), strict=True))
            print_test(moment.env_steps, returns)

    row = row_of(ROW)
    settings = settings_of(row)
    agents = mt.make_agents(row.algo, row.task.env, seed=seed, **settings["agents"])
    tests = {"test_freq_steps": EVERY, "episodes_per_test": EPISODES, "num_test_envs": EPISODES, "sampled_tests": True}
    trainer = mt.DecentralizedTrainer(
        row.task.env, seed=seed, run_dir=False, progress=False, callbacks=[Printing()],
        **{**settings["trainer"], **tests},
    )  # fmt: skip
    trainer.train(agents, [1] * len(agents), plot=False)


def print_test(env_steps: int, returns: Mapping[str, float]) -> None:
    """Print a test as a line of JSON, with the processor time of this process."""
    rounded = {kind: round(float(value), 3) for kind, value in returns.items()}
    print(json.dumps({"processor": round(time.process_time(), 2), "env_steps": env_steps, **rounded}), flush=True)


def show(name: str, seed: int, found: Found) -> None:
    """Print a line for each kind of actions and score."""
    for (kind, score), test in found.first.items():
        shown = found.best[kind] if test is None else test
        text = "" if test is not None else "not reached; the best test: "
        text += f"{shown.seconds:.1f} s, processor {shown.processor:.1f} s, {shown.env_steps:,} env steps, "
        print(f"{name} seed {seed} {kind} {score}: {text}return {shown.returns[kind]:.2f}", flush=True)


def ours(seed: int, limit: float, scores: list[float], *, cold: bool) -> None:
    """Measure a seed of marltrain."""
    command = [sys.executable, __file__, "--train", str(seed)]
    with tempfile.TemporaryDirectory() as folder:
        more = {"NUMBA_CACHE_DIR": folder} if cold else {}
        show("marltrain mappo", seed, reached(points_of(command, limit, more), scores))


def theirs(peer: list[str], algorithm: str, seed: int, limit: float, scores: list[float]) -> None:
    """Measure a seed of JaxMARL.  peer: interpreter, folder of its scripts."""
    command = [peer[0], "-m", "benchmarks.peers.jaxmarl_scripts", peer[1], algorithm, "--seed", str(seed)]
    show(f"jaxmarl {algorithm}", seed, reached(points_of(command, limit, {}), scores))


def main() -> None:
    """Measure all seeds, in turn."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--scores", type=float, nargs="+", default=list(SCORES))
    parser.add_argument("--limit", type=float, default=900.0, help="seconds of a process")
    parser.add_argument("--cold", action="store_true")
    parser.add_argument("--jaxmarl", nargs=2, metavar=("PYTHON", "FOLDER"))
    parser.add_argument("--algorithms", nargs="+", default=["mappo_rnn", "ippo_ff"])
    parser.add_argument("--peers-only", action="store_true", help="measure JaxMARL alone")
    parser.add_argument("--train", type=int, metavar="SEED", help="train in this process and print the tests")
    args = parser.parse_args()
    if args.train is not None:
        train(args.train)
        return
    if not (args.cold or args.peers_only):
        next(points_of([sys.executable, __file__, "--train", "0"], args.limit, {}), None)
    for seed in args.seeds:
        if not args.peers_only:
            ours(seed, args.limit, args.scores, cold=args.cold)
        for algorithm in args.algorithms if args.jaxmarl else ():
            theirs(args.jaxmarl, algorithm, seed, args.limit, args.scores)


if __name__ == "__main__":
    main()
