"""device="auto": the CPU for small networks, a GPU for large ones. Another name of the CPU stands for a GPU here."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces
from torch import nn

import marltrain as mt
from marltrain.policies.agents import placement as rule
from marltrain.policies.agents.placement import LARGE, Placement, limit, moved, placement
from marltrain.policies.backends import torch as torch_backend
from marltrain.policies.networks.specs import Head, NetworkDefinition, Plan

SPACES = spaces.Box(-1, 1, (6,), np.float32), spaces.Discrete(3)
SCREEN = spaces.Box(0, 255, (20, 22, 3), np.uint8)


def multiply_adds(network: Any, space: Any = SPACES[0], backend: str = "torch", **settings: Any) -> dict[str, int]:
    agent = mt.PPO(space, SPACES[1], network=network, device="cpu", backend=backend, seed=0, **settings)
    return {name: net.multiply_adds() for name, net in agent.learner_.weights.online.items()}


@pytest.mark.parametrize(
    ("network", "space", "expected"),
    [
        (mt.MLP((4, 5)), SPACES[0], {"actor": 6 * 4 + 4 * 5 + 5 * 3, "critic": 6 * 4 + 4 * 5 + 5 * 1}),
        # W x: 4 -> 3 gates of 2 units; U h: 2 -> 3 gates of 2 units
        (mt.GRU((4,), units=2, sequence_length=4), SPACES[0], {"actor": 24 + 4 * 6 + 2 * 6 + 2 * 3,
                                                               "critic": 24 + 4 * 6 + 2 * 6 + 2}),
        # 20 x 22 pixels, kernel 4, stride 3: 6 x 7 positions; then kernel 3, stride 2: 2 x 3
        (mt.CNN((8,), filters=((5, 4, 3), (7, 3, 2))), SCREEN,
         {"actor": 5 * 3 * 16 * 42 + 7 * 5 * 9 * 6 + 42 * 8 + 8 * 3, "critic": 10080 + 1890 + 336 + 8}),
    ],
)  # fmt: skip
def test_multiplications_of_a_row(network, space, expected):
    assert multiply_adds(network, space) == expected


def test_members_of_an_ensemble_and_noisy_layers_count():
    agent = mt.SAC(SPACES[0], spaces.Box(-1, 1, (2,), np.float32), network=mt.MLP((4,)), device="cpu", seed=0)
    critic = agent.learner_.weights.online["critic"]
    assert critic.multiply_adds() == 2 * ((6 + 2) * 4 + 4)
    noisy = mt.DQN(*SPACES, network=mt.MLP((4,)), noisy=0.5, device="cpu", seed=0).learner_.weights.online["q"]
    assert noisy.multiply_adds() == 2 * (6 * 4 + 4 * 3)


def own_torch() -> nn.Module:
    return nn.Sequential(nn.Linear(6, 10), nn.Tanh(), nn.Linear(10, 3))


def test_models_of_the_users_are_counted_by_their_framework():
    import keras

    definition: dict[str, Any] = {"network": own_torch, "critic_network": mt.MLP((4,))}
    assert multiply_adds(**definition)["actor"] == 6 * 10 + 10 * 3
    model = keras.Sequential([keras.layers.Dense(10, activation="tanh"), keras.layers.Dense(3)])
    assert (
        90 <= multiply_adds(model, backend="tensorflow", critic_network=mt.MLP((4,)))["actor"] <= 110
    )  # and additions


OTHER = "cpu:0"
"""Another device than "cpu" for torch, and the same processor: it stands for a GPU."""


@pytest.fixture
def gpu(monkeypatch) -> None:
    """Let the torch backend find a GPU."""
    monkeypatch.setattr(torch_backend, "gpu", lambda: OTHER)


def chosen(network: Any) -> Placement | None:
    return mt.DQN(*SPACES, network=network, seed=0).placement


def test_small_networks_stay_on_the_cpu(gpu):
    result = chosen(mt.MLP((64, 64)))
    assert result == Placement("cpu", "multiplications per row of its largest network: 4,672, batches of 256 rows; "
                                    f"a CPU is faster below {LARGE:,}")  # fmt: skip


def test_large_networks_go_to_a_gpu(gpu):
    agent = mt.DQN(*SPACES, network=mt.MLP((450, 450)), seed=0)
    sizes = f"{6 * 450 + 450 * 450 + 450 * 3:,}"
    reason = (
        f"multiplications per row of its largest network: {sizes}, batches of 256 rows; a GPU is faster from {LARGE:,}"
    )
    assert agent.placement == Placement(OTHER, reason)
    assert str(agent.backend.device) == str(agent.learner_.backend.device) == OTHER


def test_required_programs_stay_on_the_cpu(gpu):
    agent = mt.DQN(*SPACES, network=mt.MLP((450, 450)), seed=0, jit_compile="require")
    assert agent.placement == Placement("cpu", "jit_compile='require' computes on a CPU")


def test_the_limit_is_a_number_of_multiplications(monkeypatch):
    nets = {str(n): SimpleNamespace(multiply_adds=lambda n=n: n) for n in (LARGE - 1, 5)}
    monkeypatch.setattr(torch_backend, "gpu", lambda: "cuda")
    learner: Any = SimpleNamespace(
        algorithm=SimpleNamespace(settings=SimpleNamespace(batch_size=None)),
        backend=SimpleNamespace(name="torch", jit_compile=False),
        weights=SimpleNamespace(online=nets),
        team=None,
    )
    assert placement(learner).device == "cpu"
    learner.team = SimpleNamespace(online={"mixer": SimpleNamespace(multiply_adds=lambda: LARGE)})
    assert placement(learner).device == "cuda"
    monkeypatch.setattr(torch_backend, "gpu", lambda: None)
    assert placement(learner) == Placement("cpu", "torch finds no GPU")


@pytest.mark.parametrize(("rows", "device"), [(32, "cpu"), (256, OTHER), (None, OTHER), (4096, OTHER)])
def test_the_limit_falls_with_the_rows_of_a_batch(gpu, rows, device):
    agent = mt.DQN(*SPACES, network=mt.MLP((512, 512)), batch_size=rows, seed=0)
    assert str(agent.backend.device) == device


def test_the_limits_of_some_batches():
    assert [limit(rows) for rows in (32, 256, 1024, 4096)] == [565_685, 200_000, 100_000, 50_000]


def test_without_a_gpu_nothing_is_counted(monkeypatch):
    monkeypatch.setattr(rule, "LARGE", 0)
    assert chosen(mt.MLP((8,))) == Placement("cpu", "torch finds no GPU")


def test_a_device_that_is_given_is_not_chosen(gpu):
    agent = mt.DQN(*SPACES, network=mt.MLP((700, 700)), seed=0, device="cpu")
    assert agent.placement is None
    assert str(agent.backend.device) == "cpu"


def test_a_moved_agent_keeps_its_numbers():
    """Weights, moments, hyperparameters and generators are equal, and so are the actions that it draws next."""
    one, other = (mt.PPO(*SPACES, network=mt.MLP((8,)), seed=0, device="cpu") for _ in range(2))
    one.attach(moved(one.learner_, one.row, OTHER), 0)
    assert (str(one.backend.device), str(other.backend.device)) == (OTHER, "cpu")
    mine, theirs = one.state(), other.state()
    assert mine.info == theirs.info
    assert all(np.array_equal(array, theirs.arrays[name]) for name, array in mine.arrays.items())
    seen = np.random.default_rng(0).uniform(-1, 1, (20, 6)).astype(np.float32)
    assert np.array_equal(one.act(seen, explore=True), other.act(seen, explore=True))


def test_definition_without_inputs_multiplies_nothing():
    assert Plan(NetworkDefinition(mt.MLP(()), [Head(0, free=1)], None)).multiply_adds == 0


NATURE = mt.CNN((512,), filters=((32, 8, 4), (64, 4, 2), (64, 3, 1)))


@pytest.mark.parametrize(
    ("make", "device"),
    [
        (lambda: mt.PPO(*SPACES, seed=0), "cpu"),
        (lambda: mt.DQN(*SPACES, seed=0), "cpu"),
        (lambda: mt.PPO(*SPACES, network=mt.GRU(), seed=0), "cpu"),
        (lambda: mt.PPO(*SPACES, network=mt.LSTM((128,), units=128), seed=0), "cpu"),
        (lambda: mt.SAC(SPACES[0], spaces.Box(-1, 1, (2,), np.float32), network=mt.MLP((256, 256)), seed=0), "cpu"),
        (lambda: mt.DQN(*SPACES, network=mt.MLP((512, 512)), seed=0), OTHER),
        (lambda: mt.DQN(*SPACES, network=mt.MLP((1024, 1024)), seed=0), OTHER),
        (lambda: mt.DQN(SCREEN, SPACES[1], seed=0), "cpu"),
        (lambda: mt.DQN(spaces.Box(0, 255, (84, 84, 4), np.uint8), SPACES[1], network=NATURE, seed=0), OTHER),
        (lambda: mt.PPO(*SPACES, network=own_torch, critic_network=mt.MLP((4,)), seed=0), "cpu"),
    ],
    ids=["PPO", "DQN", "GRU", "LSTM", "SAC 2x256", "2x512", "2x1024", "CNN, small image", "CNN, screen", "own model"],
)
def test_ten_agents_as_if_there_were_a_gpu(gpu, make, device):
    assert str(make().backend.device) == device
