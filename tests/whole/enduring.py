"""A long run in which nothing grows: memory, open files, threads, child processes.

`python -m tests.whole.enduring STEPS` trains for so many env steps with all that a trainer shows and writes: tests,
tables, TensorBoard, progress, checkpoints. It reads /proc, so it needs Linux.
"""

from __future__ import annotations

import os
import resource
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import marltrain as mt

ENV, LENGTH = "marltrain/simple_spread_v3", 25
ENVS, ROLLOUT = 256, 32
SPANS, WARM = 20, 2
"""Into how many spans a run is cut, and in how many of them it may still grow."""
ALLOWED = {"memory": 20.0, "files": 0, "threads": 0, "children": 0}
"""How much more of each, memory in MB, there may be later on."""


@dataclass(frozen=True)
class Level:
    """How much of the system this process holds. memory: resident, in MB."""

    memory: float
    files: int
    threads: int
    children: int

    @classmethod
    def now(cls) -> Level:
        """Measure."""
        own = Path("/proc/self")
        pages = int((own / "statm").read_text().split()[1])
        tasks = [*(own / "task").iterdir()]
        children = sum(len((task / "children").read_text().split()) for task in tasks)
        return cls(pages * resource.getpagesize() / 2**20, len(os.listdir(own / "fd")), len(tasks), children)

    def highest(self, other: Level) -> Level:
        """Return the higher of each."""
        return Level(*(max(getattr(self, name), getattr(other, name)) for name in ALLOWED))


class Watch(mt.Callback):
    """Notes the highest level of every span of a run."""

    def __init__(self, steps: int) -> None:
        """`steps`: the run's length in env steps."""
        self.steps = steps
        self.spans: list[Level] = []

    def on_step(self, moment: mt.Moment) -> None:
        """Note the level between learning and the next decisions."""
        self._note(moment)

    def on_update_end(self, moment: mt.Moment) -> None:
        """Note what learning has left."""
        self._note(moment)

    def on_test_end(self, moment: mt.Moment) -> None:
        """Note what a test has left."""
        self._note(moment)

    def on_checkpoint(self, moment: mt.Moment) -> None:
        """Note what a checkpoint has left."""
        self._note(moment)

    def _note(self, moment: mt.Moment) -> None:
        span, level = min(moment.env_steps * SPANS // self.steps, SPANS - 1), Level.now()
        if span < len(self.spans):
            self.spans[span] = self.spans[span].highest(level)
        else:
            self.spans.append(level)


def growth(spans: Sequence[Level], steps: int) -> list[str]:
    """Say what grew after the first WARM of a run's spans by more than is allowed, and when."""
    data = []
    for name, allowed in ALLOWED.items():
        values = [getattr(level, name) for level in spans]
        before, after = max(values[:WARM]), max(values[WARM:])
        if after - before > allowed:
            span = values.index(after, WARM)
            data.append(
                f"{name}: {after:,.0f} between env steps {span * steps // SPANS:,} and "
                f"{(span + 1) * steps // SPANS:,}, and at most {before:,.0f} in the first {WARM * steps // SPANS:,}; "
                f"{allowed:.0f} more are allowed"
            )
    return data


def train(steps: int, run_dir: Path, watch: Watch) -> dict[str, Any]:
    """Train small networks, with a test and a checkpoint a span, or one a million env steps."""
    every = min(1_000_000, steps // SPANS)
    agents = mt.make_agents("ppo", ENV, seed=0, network=mt.MLP(hidden=(16,)), epochs=1, minibatches=4)
    trainer = mt.DecentralizedTrainer(
        ENV, num_train_envs=ENVS, update_freq=ENVS * ROLLOUT, test_freq=max(1, every // LENGTH), steps_per_train=steps,
        seed=0, run_dir=run_dir, callbacks=[watch, mt.Checkpoint(every_steps=every)],
    )  # fmt: skip
    return trainer.train(agents, learning_mask=[1, 1, 1])


def main() -> None:
    """Train; print every span's level; fail where something grew, or the table of episodes is not whole."""
    steps = int(sys.argv[1])
    watch = Watch(steps)
    with tempfile.TemporaryDirectory() as folder:
        result = train(steps, Path(folder) / "run", watch)
    for span, level in enumerate(watch.spans):
        print(f"to env step {(span + 1) * steps // SPANS:,}: {level.memory:,.1f} MB, {level.files} files, "
              f"{level.threads} threads, {level.children} children")  # fmt: skip
    episodes = result["episodes"]
    whole = ENVS * (result["num_collected_steps"] // ENVS // LENGTH)
    data = growth(watch.spans, steps)
    if len(episodes) != whole or not (episodes["episode"].diff().dropna() == 1).all():
        data.append(f"the table of episodes has {len(episodes):,} rows, not {whole:,} in order")
    if data:
        raise SystemExit("\n".join(data))
    print(f"{result['num_collected_steps']:,} env steps, {whole:,} episodes in {result['training_time']:.0f} s: "
          "nothing grew")  # fmt: skip


if __name__ == "__main__":
    main()
