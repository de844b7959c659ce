"""A whole training run under each strategy gives the tables and weights of the run without one.

To start processes takes seconds: the short tier has each strategy once, and each kind of update.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from functools import cache
from typing import Any

import numpy as np
import pytest

import marltrain as mt
from marltrain.policies.backends.strategies import (
    DataParallel,
    MirroredStrategy,
    MultiWorkerMirroredStrategy,
    ParameterServerStrategy,
)
from tests.tiers import LONG
from tests.toys import Identity, Relay

UPDATES, TOLERANCE = 20, 1e-4
SMALL = mt.MLP(hidden=(8,))
ONE_EACH_BATCH_STEP = {"update_freq": 3, "update_per_step": 1 / 3, "learning_starts": 8}
SPREAD = "mpe2/simple_spread_v3"
RUNS: dict[str, tuple[Any, dict[str, Any]]] = {
    # turn-based, with absences: rollouts are ragged, and minibatches of 7 rows and fewer are not halved evenly
    "ppo": (Relay, {"update_freq": 24, "batch_size": 7, "epochs": 1, "network": SMALL}),
    "dqn": (Identity, {**ONE_EACH_BATCH_STEP, "batch_size": 5, "target_sync": 3, "network": SMALL}),
    "sac": (SPREAD, {**ONE_EACH_BATCH_STEP, "batch_size": 5, "tau": 0.1, "network": SMALL}),
}
ARGUMENTS: dict[Any, dict[str, Any]] = {
    Relay: {},
    Identity: {"players": 3},
    SPREAD: {"continuous_actions": True, "max_cycles": 5},
}


class Watch(mt.Callback):
    """Notes what updates measure; after the last one it may do something."""

    def __init__(self, afterwards=None):
        self.metrics, self.afterwards = [], afterwards

    def on_update_end(self, moment):
        self.metrics.append(moment.data["metrics"])
        if moment.updates == UPDATES and self.afterwards is not None:
            self.afterwards(moment)


class Handing(mt.Callback):
    """Hands the processes of one run's learner to the next run's: to start them takes seconds."""

    processes: Any = None

    def on_train_start(self, moment):
        team = self.team_of(moment)
        if self.processes is not None:
            team._processes, self.processes = self.processes, None
            team.ask_all("hold", team.held)

    def on_train_end(self, moment):
        team = self.team_of(moment)
        self.processes, team._processes = team._processes, None

    @staticmethod
    def team_of(moment):
        return moment.trainer.run.context.seating.learners[0].learner.steps.processes


def trained(name, backend, strategy, *, updates=UPDATES, watch=None, seats=None, stack=3, hand=None):
    """Train stacked agents on a toy; return the agents, the result and the metrics of every update.

    stack: how many there are; random ones sit beside them.  hand: what hands processes over.
    """
    env, settings = RUNS[name]
    args = ARGUMENTS[env]
    agents: list[Any] = mt.make_agents(name, env, env_args=args, seed=5, backend=backend, strategy=strategy, **settings)
    watch = watch or Watch()
    trainer = mt.DecentralizedTrainer(
        env, args, num_train_envs=3, num_test_envs=2, episodes_per_test=2, test_freq=40, updates_per_train=updates,
        seed=6, progress=False, callbacks=[watch, *([] if hand is None else [hand])],
    )  # fmt: skip
    beside = [mt.RandomAgent(seed=seat) for seat in range(stack, 3)]
    result = trainer.train(
        [*agents[:stack], *beside], list(seats) if seats else [1] * stack + [0] * len(beside), plot=False
    )
    assert agents[0].learner_.num_agents == stack, "they are stacked"
    return agents[:stack], result, watch.metrics


@cache
def alone(name, backend, *, updates=UPDATES, seats=None, stack=3):
    """Train without a strategy, once for all that are compared with it."""
    return trained(name, backend, None, updates=updates, seats=seats, stack=stack)


def assert_same(one, other, updates=UPDATES):
    """Compare tables, agents and metrics of two runs."""
    for table in ("history", "episodes"):
        mine, theirs = (run[1][table].select_dtypes("number").drop(columns="seconds") for run in (one, other))
        np.testing.assert_allclose(mine, theirs, rtol=TOLERANCE, atol=TOLERANCE, err_msg=table)
    assert_same_learning(one[0], other[0], one[2], other[2], updates)


def assert_same_learning(agents, others, metrics, other_metrics, updates=UPDATES):
    """Compare weights, moments and what every update measured."""
    for mine, theirs in zip(agents, others, strict=True):
        for key, array in mine.state().arrays.items():
            np.testing.assert_allclose(array, theirs.state().arrays[key], rtol=0, atol=TOLERANCE, err_msg=key)
    assert len(metrics) == updates
    for now, then in zip(metrics, other_metrics, strict=True):
        assert now.keys() == then.keys()
        for agent, values in now.items():
            for name, value in values.items():
                np.testing.assert_allclose(then[agent][name], value, rtol=TOLERANCE, atol=TOLERANCE, err_msg=name)


@pytest.mark.parametrize(
    "strategy",
    [
        DataParallel(processes=2),
        *LONG * [MultiWorkerMirroredStrategy(workers=2), ParameterServerStrategy(workers=2)],
    ],
)  # fmt: skip
def test_processes_train_as_one_process_does(strategy):
    """Stacks of 3, 2 and 1 agents of PPO, and SAC with its noise, delayed targets and temperature: the same processes.

    SAC is with torch in the short tier.
    """
    hand = Handing()
    runs = [("ppo", 3, UPDATES, (1, 0, 1)), ("ppo", 2, 3, None), ("ppo", 1, 3, None)]
    runs += [("sac", 3, 6, None)] if LONG or strategy.backend == "torch" else []
    for name, stack, updates, seats in runs:
        given: dict[str, Any] = {"seats": seats, "stack": stack, "updates": updates}
        shared = trained(name, strategy.backend, strategy, hand=hand, **given)
        assert_same(alone(name, strategy.backend, **given), shared, updates)
    hand.processes.close()


VICTIMS = [
    (DataParallel(processes=2), "process 0"),
    *LONG * [
        (MultiWorkerMirroredStrategy(workers=2), "worker 1"),
        (ParameterServerStrategy(workers=2, servers=1), "server 0"),
    ],
]  # fmt: skip


@pytest.mark.parametrize(("strategy", "victim"), VICTIMS)
def test_processes_train_dqn_as_one_process_does_until_one_is_killed(strategy, victim):
    agents, _, metrics = alone("dqn", strategy.backend)
    seen: dict[str, Any] = {}

    def kill(moment):
        seating = moment.trainer.run.context.seating
        learner, seen["agents"] = seating.learners[0].learner, [agent.frozen_copy() for agent in seating.agents]
        team = learner.steps.processes
        mine = learner.weights.trained()
        for moved in team.ask_all("trained"):
            assert all((moved[name] == array).all() for name, array in mine.items()), "the same bits everywhere"
        os.kill(team.pids[victim], signal.SIGKILL)
        seen["killed"] = time.monotonic()

    watch = Watch(kill)
    text = rf"{victim} of {type(strategy).__name__}\(.*\) was killed by signal 9 \(SIGKILL\)"
    with pytest.raises(mt.WorkerError, match=text):
        trained("dqn", strategy.backend, strategy, updates=UPDATES + 5, watch=watch)
    assert time.monotonic() - seen["killed"] < 60
    assert_same_learning(agents, seen["agents"], metrics, watch.metrics[:UPDATES])


def mirrored():
    """Compare the runs of two logical devices: in a process of its own, where TensorFlow has not started."""
    import tensorflow as tf

    for name in RUNS if LONG else ("dqn",):
        shared = trained(name, "tensorflow", MirroredStrategy(replicas=2))
        assert_same(alone(name, "tensorflow"), shared)
        (variable,) = next(iter(shared[0][0].learner_.weights.online.values())).sources()
        assert len({copy.device for copy in variable.values}) == 2
        assert (variable.values[0].numpy() == variable.values[1].numpy()).all()
        for stack in (1, 2) * LONG:
            given = {"stack": stack, "updates": 3}
            shared = trained(name, "tensorflow", MirroredStrategy(replicas=2), **given)
            assert_same(alone(name, "tensorflow", **given), shared, 3)
    live = tf.distribute.MirroredStrategy(["/CPU:1"])
    assert_same(alone("dqn", "tensorflow"), trained("dqn", "tensorflow", live))
    try:
        mt.make_agents("dqn", Identity, seed=0, backend="tensorflow", strategy=MirroredStrategy(replicas=3))
    except mt.ConfigError as error:
        assert "needs 3 devices, TensorFlow has 2 of kind CPU" in str(error)
        print("equal")


def test_two_devices_of_one_process_train_as_one_does():
    code = "from tests.whole.test_strategies import mirrored; mirrored()"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=150)
    assert done.stdout.endswith("equal\n"), done.stderr[-4000:]
