"""The share of drawing rows in an update, and what a thread gains that draws the rows of the next update meanwhile.

    python benchmarks/prefetch.py [--entries 1000000] [--rows 32 256] [--only uniform] [--times 200]

One agent with 2x64 networks; observations of 18 numbers, or 12 with two goals of 3; episodes of 50 decisions; one
thread for each product. "stepwise" is DQN (TRL for triplets) on plain PyTorch; "compiled" is DQN with
`jit_compile=True`, whose updates are drawn and made in one compiled call. Times are medians, in microseconds.

"drawn": time to draw a batch. "learned": time to write the priorities of its rows. "update": time of the rest of an
update. "share": drawn / (drawn + learned + update), the largest part of the time that drawing ahead could save.
"ahead": time of an update with all its parts, when a second thread draws the next batch during the update, divided by
the time without it; below 1 it pays. It is a ratio of the first deciles over short runs of 10 updates, in turn, so that
other work on the machine counts little. Draws by priorities depend on the errors of the update before, so that they
cannot be made ahead with equal results: there is no such figure for them.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
from gymnasium import spaces

import marltrain as mt
from marltrain.core.layout import Layout
from marltrain.core.spec import EnvSpec, PlayerSpec, Step
from marltrain.policies.learner.algorithm_learner import AlgorithmLearner
from marltrain.policies.learner.update_plan import DueUpdates
from marltrain.policies.memory import Storage, Streams
from marltrain.policies.memory.compiled import replay_kernel
from marltrain.policies.memory.compiled.replay_kernel import CompiledReader
from marltrain.policies.memory.readers import Reader

ENVS, EPISODE, ACTIONS, GAMMA = 100, 50, 5, np.array([0.99])
SEEN = spaces.Box(-1, 1, (18,), np.float32)
GOAL = spaces.Box(-1, 1, (3,), np.float32)
GOALS = spaces.Dict({"observation": spaces.Box(-1, 1, (12,), np.float32), "achieved_goal": GOAL, "desired_goal": GOAL})
WINDOW = 10
"""Updates of a run with or without a second thread."""
TURN = 2e-4
"""Switch interval of Python threads in seconds, as with collect="overlap"."""


def near(achieved: Any, desired: Any, info: Any) -> Any:
    """Return 0 near the goal, else -1."""
    return -(np.linalg.norm(achieved - desired, axis=-1) > 0.3).astype(np.float32)


KINDS: dict[str, tuple[Any, Any, Any]] = {
    "uniform": (mt.DQN, SEEN, {}),
    "prioritized": (mt.DQN, SEEN, {"prioritized": mt.Prioritized()}),
    "hindsight": (mt.DQN, GOALS, {"hindsight": mt.Hindsight(reward_fn=near)}),
    "triplets": (mt.TRL, GOALS, {"triplets": mt.Triplets()}),
}


def filled(space: Any, entries: int) -> Streams:
    """Return streams that hold `entries` env steps of random play."""
    player = PlayerSpec("0", space, spaces.Discrete(ACTIONS), Layout(space), False)
    spec, rng = EnvSpec.of("benchmark", [player]), np.random.default_rng(0)
    streams, step = Streams(spec, ENVS, {0: Storage(entries // ENVS)}), Step.empty(spec, ENVS)
    step.turn[0][:] = step.alive[0][:] = True
    for t in range(entries // ENVS + 1):
        seen = step.obs[0]
        assert isinstance(seen, np.ndarray)
        seen[:] = rng.standard_normal(seen.shape)
        step.reward[:] = rng.standard_normal(step.reward.shape)
        ends = t > 0 and t % EPISODE == 0
        step.truncated[:] = step.ended[:] = ends
        streams.record_step(step)
        streams.record_actions(0, rng.integers(ACTIONS, size=(1, ENVS)), {})
    return streams


def learner_of(kind: str, entries: int, *, compiled: bool) -> AlgorithmLearner:
    """Return the learner of one agent."""
    agent_class, space, memory = KINDS[kind]
    agent = agent_class(
        space, spaces.Discrete(ACTIONS), seed=0, network=mt.MLP((64, 64)), jit_compile=compiled,
        memory=mt.Replay(entries, **memory),
    )  # fmt: skip
    return AlgorithmLearner(agent.algorithm, agent.backend, [0], draw=True)


def micros(work: Callable[[], object], times: int) -> float:
    """Return the median time of a call, in microseconds."""
    found = []
    for _ in range(times):
        start = time.perf_counter()
        work()
        found.append(time.perf_counter() - start)
    return statistics.median(found) * 1e6


def stepwise(learner: AlgorithmLearner, reader: Reader, rows: int, times: int, *, exact: bool) -> str:
    """Return the figures of updates on plain PyTorch; exact: whether rows can be drawn ahead with equal results."""
    rngs, learn = learner.rngs("sample"), np.ones(1, bool)

    def draw() -> Any:
        return reader.sample(rngs, GAMMA, rows)

    def update(batch: Any) -> None:
        learner.update(batch, learn=learn, batch_size=rows)
        reader.learned(batch)

    for _ in range(20):
        update(draw())
    batch = draw()
    learner.update(batch, learn=learn, batch_size=rows)
    drawn, learned = micros(draw, times), micros(lambda: reader.learned(batch), times)
    rest = micros(lambda: learner.update(batch, learn=learn, batch_size=rows), times)
    line = told(drawn, learned, rest)
    if not exact:
        return line
    found: dict[bool, list[float]] = {False: [], True: []}
    with ThreadPoolExecutor(1) as thread:
        for i in range(2 * times):
            ahead = i % 2 == 1
            start = time.perf_counter()
            coming = thread.submit(draw) if ahead else None
            for _ in range(WINDOW):
                batch = draw() if coming is None else coming.result()
                coming = thread.submit(draw) if ahead else None
                update(batch)
            found[ahead].append(time.perf_counter() - start)
            if coming is not None:
                coming.result()
    tenth = [np.quantile(found[ahead], 0.1) for ahead in (True, False)]
    return f"{line}, ahead {tenth[0] / tenth[1]:.2f}"


def compiled(learner: AlgorithmLearner, reader: CompiledReader, rows: int, times: int) -> str:
    """Return the figures of planned updates: compiled draws are timed alone, and "update" is the rest of an update."""
    updates = learner.planned_updates(reader, rows)
    assert updates is not None
    updates._record["epsilon_index"] = -1  # nothing acts here
    rngs, each = learner.rngs("sample"), 50

    def make_round() -> None:
        updates.set_plan([DueUpdates(0, 0, each, 0.0)], np.ones(1, bool), rngs, 0)
        updates.prepare_call(0)
        updates.make_round()
        updates.take_results()

    make_round()
    whole = micros(make_round, max(times // 10, 5)) / each
    result, drawn, learned = reader.sample(rngs, GAMMA, rows), 0.0, 0.0
    address = reader._reading.address
    if result.rows is None:
        drawn = micros(lambda: replay_kernel._sampling()(address, reader.ring.now), times)
    else:
        random, effective, trees = np.empty(result.cells.shape), np.empty(1), reader.choice.address  # type: ignore[attr-defined]
        numbers = result.cells, result.weight, result.rows, effective
        drawn = micros(lambda: replay_kernel._prioritized()(address, trees, random, *numbers), times)
        result.errors = np.ones(result.weight.shape, np.float32)
        learned = micros(lambda: reader.learned(result), times)
    return told(drawn, learned, whole - drawn - learned)


def told(drawn: float, learned: float, rest: float) -> str:
    """Return the times as text."""
    share = drawn / (drawn + learned + rest)
    return f"drawn {drawn:6.0f}, learned {learned:4.0f}, update {rest:6.0f}, share {share:.2f}"


def main() -> None:
    """Print a line for each memory, number of rows and kind of update."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--entries", type=int, default=1_000_000)
    parser.add_argument("--rows", type=int, nargs="+", default=[32, 256])
    parser.add_argument("--only", choices=KINDS, help="one memory only")
    parser.add_argument("--times", type=int, default=200)
    args = parser.parse_args()
    sys.setswitchinterval(TURN)
    for kind in [args.only] if args.only else KINDS:
        streams = filled(KINDS[kind][1], args.entries)
        for rows in args.rows:
            learner = learner_of(kind, args.entries, compiled=False)
            reader = learner.reader(streams, [[0]])
            line = stepwise(learner, reader, rows, args.times, exact=kind != "prioritized")
            print(f"{kind:12s} {rows:4d} rows, stepwise: {line}", flush=True)
            if kind in ("hindsight", "triplets"):
                continue  # drawn and relabeled outside of compiled updates
            learner = learner_of(kind, args.entries, compiled=True)
            reader = learner.reader(streams, [[0]])
            assert isinstance(reader, CompiledReader)
            print(f"{kind:12s} {rows:4d} rows, compiled: {compiled(learner, reader, rows, args.times)}", flush=True)


if __name__ == "__main__":
    main()
