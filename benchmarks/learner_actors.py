"""Time of an update in learner actors and in one process: 4 PPO agents, rollouts of 2,048 rows, and what is sent.

    python benchmarks/learner_actors.py [--actors 2] [--repeats 5] [--widths 64 256 1024]

Observations of 18 numbers, two hidden layers, 5 actions; 4 epochs of 4 minibatches; one thread per process. Medians of
wall time, measured in turn. The time in actors includes the way of the rollout to them and of the weights back.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from types import SimpleNamespace
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
from gymnasium import spaces

import marltrain as mt
from marltrain.envs.faults import FaultPolicy
from marltrain.policies.batches.batch import Rollout
from marltrain.policies.learner.algorithm_learner import AlgorithmLearner
from marltrain.processes.ray_actors import Cluster
from marltrain.trainer.cluster.learner_messages import LearningTask
from marltrain.trainer.cluster.learners import LearnerActors
from marltrain.trainer.cluster.remote_learner import RemoteLearner
from marltrain.trainer.cluster.shard_agents import split

SPACES, AGENTS, ROWS, LEARN = (spaces.Box(-1, 1, (18,)), spaces.Discrete(5)), 4, 2048, np.ones(4, bool)


def rollout() -> Rollout:
    """Return a random rollout: 16 environments, 128 steps each."""
    rng, shape = np.random.default_rng(0), (AGENTS, ROWS)
    cut = np.repeat((np.arange(ROWS) % 128 == 127)[None], AGENTS, 0)
    return Rollout(
        obs=rng.standard_normal((*shape, 18), np.float32), legal=None, action=rng.integers(5, size=shape),
        reward=rng.standard_normal(shape, np.float32), discount=np.full(shape, 0.99, np.float32),
        weight=np.ones(shape, np.float32), extras={"log_prob": np.full(shape, -np.log(5), np.float32)}, cut=cut,
        truncated=np.zeros(shape, bool), boot=np.where(cut, np.arange(ROWS) // 128, -1),
        boot_obs=np.zeros((AGENTS, 16, 18), np.float32), boot_legal=None,
    )  # fmt: skip


def learner(width: int) -> AlgorithmLearner:
    """Return a learner of all agents."""
    first = mt.PPO(*SPACES, seed=0, network=mt.MLP(hidden=(width, width)), epochs=4, minibatches=4)
    return AlgorithmLearner(first.algorithm, first.backend, list(range(AGENTS)), draw=True)


def seconds(make: Any) -> float:
    """Return the time of a call."""
    start = time.perf_counter()
    make()
    return time.perf_counter() - start


def main() -> None:
    """Print a line for each width."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--actors", type=int, default=2)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--widths", type=int, nargs="+", default=[64, 256, 1024])
    args = parser.parse_args()
    batch, cluster = rollout(), Cluster("local")
    actors = LearnerActors(args.actors, cluster, None, 60.0, FaultPolicy())
    for width in args.widths:
        alone, lent = learner(width), learner(width)
        seated: Any = SimpleNamespace(learner=lent, who="the agents")
        (places,) = split([AGENTS], args.actors)
        shares = actors.hold(
            [
                (a, LearningTask.of(seated, rows.stop - rows.start, None, args.actors), rows, "agents")
                for a, rows in places
            ]
        )
        remote = RemoteLearner(lent, shares, actors)

        def in_actors(remote: RemoteLearner = remote) -> None:
            remote.order(batch, LEARN, 64)
            remote.result()
            remote.order_weights()
            remote.take_weights()

        def here(alone: AlgorithmLearner = alone) -> None:
            alone.update(batch, learn=LEARN, batch_size=64)

        seconds(here), seconds(in_actors)
        traffic, before = actors.traffic, (actors.traffic.to_learners, actors.traffic.from_learners)
        pairs = [(seconds(here), seconds(in_actors)) for _ in range(args.repeats)]
        sent, received = traffic.to_learners - before[0], traffic.from_learners - before[1]
        one, several = (1e3 * statistics.median(times) for times in zip(*pairs, strict=True))
        megabytes = [number / args.repeats / 1e6 for number in (sent, received)]
        print(
            f"2x{width:<5d} one process {one:.1f} ms, {args.actors} actors {several:8.1f} ms ({one / several:.2f} x); "
            f"{megabytes[0]:.2f} MB sent, {megabytes[1]:.2f} MB received",
            flush=True,
        )
    actors.close()


if __name__ == "__main__":
    main()
