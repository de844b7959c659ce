"""Processor time of a gradient step: by a program of marltrain's interpreter, and by plain PyTorch.

    python benchmarks/gradient_steps.py [ALGORITHM ...] [--rounds 10]
    python benchmarks/gradient_steps.py --first-use [ALGORITHM ...]

Each row is a phase of an algorithm: three agents of native simple_spread, or one of native Pendulum for continuous
actions; two layers of 64 units unless the name says otherwise, batches of 64 rows (on-policy: minibatches of 512; 256
for "sac-256"). The rows are those of a real training. All variants make the same step in turn, on one thread; the
tables have medians with quartiles. "share of peak" is the rate of the floating-point operations of the program's
products, divided by that of torch's product of two matrices of 512 x 512. Memory is that of a program's buffers.

--first-use: seconds from the call of `train` to the end of the first update, by the clock, in a new process with an
empty cache, and in the next process; installed packages are loaded from disk in both.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np

import marltrain as mt

GRU = {"network": mt.GRU((64,), "relu", 64, 16)}
MLP = {"network": mt.MLP((64, 64), "relu")}
SPREAD, PENDULUM = "marltrain/simple_spread_v3", "marltrain/Pendulum-v1"
ON_POLICY = {**MLP, "epochs": 1, "minibatches": 4}
CASES: dict[str, tuple[str, str, dict[str, Any]]] = {
    **{name: (name, SPREAD, MLP) for name in (
        "dqn", "c51", "rainbow", "acer", "vdn", "qmix", "wqmix", "maddpg", "masac",
    )},
    **{name: (name, SPREAD, ON_POLICY) for name in ("ppo", "mappo", "mmd")},
    **{name: (name, SPREAD, MLP) for name in ("a2c", "maa2c", "coma", "vdac", "seac")},
    "ppo-gru": ("ppo", SPREAD, {**ON_POLICY, **GRU}),
    "qmix-gru": ("qmix", SPREAD, GRU),
    **{name: (name, PENDULUM, MLP) for name in ("sac", "td3", "ddpg")},
    "sac-256": ("sac", PENDULUM, {"network": mt.MLP((256, 256), "relu"), "batch_size": 256}),
}  # fmt: skip
"""Name -> algorithm, environment, settings."""
FIRST_USE = ("ppo", "qmix-gru", "sac", "ppo-gru")
SLICE = 0.05
"""Seconds of a variant in a round."""


def agents_of(name: str, **more: Any) -> list[Any]:
    """Return the agents of a row."""
    algorithm, env, settings = CASES[name]
    return mt.make_agents(algorithm, env, seed=0, device="cpu", **{**settings, **more})


def train(name: str, agents: list[Any], callbacks: Any = ()) -> None:
    """Train for the first updates of a row."""
    env = CASES[name][1]
    settings: dict[str, Any] = {"steps_per_train": 2048, "num_train_envs": 16, "callbacks": list(callbacks)}
    if env == SPREAD:
        settings["team_reward"] = "mean"
    trainer = mt.DecentralizedTrainer(env, seed=0, test_freq=None, progress=False, run_dir=False, **settings)
    trainer.train(agents, [1] * len(agents), plot=False)


def steps_of(name: str) -> dict[Any, tuple[Any, Any, Any]]:
    """Return the gradient steps of a row, by the framework, and the arguments of a call of each."""
    from marltrain.policies.learner.gradient_step import GradientStep

    found: dict[Any, tuple[Any, Any, Any]] = {}
    plain = GradientStep.__call__

    def watched(step: Any, columns: Any, numbers: Any, due: Any) -> Any:
        found[step] = columns, numbers, due
        return plain(step, columns, numbers, due)

    with mock.patch.object(GradientStep, "__call__", watched):
        train(name, agents_of(name))
    return found


def variants(step: Any) -> dict[str, Any]:
    """Return the variants of a gradient step, which train the same networks."""
    from marltrain.policies.learner.programs.program_step import ProgramStep

    return {"program": ProgramStep(step.number, step.team), "plain": step}


def operations(program: Any) -> int:
    """Return the floating-point operations of the products of a program."""
    from marltrain.policies.tape.assembly.table import SECTIONS
    from marltrain.policies.tape.instructions import FORMS

    execution, total = program.execution, 0
    table = execution.program.table
    times = {**dict.fromkeys(SECTIONS, 1), "block": execution.blocks, "rest": execution.rests}
    for section, start, stop in zip(SECTIONS, table.starts, table.starts[1:], strict=False):
        for row in table.instructions[start:stop]:
            name = list(FORMS)[row[0]]
            if name in ("linear", "layer_gradient"):
                fields = dict(zip(FORMS[name].names or (), row, strict=True))
                total += times[section] * 2 * int(fields["rows"] * fields["inputs"] * fields["outputs"])
    return total * execution.agents


def peak() -> float:
    """Return the floating-point operations a second of torch's product of large matrices on one thread."""
    import torch

    x = torch.randn(512, 512)
    seconds = min(clock(lambda: x @ x, 20) for _ in range(5))
    return 2 * 512**3 / seconds


def clock(function: Callable[[], object], calls: int) -> float:
    """Return the processor seconds of a call."""
    start = time.process_time()
    for _ in range(calls):
        function()
    return (time.process_time() - start) / calls


def measure(name: str, rounds: int, highest: float) -> None:
    """Print a line of the table for each phase of a row."""
    for step, arguments in steps_of(name).items():
        ways = variants(step)
        calls = {kind: _call(one, arguments) for kind, one in ways.items()}
        for call in calls.values():
            call()  # records
        counts = {kind: max(2, int(SLICE / clock(call, 2))) for kind, call in calls.items()}
        laps: dict[str, list[float]] = {kind: [] for kind in calls}
        for _ in range(rounds):
            for kind, call in calls.items():
                laps[kind].append(clock(call, counts[kind]))
        (program,) = ways["program"]._programs.values()
        share = operations(program) / float(np.median(laps["program"])) / highest
        cells = [f"{1e6 * np.median(laps[kind]):,.0f}" for kind in laps]
        cells += [ratio(laps["program"], laps[kind]) for kind in list(laps)[1:]]
        table = program.execution.program.table
        print(f"| {name} | {step.phase.name} | " + " | ".join(cells)
              + f" | {100 * share:.0f} % | {(table.arena + table.kept) / 1024:,.0f} KiB |", flush=True)  # fmt: skip


def _call(step: Any, arguments: Any) -> Callable[[], object]:
    return lambda: step(*arguments)


def ratio(first: list[float], second: list[float]) -> str:
    """Return the median of ratios with its quartiles."""
    low, middle, high = np.percentile(np.divide(first, second), [25, 50, 75])
    return f"{middle:.2f} ({low:.2f} to {high:.2f})"


class _Clock(mt.Callback):
    """The time of the first update."""

    only_watches = True
    found: float | None = None

    def on_update_end(self, moment: mt.Moment) -> None:
        """Keep the time."""
        self.found = self.found or time.perf_counter()


def first_use(name: str) -> None:
    """Print the seconds from the call of `train` to the end of the first update."""
    more = {} if CASES[name][0] in ("ppo", "mappo", "a2c") else {"learning_starts": 64}
    agents, seen = agents_of(name, jit_compile=True, **more), _Clock()
    start = time.perf_counter()
    train(name, agents, [seen])
    print(f"{(seen.found or np.nan) - start:.1f}")


def first_uses(names: list[str]) -> None:
    """Print the seconds of each row with an empty cache, and in the next process."""
    print("| row | empty cache, s | from disk, s |\n|---|---|---|")
    for name in names:
        with tempfile.TemporaryDirectory() as folder:
            cells = [_in_process(name, Path(folder)) for _ in range(2)]
        print(f"| {name} | " + " | ".join(cells) + " |", flush=True)


def _in_process(name: str, folder: Path) -> str:
    """Return the line that a process prints whose compiled code is kept in a folder."""
    command = [sys.executable, __file__, "--first-use-here", name]
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(folder), "TORCHINDUCTOR_CACHE_DIR": str(folder / "torch")}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    return done.stdout.split()[-1]


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="ALGORITHM", help=f"of {', '.join(CASES)}; all by default")
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--first-use", action="store_true")
    parser.add_argument("--first-use-here", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.first_use_here:
        first_use(args.names[0])
    elif args.first_use:
        first_uses(args.names or list(FIRST_USE))
    else:
        heads = ["row", "phase", "program, us", "plain, us", "program / plain", "share of peak", "memory"]
        print("| " + " | ".join(heads) + " |\n" + "|---" * len(heads) + "|")
        highest = peak()
        for name in args.names or CASES:
            measure(name, args.rounds, highest)


if __name__ == "__main__":
    main()
