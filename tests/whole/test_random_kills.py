"""Runners and learner actors are killed at random moments: every run ends, equal to the undisturbed one.

In every third run, lost runners are not replaced before the run goes on.

`make cluster-test` sets MARLTRAIN_KILLS to 30 runs.
"""

import os
import random
import signal
from typing import Any

import pytest

import marltrain as mt
from tests.tiers import LONG
from tests.trainer.cluster.training import assert_equal

SPREAD = "marltrain/simple_spread_v3"
RUNS = 6


class Killer(mt.Callback):
    """Kills a runner or a learner actor after some of the updates, while the next fragment is collected or learned."""

    def __init__(self, ray: Any, seed: int) -> None:
        self.ray, self.random = ray, random.Random(seed)
        self.rounds, self.killed = self.random.sample(range(1, 8), 2), 0

    def on_update_end(self, moment):
        self.killed += 1
        if self.killed in self.rounds:
            context = moment.trainer.run.context
            actors = [*context.envs.pool._actors, *context.learner_actors._actors]
            handle = self.random.choice(actors)._handle
            os.kill(self.ray.get(handle.__ray_call__.remote(lambda self: os.getpid()), timeout=60), signal.SIGKILL)


def trained(algo: str, callbacks: Any = (), **settings: Any) -> Any:
    own: dict[str, Any] = {"learning_starts": 60, "batch_size": 16, "memory": mt.Replay(prioritized=mt.Prioritized())}
    agents = mt.make_agents(algo, SPREAD, seed=0, **(own if algo == "dqn" else {}))
    trainer = mt.DecentralizedTrainer(
        SPREAD, seed=3, num_train_envs=5, update_freq=100, steps_per_train=900, test_freq=None, progress=False,
        run_dir=False, callbacks=callbacks, **settings,
    )  # fmt: skip
    return trainer.train(agents, [1, 1, 1], plot=False), [agent.state() for agent in agents]


if LONG:

    @pytest.fixture(scope="module")
    def expected() -> dict[str, Any]:
        return {algo: trained(algo) for algo in ("dqn", "ppo")}

    @pytest.mark.parametrize("seed", range(int(os.environ.get("MARLTRAIN_KILLS", RUNS))))
    def test_random_kills(seed, expected, ray_cluster):
        algo, killer = ("dqn", "ppo")[seed % 2], Killer(ray_cluster, seed)
        elastic = {"min_runners": 1} if seed % 3 == 0 else {}
        found = trained(algo, [killer], runners=2, learners=2, **elastic)
        assert_equal(expected[algo], found, tolerance=1e-6)
        assert found[0]["num_faults"] == 2
