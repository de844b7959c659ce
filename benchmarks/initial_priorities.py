"""Priorities of new rows: the largest so far, as in every run, or the rows' own errors, as in Ape-X.

    python benchmarks/initial_priorities.py [--seeds 5] [--only few]

DQN with priorities on CartPole. The errors are those of the weights that chose the actions, which is what runners could
send (Horgan et al. 2018, arXiv:1803.00933); here they are computed in one process, right before each update, so that no
lag spoils them. The cases differ in how often a row is drawn on average: 32 times, 2 times, or every fourth row once.
A greedy test of 20 episodes, 20 times in a run, gives a curve; means over seeds with 95 % bootstrap intervals.
"""

from __future__ import annotations

import argparse
import os
import time
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np

import marltrain as mt
from marltrain.trainer.evaluating.evaluation import bootstrap

GAME, EPISODES, TESTS = "marltrain/CartPole-v1", 20, 20
CASES: dict[str, tuple[float, int, int]] = {
    "many": (1 / 2, 50_000, 128), "some": (1 / 32, 100_000, 32), "few": (1 / 256, 400_000, 32),
}  # fmt: skip
"""(Updates of 64 rows per env step, env steps, updates between two copies of the target network)."""


class FromErrors(mt.Callback):
    """Gives new rows the priorities of their errors, before each update.  seconds: that this took."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self.rated: Any = None  # [S, C, E] int64, batch step of the row whose error is known

    def on_update_start(self, moment: Any) -> None:
        """Compute the errors of the rows that have been closed since the last update."""
        begun = time.perf_counter()
        scheduler = moment.trainer.run.context.schedulers[0]
        reader, learner = scheduler._reader, scheduler.seated.learner
        choice, ring = reader.choice, reader.ring
        choice.follow()
        slots = np.arange(ring.capacity)
        times = np.broadcast_to((ring.now - (ring.now - slots) % ring.capacity)[:, None], choice._slots().shape)
        if self.rated is None or self.rated.shape != times.shape:  # the ring has grown
            self.rated = np.full(times.shape, -1)
        _, slot, env = np.nonzero((choice._slots() > 0) & (self.rated != times))
        if len(slot):
            cells = slot * ring.num_envs + env
            ones = np.ones((1, len(cells)), np.float32)
            batch = reader._transitions(cells[None], ones, learner.gammas())
            choice.learned(choice.numbers_of(cells)[None], errors_of(learner, batch), ones)
            self.rated[0, slot, env] = times[0, slot, env]
        self.seconds += time.perf_counter() - begun


def errors_of(learner: Any, batch: Any) -> Any:
    """Return the sizes of temporal-difference errors [1, B], as an update computes them for priorities."""
    nets, (phase,) = learner.steps.networks(learner.weights.nets), learner.algorithm.phases
    ops, hyper = learner.backend.ops, learner.hyper.tensors()
    with learner.backend.no_gradient():
        tensors = learner._whole(batch, every=True)
        phase.targets(ops, nets, tensors, hyper)
        phase.loss(ops, nets, tensors, hyper)
        return learner.backend.numpy(phase.row_error(ops, tensors))


def curve(case: str, seed: int, *, errors: bool) -> tuple[float, float]:
    """Return the mean return of the curve of a run, and the share of its time in which errors were computed."""
    per_step, steps, sync = CASES[case]
    agents = mt.make_agents(
        "dqn", GAME, seed=seed, jit_compile=True, memory=mt.Replay(100_000, 3, mt.Prioritised()), batch_size=64,
        learning_rate=mt.linear(1e-3, 1e-5, steps), epsilon=mt.linear(1.0, 0.04, steps // 6), learning_starts=1_000,
        update_per_step=per_step, target_sync=sync, network=mt.MLP((128, 128), activation="relu"),
    )  # fmt: skip
    own = FromErrors()
    result = mt.DecentralizedTrainer(
        GAME, seed=seed, num_train_envs=8, num_test_envs=EPISODES, update_freq=256, steps_per_train=steps,
        test_freq=None, test_freq_steps=steps // TESTS, episodes_per_test=EPISODES, run_dir=False, progress=False,
        callbacks=[own] if errors else [],
    ).train(agents, [1], plot=False)  # fmt: skip
    return float(result["history"]["metric"].iloc[1:].mean()), own.seconds / result["training_time"]


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--only", nargs="+", choices=CASES, default=list(CASES))
    given = parser.parse_args()
    print("| draws of a row | largest so far | own errors | time of the errors |\n|---|---|---|---|")
    for case in given.only:
        found = [np.array([curve(case, seed, errors=own) for seed in range(given.seeds)]).T for own in (False, True)]
        spans = [f"{m.mean():.0f} ({' to '.join(f'{end:.0f}' for end in bootstrap(m))})" for m, _ in found]
        print(f"| {64 * CASES[case][0]:g} | {spans[0]} | {spans[1]} | {found[1][1].mean():.1%} |", flush=True)


if __name__ == "__main__":
    main()
