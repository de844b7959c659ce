"""An algorithm that imports `marltrain` only: equal in both frameworks, stacked and alone, saved, in commands."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

import marltrain as mt
from examples.own_algorithm import Soft
from marltrain.core.layout import Layout
from marltrain.policies.learner.algorithm_learner import AlgorithmLearner
from tests.cli.running import refused, said
from tests.policies.backends.both import BOTH, TENSORFLOW, TORCH
from tests.policies.some_batches import VECTOR, some_transitions

BOX = spaces.Box(-2, 2, (3,), np.float32)
SETTINGS: dict[str, Any] = {"network": mt.MLP((7,)), "learning_rate": 1e-2}


def learner_of(backend: Any, seeds: list[int]) -> AlgorithmLearner:
    agent: Any = Soft(VECTOR, BOX, seed=0, backend=backend.name, **SETTINGS)
    return AlgorithmLearner(agent.algorithm, backend, seeds, draw=True)


def batches(agents: int) -> list[Any]:
    """Return batches of transitions whose raw actions are stored; the last has padding for agent 1."""
    rng = np.random.default_rng(5)
    result: list[Any] = [some_transitions(rng, Layout(VECTOR), 3, agents, 9) for _ in range(5)]
    for batch in result:
        batch.extras = {"raw": rng.standard_normal((agents, 9, 3)).astype(np.float32)}
        batch.action = np.tanh(batch.extras["raw"])
    result[-1].weight[1:] = 0
    return result


def after_updates(backend: Any, seeds: list[int], rows: slice = slice(None)) -> list[dict[str, np.ndarray]]:
    learner = learner_of(backend, seeds)
    for batch in batches(2):
        own = type(batch)(**{name: _cut(value, rows) for name, value in vars(batch).items()})
        learner.update(own, learn=np.ones(len(seeds), bool), batch_size=9)
    return [learner.export(k).arrays for k in range(len(seeds))]


def _cut(value: Any, rows: slice) -> Any:
    return {name: array[rows] for name, array in value.items()} if isinstance(value, dict) else (
        None if value is None else value[rows]
    )  # fmt: skip


def assert_equal(one: dict[str, np.ndarray], other: dict[str, np.ndarray], tolerance: float) -> None:
    assert set(one) == set(other)
    for name, array in one.items():
        np.testing.assert_allclose(array, other[name], atol=tolerance, err_msg=name)


def test_both_frameworks_make_the_same_updates():
    for torchs, tensorflows in zip(*(after_updates(backend, [0, 1]) for backend in (TORCH, TENSORFLOW)), strict=True):
        assert_equal(torchs, tensorflows, 2e-5)


def test_stacked_agents_learn_as_each_would_alone():
    together = after_updates(TORCH, [0, 1])
    for k in range(2):
        assert_equal(together[k], after_updates(TORCH, [k], slice(k, k + 1))[0], 2e-6)


def test_every_part_of_the_state_moved_and_is_exported():
    before, (after, _) = learner_of(TORCH, [0, 1]).export(0).arrays, after_updates(TORCH, [0, 1])
    for name in ("net/actor/head0.weight", "net/critic/head0.weight", "net/target_critic/head0.weight",
                 "net/log_alpha/head0.free", "statistics/reward/mean"):  # fmt: skip
        assert not np.array_equal(before[name], after[name]), name
    assert after["net/critic/head0.weight"].shape == (2, 7, 1)


@pytest.mark.parametrize(("saved", "loaded"), [("torch", "tensorflow"), ("tensorflow", "torch")])
def test_an_agent_loads_into_the_other_framework(saved, loaded, tmp_path):
    agent = Soft(VECTOR, BOX, seed=0, backend=saved, **SETTINGS)
    mt.save(tmp_path / "own", agent)
    (again,) = mt.load(tmp_path / "own", backend=loaded, custom_objects={"soft": Soft})
    obs = np.linspace(-1, 1, 5, dtype=np.float32)
    np.testing.assert_allclose(again.act(obs), agent.act(obs), atol=1e-5)
    learner: Any = again.learner()
    assert learner.backend.name == BOTH[loaded].name


def test_the_command_line_trains_and_tests_it(capsys, tmp_path):
    run, algo = tmp_path / "r", "examples.own_algorithm:Soft"
    words = ["gymnasium/Pendulum-v1", "--algo", algo, "--steps-per-train", 60, "--num-train-envs", 2, "--no-progress"]
    out = said(capsys, "train", *words, "--test-freq", "none", "--set", "capacity=50", "--run-dir", run)
    assert f"marltrain test {run} --custom-objects soft={algo}" in out
    out = said(capsys, "test", run, "--custom-objects", f"soft={algo}", "--episodes", 1)
    assert "mean return" in out
    assert "give its class with custom_objects=" in refused(capsys, "test", run, "--agents", "last", code=1)
    assert "cannot be imported" in refused(
        capsys, "test", run, "--agents", "last", "--custom-objects", "soft=examples.own_algorithm:Sofd"
    )
    assert "NAME=module:attribute" in refused(capsys, "test", run, "--agents", "last", "--custom-objects", "soft")
    assert "cannot be imported" in refused(capsys, "train", words[0], "--algo", "tests.nothing:Soft")
    assert "tuned" in refused(capsys, "train", words[0], "--algo", algo, "--tuned")
