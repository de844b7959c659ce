"""All that is measured on a machine with a GPU, in at most six minutes.

    python -m benchmarks.gpu [--device cuda] [--only PART ...] [--small] [--minutes 6] [--out gpu.json]

Each part runs in processes of its own; a part that fails, or takes longer than its limit, leaves the figures of the
others. Figures are printed as tables, and written with the versions to a JSON file after each part.

    algorithms  every algorithm: relative distance of its weights from the CPU's after some updates, plain and captured
                (`jit_compile=True`); saved, and loaded on both devices; stopped, and resumed with captured calls
    killed      a run that is killed by SIGKILL, resumed from its checkpoint, beside one that is not
    spread      PPO, 3 agents in native simple_spread with 16, 1,024 and 8,192 environments (W1)
    continuous  SAC at the sizes of MuJoCo's HalfCheetah: 17 observations, 6 actions, 2x256, batches of 256, one
                environment, one update an env step; its observations are random
    image       DQN, 84x84x4 pixels, three convolutions, batches of 32, an update every four env steps; random images

A rate is env steps per second of wall time, learning included, after a warm-up. Processes have one thread, and those
of spread up to eight, also where the CPU computes. `--device cpu` runs the same code on a machine without a GPU, whose
CPU stands for it; captured calls are then carried out one operation after the other, twice and with checks, so that
their rates say nothing. `--small` takes small networks, images and numbers of environments. benchmarks/gpu.txt names
the packages that the script needs.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

Row = dict[str, Any]
SECONDS = {"algorithms": 150.0, "killed": 60.0, "spread": 110.0, "continuous": 60.0, "image": 60.0}
"""Limits of the parts in seconds, with `--minutes 6`; they grow with it."""
TOGETHER = ("algorithms", "killed")
"""Parts without rates, whose processes run at the same time."""
THREADS = {"spread": 8}
"""Largest number of threads of a part's process; else 1. Native games divide their environments among threads."""
MODES = {"cpu": (False, False), "cpu, compiled": (False, True), "gpu": (True, False), "gpu, captured": (True, True)}
"""Name -> whether the GPU computes, and `jit_compile`."""
NATURE = ((32, 8, 4), (64, 4, 2), (64, 3, 1))
LARGEST_ON_CPU = 1024
"""Largest number of environments with which the CPU is measured."""


def placed(device: str, *, gpu: bool) -> tuple[str, AbstractContextManager[Any]]:
    """Return the device of agents, and the context in which they are made and trained."""
    from marltrain.policies.backends.torch.places import cpu_as_gpu
    from marltrain.policies.backends.torch.recorded_capture import RecordedCapture

    if not gpu:
        return "cpu", nullcontext()
    return device, cpu_as_gpu(RecordedCapture()) if device == "cpu" else nullcontext()


def algorithms(asked: argparse.Namespace) -> Iterator[Row]:
    """Hold every algorithm against the CPU; those of this process are every `asked.lanes`-th."""
    from marltrain.policies.agents.registry import ALGORITHMS

    for name in list(ALGORITHMS)[asked.lane :: asked.lanes]:
        yield from attempt(name, lambda name=name: algorithm(name, asked.device))  # type: ignore[misc]


def algorithm(name: str, device: str) -> Row:
    """Return the figures of an algorithm; those of weights are relative distances, see `tests/gpu/runs.py`."""
    import marltrain as mt
    from tests.gpu.runs import NEAR, different, distance, make, on_policy, train, weights

    steps, started = 128 if on_policy(name) else 80, time.perf_counter()
    place, context = placed(device, gpu=True)
    here = make(name, "cpu")
    done = train(name, here, steps)["num_gradient_steps"]
    with context:
        plain, captured, again = make(name, place), *(make(name, place, jit_compile=True) for _ in range(2))
        train(name, plain, steps)
        with tempfile.TemporaryDirectory() as folder:
            mt.save(f"{folder}/agents", plain)
            loaded = [mt.load(f"{folder}/agents", device=each) for each in ("cpu", place)]
            train(name, captured, steps)
            far = [distance(weights(here), weights(each)) for each in (plain, captured)]
            part, run = make(name, place, jit_compile=True), Path(folder) / "run"
            train(name, part, steps, run)
            train(name, again, steps + 64, run, resume=True)
            whole = make(name, place, jit_compile=True)
            train(name, whole, steps + 64)
    return {
        "gradient steps": int(done), "plain": far[0], "captured": far[1], "near": max(far) <= NEAR,
        "loaded": not any(different(plain, each) for each in loaded), "resumed": not different(whole, again),
        "seconds": time.perf_counter() - started,
    }  # fmt: skip


def killed(asked: argparse.Namespace) -> Iterator[Row]:
    """Kill a run, resume it, and hold it against one that is not killed."""
    for name in ("ppo", "qmix", "sac"):
        yield from attempt(name, lambda name=name: kill(name, asked))  # type: ignore[misc]


def kill(name: str, asked: argparse.Namespace) -> Row:
    """Return whether a run that was killed after its first checkpoint ends as the whole run."""
    from tests.gpu.runs import different, make, train

    place, context = placed(asked.device, gpu=True)
    with tempfile.TemporaryDirectory() as folder, context:
        run = Path(folder) / "run"
        child = subprocess.Popen([*command(asked), "--train", name, str(run)])
        while child.poll() is None and not any(each.name.isdigit() for each in run.glob("checkpoints/*")):
            time.sleep(0.01)
        was_killed = child.poll() is None
        child.kill()
        child.wait()
        whole, again = (make(name, place, jit_compile=True) for _ in range(2))
        train(name, whole, asked.killed_steps)
        train(name, again, asked.killed_steps, run, resume=True)
    return {"killed": was_killed, "equal": not different(whole, again)}


def train_until_killed(asked: argparse.Namespace, name: str, run: str) -> None:
    """Train in a process that is killed."""
    from tests.gpu.runs import make, train

    place, context = placed(asked.device, gpu=True)
    with context:
        train(name, make(name, place, jit_compile=True), asked.killed_steps, Path(run))


def spread(asked: argparse.Namespace) -> Iterator[Row]:
    """Measure W1."""
    for envs in (4, 16) if asked.small else (16, 1024, 8192):
        for mode, (gpu, _) in MODES.items():
            if gpu or envs <= LARGEST_ON_CPU:
                work = {"epochs": 4, "minibatches": 4}
                yield from rates(asked, f"{envs:,} environments", mode, "ppo", "marltrain/simple_spread_v3", work,
                                 envs=envs, update_freq=(16 if asked.small else 128) * envs)  # fmt: skip


def continuous(asked: argparse.Namespace) -> Iterator[Row]:
    """Measure SAC at the sizes of HalfCheetah."""
    import marltrain as mt

    width = 16 if asked.small else 256
    work = {"network": mt.MLP((width, width), "relu"), "batch_size": width, "learning_starts": 300, "capacity": 100_000}
    for mode in MODES:
        yield from rates(asked, f"2x{width}", mode, "sac", noise((17,), None), work)


def image(asked: argparse.Namespace) -> Iterator[Row]:
    """Measure DQN on images."""
    import marltrain as mt

    size, width = (20, 32) if asked.small else (84, 512)
    network = mt.CNN((width,), filters=((4, 4, 2),) if asked.small else NATURE)
    work = {"network": network, "batch_size": 32, "learning_starts": 400, "capacity": 20_000}
    for mode in MODES:
        yield from rates(asked, f"{size}x{size}x4", mode, "dqn", noise((size, size, 4), 6), work, update_freq=4)


def noise(shape: tuple[int, ...], choices: int | None) -> Any:
    """Return a class of environments with random observations of a shape: uint8 images, or vectors.

    choices: number of actions; None: six continuous ones.
    """
    import gymnasium as gym
    import numpy as np

    rng, images = np.random.default_rng(0), len(shape) == 3
    pool = rng.integers(0, 256, (64, *shape), np.uint8) if images else rng.normal(size=(64, *shape)).astype(np.float32)

    class Noise(gym.Env[Any, Any]):
        observation_space = gym.spaces.Box(0, 255, shape, np.uint8) if images else gym.spaces.Box(-9, 9, shape)
        action_space: Any = gym.spaces.Box(-1, 1, (6,)) if choices is None else gym.spaces.Discrete(choices)
        time = 0

        def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
            super().reset(seed=seed)
            self.time = 0
            return pool[0], {}

        def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
            self.time += 1
            return pool[self.time % 64], float(np.sum(action) > 0), False, self.time >= 200, {}

    return Noise


def rates(
    asked: argparse.Namespace, case: str, mode: str, algo: str, env: Any, work: dict[str, Any], *, envs: int = 1,
    update_freq: int = 1,
) -> Iterator[Row]:  # fmt: skip
    """Measure a rate in one of `MODES`."""

    def measured() -> Row:
        import torch

        import marltrain as mt

        gpu, compiled = MODES[mode]
        place, context = placed(asked.device, gpu=gpu)
        if on_gpu := place.startswith("cuda"):
            torch.cuda.reset_peak_memory_stats()
        marks: list[tuple[float, int]] = []

        def mark(moment: Any) -> None:
            if not marks or moment.env_steps > marks[-1][1]:  # several updates can follow the same env step
                marks.append((time.perf_counter(), moment.env_steps))
            if len(marks) > 3 and marks[-1][0] - marks[2][0] > asked.seconds:
                moment.stop("measured")

        with context:
            agents = mt.make_agents(algo, env, seed=0, device=place, jit_compile=compiled, **work)
            trainer = mt.DecentralizedTrainer(
                env, num_train_envs=envs, update_freq=update_freq, test_freq=None, steps_per_train=10**9, seed=0,
                run_dir=False, progress=False, callbacks=[mt.LambdaCallback(only_watches=True, on_update_end=mark)],
            )  # fmt: skip
            trainer.train(agents, [1] * len(agents), plot=False)
        warm = next(
            i
            for i, each in enumerate(marks)
            if (i > 1 and each[0] - marks[2][0] >= asked.seconds / 4) or i == len(marks) - 2
        )
        steps, seconds = marks[-1][1] - marks[warm][1], marks[-1][0] - marks[warm][0]
        peak = {"MiB": torch.cuda.max_memory_allocated() // 2**20} if on_gpu else {}
        return {"mode": mode, "env steps/s": steps / seconds, "env steps": steps, **peak}

    yield from attempt(f"{case}, {mode}", measured, case=case)


def attempt(who: str, measure: Callable[[], Row], case: str | None = None) -> Iterator[Row]:
    """Yield the row of a case, or a row with its error."""
    try:
        yield {"case": case or who, **measure()}
    except Exception as error:
        yield {"case": who, "error": f"{type(error).__name__}: {str(error)[:400]}"}


PARTS: dict[str, Callable[[argparse.Namespace], Iterator[Row]]] = {
    "algorithms": algorithms, "killed": killed, "spread": spread, "continuous": continuous, "image": image,
}  # fmt: skip


def command(asked: argparse.Namespace) -> list[str]:
    """Return the command of a child process with the same choices."""
    given = ["--device", asked.device, "--seconds", str(asked.seconds), *(["--small"] if asked.small else [])]
    return [sys.executable, "-m", "benchmarks.gpu", *given]


def part(asked: argparse.Namespace, name: str, limit: float, lane: int = 0, lanes: int = 1) -> list[Row]:
    """Run a part, or one lane of it, in a process; return its rows, with one for what failed."""
    own = [*command(asked), "--part", name, "--lane", str(lane), "--lanes", str(lanes)]
    threads = {"OMP_NUM_THREADS": str(min(THREADS.get(name, 1), cores()))}
    with tempfile.TemporaryFile("w+") as said, tempfile.TemporaryFile("w+") as errors:
        child = subprocess.Popen(own, stdout=said, stderr=errors, start_new_session=True, env={**os.environ, **threads})
        try:
            code: int | str = child.wait(max(1.0, limit))
        except subprocess.TimeoutExpired:
            code = f"{limit:.0f} s are over"
            os.killpg(child.pid, signal.SIGKILL)
            child.wait()
        said.seek(0)
        errors.seek(0)
        rows = [json.loads(line) for line in said if line.startswith('{"case"')]
        if code != 0:
            rows.append({"case": f"process {lane + 1} of {lanes}", "error": f"{code}: {errors.read()[-600:]}"})
    return rows


def cores() -> int:
    """Return the number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def versions() -> Row:
    """Return the machine and the versions."""
    import numba
    import numpy
    import torch

    card = torch.cuda.get_device_name(0) if torch.cuda.is_available() else "no GPU"
    return {
        "card": card, "cores": cores(), "python": platform.python_version(), "torch": torch.__version__,
        "cuda": torch.version.cuda, "numba": numba.__version__, "numpy": numpy.__version__,
    }  # fmt: skip


def table(rows: list[Row]) -> str:
    """Return rows as a Markdown table."""
    columns = list(dict.fromkeys(name for row in rows for name in row))
    lines = [columns, ["---"] * len(columns), *([shown(row.get(name, "")) for name in columns] for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def shown(value: Any) -> str:
    """Return a cell of a table."""
    if isinstance(value, float):
        return f"{value:,.0f}" if value >= 1000 else f"{value:.3g}"
    return " ".join(str(value).replace("|", "/").split())


def measure_all(asked: argparse.Namespace) -> bool:
    """Run the parts; print and write their figures; return whether none failed."""
    started, result = time.perf_counter(), {"machine": versions(), "device": asked.device, "small": asked.small}
    figures: dict[str, list[Row]] = {}
    result["figures"] = figures
    print(", ".join(f"{name} {value}" for name, value in result["machine"].items()), flush=True)

    def left(name: str) -> float:
        return min(SECONDS[name] * asked.minutes / 6, 60 * asked.minutes - (time.perf_counter() - started) - 2)

    def add(name: str, rows: list[Row]) -> None:
        figures.setdefault(name, []).extend(rows)
        asked.out.write_text(json.dumps(result, indent=1), encoding="utf-8")

    lanes = max(1, min(8, cores() // 2))
    names = [name for name in PARTS if asked.only is None or name in asked.only]
    with ThreadPoolExecutor(lanes + 1) as pool:
        jobs: dict[Any, str] = {}
        for name in [name for name in names if name in TOGETHER]:
            count = lanes if name == "algorithms" else 1
            jobs |= {pool.submit(part, asked, name, left(name), lane, count): name for lane in range(count)}
        for job, name in jobs.items():
            add(name, job.result())
    for name in [name for name in names if name not in TOGETHER]:
        add(name, part(asked, name, left(name)))
    for name, rows in figures.items():
        print(f"\n{name}\n{table(rows)}", flush=True)
    print(f"\n{time.perf_counter() - started:.0f} s; {asked.out}")
    return not any("error" in row for rows in figures.values() for row in rows)


def main() -> int:
    """Measure, or run one part in this process; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda", help="cuda, cuda:1, or cpu")
    parser.add_argument("--only", nargs="+", choices=PARTS, help="these parts")
    parser.add_argument("--small", action="store_true", help="small networks, images and numbers of environments")
    parser.add_argument("--seconds", type=float, default=4.0, help="of each rate")
    parser.add_argument("--minutes", type=float, default=6.0, help="of all parts")
    parser.add_argument("--out", type=Path, default=Path("gpu.json"), help="file of the figures")
    parser.add_argument("--part", choices=PARTS, help=argparse.SUPPRESS)
    parser.add_argument("--lane", type=int, default=0, help=argparse.SUPPRESS)
    parser.add_argument("--lanes", type=int, default=1, help=argparse.SUPPRESS)
    parser.add_argument("--train", nargs=2, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    asked.killed_steps = 192 if asked.small else 2000
    if asked.train:
        train_until_killed(asked, *asked.train)
        return 0
    if asked.part:
        for row in PARTS[asked.part](asked):
            print(json.dumps(row), flush=True)
        return 0
    return 0 if measure_all(asked) else 1


if __name__ == "__main__":
    sys.exit(main())
