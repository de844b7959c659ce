"""Every algorithm on a GPU: trained as on the CPU, saved and loaded, resumed."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

import marltrain as mt
from marltrain.policies.agents.registry import ALGORITHMS, agent_class
from marltrain.policies.backends.torch.places import cpu_as_gpu
from marltrain.policies.backends.torch.recorded_capture import RecordedCapture
from tests.gymnasium_toys import BitFlipping

CART, PENDULUM, SPREAD = "gymnasium/CartPole-v1", "gymnasium/Pendulum-v1", "marltrain/simple_spread_v3"
TOGETHER = ("coma", "maa2c", "maddpg", "mappo", "masac", "matd3", "qmix", "seac", "vdac", "vdn", "wqmix")
CONTINUOUS = ("ddpg", "sac", "td3")
FROM_OTHERS = ("bc", "gail")
NEAR = 1e-3
"""Relative distance of weights of at least 1e-3 after the steps below. Longer runs amplify rounding without bound."""


def env_of(name: str) -> Any:
    if name == "trl":
        return BitFlipping
    return SPREAD if name in TOGETHER else PENDULUM if name in CONTINUOUS else CART


def make(name: str, device: str, **settings: Any) -> list[mt.Agent]:
    own: dict[str, Any] = {"network": mt.MLP((16, 16)), **settings}
    if name in FROM_OTHERS:
        expert = mt.make_agents("random", CART, seed=1)
        own["demonstrations"] = mt.demonstrations(CART, expert, episodes=4, seed=0)["player_0"]
    if not agent_class(name).algorithm_class.on_policy and name not in FROM_OTHERS:
        own |= {"learning_starts": 64, "capacity": 500}
    return mt.make_agents(name, env_of(name), seed=3, device=device, **own)


def train(name: str, agents: list[mt.Agent], steps: int, folder: Path | None = None, *, resume: bool = False) -> Any:
    on_policy = agent_class(name).algorithm_class.on_policy
    trainer = mt.DecentralizedTrainer(
        env_of(name), num_train_envs=4, update_freq=64 if on_policy else 16, batch_size=16, test_freq=None, seed=5,
        steps_per_train=steps, run_dir=False if folder is None else folder, progress=False,
        team_reward="mean" if env_of(name) == SPREAD else None,
        callbacks=[] if folder is None else [mt.Checkpoint(every_steps=64)],
    )  # fmt: skip
    return trainer.train(agents, [1] * len(agents), plot=False, resume=folder if resume else None)


def arrays(agents: list[mt.Agent]) -> dict[str, np.ndarray]:
    return {f"{i}/{name}": array for i, agent in enumerate(agents) for name, array in agent.state().arrays.items()}


def weights(agents: list[mt.Agent]) -> dict[str, np.ndarray]:
    return {name: array for name, array in arrays(agents).items() if "net/" in name}


def devices(agents: list[mt.Agent]) -> set[str]:
    return {str(agent.backend.device) for agent in agents if isinstance(agent, mt.LearningAgent)}


def assert_equal(one: list[mt.Agent], other: list[mt.Agent]) -> None:
    mine, theirs = arrays(one), arrays(other)
    assert mine.keys() == theirs.keys()
    assert not [name for name, array in mine.items() if not np.array_equal(array, theirs[name])]


def assert_near(mine: dict[str, np.ndarray], theirs: dict[str, np.ndarray]) -> None:
    far = {name: np.abs(array - theirs[name]) / (1e-3 + np.abs(array)) for name, array in mine.items()}
    assert not {name: float(each.max()) for name, each in far.items() if not each.max() <= NEAR}


@pytest.mark.parametrize("name", ALGORITHMS)
def test_trains_as_on_the_cpu(name, device):
    steps = 128 if agent_class(name).algorithm_class.on_policy else 80
    here, there = make(name, "cpu"), make(name, device)
    before = weights(here)
    results = [train(name, agents, steps) for agents in (here, there)]
    assert devices(there) == {device}
    assert results[0]["num_gradient_steps"] == results[1]["num_gradient_steps"] > 0
    mine, theirs = weights(here), weights(there)
    assert any(not np.array_equal(array, mine[name]) for name, array in before.items()), "nothing was learned"
    assert_near(mine, theirs)


@pytest.mark.parametrize("name", ALGORITHMS)
def test_captured_calls_train_as_plain_ones(name, device):
    """Without a GPU, the CPU stands for it."""
    steps = 128 if agent_class(name).algorithm_class.on_policy else 80
    with nullcontext() if device != "cpu" else cpu_as_gpu(RecordedCapture()):
        plain, captured = make(name, device), make(name, device, jit_compile=True)
        results = [train(name, agents, steps) for agents in (plain, captured)]
    assert results[0]["num_gradient_steps"] == results[1]["num_gradient_steps"] > 0
    assert_near(weights(plain), weights(captured))


@pytest.mark.parametrize("name", ALGORITHMS)
def test_saved_and_loaded(name, device, tmp_path):
    agents = make(name, device)
    train(name, agents, 128)
    mt.save(tmp_path / "agents", agents)
    loaded = mt.load(tmp_path / "agents", device=device)
    assert devices(loaded) == {device}
    assert_equal(agents, loaded)
    assert_equal(agents, mt.load(tmp_path / "agents", device="cpu"))


@pytest.mark.parametrize("name", ALGORITHMS)
def test_resumed_run_is_the_uninterrupted_one(name, device, tmp_path):
    whole, part, again = (make(name, device) for _ in range(3))
    train(name, whole, 192)
    train(name, part, 128, tmp_path / "run")
    train(name, again, 192, tmp_path / "run", resume=True)
    assert_equal(whole, again)


@pytest.mark.parametrize("name", ["DQN", "PPO"])
def test_convolutions_choose_the_actions_of_the_cpu(name, device):
    image, shown = spaces.Box(0, 255, (12, 12, 3), np.uint8), np.random.default_rng(0).integers(0, 256, (64, 12, 12, 3))
    own: dict[str, Any] = {"network": mt.CNN((16,), filters=((4, 3, 2),)), "seed": 3}
    agents = [getattr(mt, name)(image, spaces.Discrete(4), device=each, **own) for each in ("cpu", device)]
    chosen = [agent.act(shown.astype(np.uint8)) for agent in agents]
    assert len(np.unique(chosen[0])) > 1
    assert np.array_equal(*chosen)
