"""Gradient steps and acts of every algorithm as captured calls, on a CPU that stands for a GPU.

Each captured call is compared with the function by `RecordedCapture`, to the bit.
"""

from __future__ import annotations

from typing import Any

import pytest

import marltrain as mt
from marltrain.policies.agents.registry import ALGORITHMS
from marltrain.policies.backends.torch.places import cpu_as_gpu
from marltrain.policies.backends.torch.recorded_capture import RecordedCapture
from tests.gpu.runs import devices, make, on_policy, train

GRU = mt.GRU((8,), units=8, sequence_length=4)
SPECIAL: dict[str, tuple[str, dict[str, Any]]] = {
    "recurrent on-policy": ("ppo", {"network": GRU}),
    "recurrent off-policy": ("dqn", {"network": GRU}),
    "recurrent team": ("qmix", {"network": GRU}),
    "priorities, noise": ("rainbow", {}),
    "weight decay, normalized": ("ppo", {"optimizer": "adamw", "weight_decay": 0.01, "normalize_observations": True}),
}


def captured(name: str, **settings: Any) -> RecordedCapture:
    """Train agents of an algorithm, which is captured; return what captured it."""
    with cpu_as_gpu(RecordedCapture()) as capture:
        agents = make(name, "cpu", jit_compile=True, **settings)
        train(name, agents, 112 if on_policy(name) else 72)
        assert devices(agents) == {"cpu"}
        before, space = capture.calls, agents[0].observation_space
        assert space is not None
        for _ in range(3):
            agents[0].act(space.sample())
        assert capture.calls == before + 2
    return capture


@pytest.mark.parametrize("name", ALGORITHMS)
def test_steps_and_acts_can_be_captured(name):
    assert captured(name).calls > 10


@pytest.mark.parametrize("case", SPECIAL)
def test_special_networks_and_settings(case):
    name, settings = SPECIAL[case]
    assert captured(name, **settings).calls > 10
