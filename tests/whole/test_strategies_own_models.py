"""A user's own networks, and a `CustomAgent`, train under each strategy as they train without one.

Also the cluster of TF_CONFIG, which two processes join. To start processes takes seconds: all is in the long tier.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
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
from marltrain.policies.learner.parallel.processes import free_ports
from tests.tiers import LONG
from tests.toys import Identity

TOLERANCE, PLAYERS, ACTIONS, UPDATES = 1e-4, 2, 3, 12


def network(backend: str) -> Any:
    """Return a model with weights that do not learn; that of Keras has a regularizer, too."""
    if backend == "torch":
        from torch import nn

        model = nn.Sequential(nn.Linear(ACTIONS, 8), nn.LayerNorm(8), nn.Tanh(), nn.Linear(8, ACTIONS))
        model[0].bias.requires_grad_(False)
        return model
    import keras
    from keras import layers

    first = layers.Dense(8, activation="tanh", kernel_regularizer="l2")
    return keras.Sequential([keras.Input((ACTIONS,)), first, layers.LayerNormalization(), layers.Dense(ACTIONS)])


def own_agent(kind: str, backend: str, strategy: Any) -> Any:
    """Return a DQN with a network of one's own, or a CustomAgent; equal weights for equal arguments."""
    pace: dict[str, Any] = {"batch_size": 7, "update_per_step": 1 / 3, "learning_starts": 8, "update_freq": 3}
    if kind == "custom":
        from tests.policies.own import with_keras, with_torch

        own = with_torch if backend == "torch" else with_keras
        return own.q_agent(ACTIONS, ACTIONS, strategy=strategy, **pace, seed=4)
    return mt.make_agents(
        "dqn", Identity, env_args={"players": 1}, seed=5, backend=backend, strategy=strategy, target_sync=3,
        network=lambda: network(backend), **pace,
    )[0]  # fmt: skip


def trained(kind: str, backend: str, strategy: Any, agent: Any = None) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """Train an agent beside a random one; return its arrays and the table of tests."""
    agent = own_agent(kind, backend, strategy) if agent is None else agent
    trainer = mt.DecentralizedTrainer(
        Identity, {"players": PLAYERS}, num_train_envs=3, num_test_envs=2, episodes_per_test=2, test_freq=40,
        updates_per_train=UPDATES, seed=6, progress=False, run_dir=False,
    )  # fmt: skip
    result = trainer.train([agent, mt.RandomAgent(seed=1)], [1, 0], plot=False)
    agent.learner().close()
    history = result["history"].select_dtypes("number").drop(columns="seconds").to_numpy(float)
    return agent.state().arrays, history


def assert_same(one: Any, other: Any) -> None:
    (arrays, history), (others, other_history) = one, other
    assert arrays.keys() == others.keys()
    for name, array in arrays.items():
        np.testing.assert_allclose(array, others[name], rtol=0, atol=TOLERANCE, err_msg=name)
    np.testing.assert_allclose(history, other_history, rtol=TOLERANCE, atol=TOLERANCE)


def in_own_process(code: str, **variables: str) -> subprocess.Popen[str]:
    """Start Python with a function of this file."""
    given = f"from tests.whole.test_strategies_own_models import *; {code}"
    return subprocess.Popen(
        [sys.executable, "-c", given], env={**os.environ, **variables}, text=True, stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )  # fmt: skip


def mirrored() -> None:
    """Compare the runs of two logical devices: in a process of its own, where TensorFlow has not started."""
    import tensorflow as tf

    strategy = MirroredStrategy(replicas=2)
    mt.make_agents("dqn", Identity, env_args={"players": 1}, backend="tensorflow", strategy=strategy)  # divides the CPU
    for kind in ("network", "custom"):
        assert_same(trained(kind, "tensorflow", None), trained(kind, "tensorflow", strategy))
    live = tf.distribute.MirroredStrategy(["/CPU:0", "/CPU:1"])
    with live.scope():
        agent = own_agent("custom", "tensorflow", live)
    assert_same(trained("custom", "tensorflow", None), trained("custom", "tensorflow", live, agent))
    print("equal")


def worker(folder: str, seed: int | None = None) -> None:
    """Train in a cluster that TF_CONFIG describes, and save what was learned."""
    index = json.loads(os.environ["TF_CONFIG"])["task"]["index"]
    strategy = MultiWorkerMirroredStrategy(workers=None)
    first = mt.make_agents(
        "dqn", Identity, env_args={"players": 1}, backend="tensorflow", strategy=strategy,
        seed=5 if seed is None else index,
    )[0]  # fmt: skip
    if seed is not None:
        try:
            trained("network", "tensorflow", strategy, first)
        except mt.WorkerError as error:
            print(error)
        return
    for kind in ("network", "custom"):
        arrays, history = trained(kind, "tensorflow", strategy)
        saved: dict[str, Any] = {"history": history, **arrays}
        np.savez(Path(folder) / f"{kind}-{index}.npz", **saved)


def cluster(code: str) -> list[str]:
    """Run code in two processes with a TF_CONFIG each; return what they printed."""
    addresses = [f"127.0.0.1:{port}" for port in free_ports(2)]
    configs = [json.dumps({"cluster": {"worker": addresses}, "task": {"type": "worker", "index": i}}) for i in range(2)]
    started = [in_own_process(code, TF_CONFIG=config) for config in configs]
    try:
        ended = [process.communicate(timeout=240) for process in started]
    finally:
        for process in started:
            process.kill()
    assert all(process.returncode == 0 for process in started), [errors[-3000:] for _, errors in ended]
    return [printed for printed, _ in ended]


if LONG:

    @pytest.mark.parametrize("kind", ["network", "custom"])
    @pytest.mark.parametrize(
        "strategy", [DataParallel(processes=2), MultiWorkerMirroredStrategy(workers=2), ParameterServerStrategy()]
    )
    def test_processes_train_models_of_ones_own_as_one_does(kind, strategy):
        if kind == "custom" and isinstance(strategy, ParameterServerStrategy):
            with pytest.raises(mt.ConfigError, match="take MultiWorkerMirroredStrategy"):
                own_agent(kind, strategy.backend, strategy)
            return
        assert_same(trained(kind, strategy.backend, None), trained(kind, strategy.backend, strategy))

    def test_devices_of_one_process_train_models_of_ones_own_as_one_does():
        process = in_own_process("mirrored()")
        printed, errors = process.communicate(timeout=240)
        assert printed.endswith("equal\n"), errors[-4000:]

    def test_two_processes_join_the_cluster_of_tf_config(tmp_path):
        cluster(f"worker({str(tmp_path)!r})")
        for kind in ("network", "custom"):
            runs = [dict(np.load(tmp_path / f"{kind}-{i}.npz")) for i in range(2)]
            different = [name for name in runs[0] if not np.array_equal(runs[0][name], runs[1][name], equal_nan=True)]
            assert not different, "the same bits"
            history = runs[0].pop("history")
            assert_same(trained(kind, "tensorflow", None), (runs[0], history))

    def test_workers_with_different_seeds_are_told():
        for printed in cluster("worker('', 0)"):
            assert "the workers of the cluster have different rows or weights" in printed
