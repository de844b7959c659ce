"""Every algorithm on a GPU: trained as on the CPU, captured, saved and loaded, resumed."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

import marltrain as mt
from marltrain.policies.agents.registry import ALGORITHMS
from marltrain.policies.backends.torch.places import cpu_as_gpu
from marltrain.policies.backends.torch.recorded_capture import RecordedCapture
from tests.gpu.runs import NEAR, devices, different, distance, make, on_policy, train, weights


@pytest.mark.parametrize("name", ALGORITHMS)
def test_trains_as_on_the_cpu(name, device):
    steps = 128 if on_policy(name) else 80
    here, there = make(name, "cpu"), make(name, device)
    before = weights(here)
    results = [train(name, agents, steps) for agents in (here, there)]
    assert devices(there) == {device}
    assert results[0]["num_gradient_steps"] == results[1]["num_gradient_steps"] > 0
    mine = weights(here)
    assert any(not np.array_equal(array, mine[name]) for name, array in before.items()), "nothing was learned"
    assert distance(mine, weights(there)) <= NEAR


@pytest.mark.parametrize("name", ALGORITHMS)
def test_captured_calls_train_as_plain_ones(name, device):
    """Without a GPU, the CPU stands for it."""
    steps = 128 if on_policy(name) else 80
    with nullcontext() if device != "cpu" else cpu_as_gpu(RecordedCapture()):
        plain, captured = make(name, device), make(name, device, jit_compile=True)
        results = [train(name, agents, steps) for agents in (plain, captured)]
    assert results[0]["num_gradient_steps"] == results[1]["num_gradient_steps"] > 0
    assert distance(weights(plain), weights(captured)) <= NEAR


@pytest.mark.parametrize("name", ALGORITHMS)
def test_saved_and_loaded(name, device, tmp_path):
    agents = make(name, device)
    train(name, agents, 128)
    mt.save(tmp_path / "agents", agents)
    loaded = mt.load(tmp_path / "agents", device=device)
    assert devices(loaded) == {device}
    assert not different(agents, loaded)
    assert not different(agents, mt.load(tmp_path / "agents", device="cpu"))


@pytest.mark.parametrize("name", ALGORITHMS)
def test_resumed_run_is_the_uninterrupted_one(name, device, tmp_path):
    whole, part, again = (make(name, device) for _ in range(3))
    train(name, whole, 192)
    train(name, part, 128, tmp_path / "run")
    train(name, again, 192, tmp_path / "run", resume=True)
    assert not different(whole, again)


@pytest.mark.parametrize("name", ["DQN", "PPO"])
def test_convolutions_choose_the_actions_of_the_cpu(name, device):
    image, shown = spaces.Box(0, 255, (12, 12, 3), np.uint8), np.random.default_rng(0).integers(0, 256, (64, 12, 12, 3))
    own: dict[str, Any] = {"network": mt.CNN((16,), filters=((4, 3, 2),)), "seed": 3}
    agents = [getattr(mt, name)(image, spaces.Discrete(4), device=each, **own) for each in ("cpu", device)]
    chosen = [agent.act(shown.astype(np.uint8)) for agent in agents]
    assert len(np.unique(chosen[0])) > 1
    assert np.array_equal(*chosen)
