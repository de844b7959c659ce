"""Agents that see images come back with the same behavior; older ones too, or they are refused."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

import marltrain as mt
from marltrain.storage.files import with_checksum

TWO = spaces.Discrete(2)
RNG = np.random.default_rng(3)


def pixels(*shape: int, high: int = 255) -> spaces.Box:
    return spaces.Box(0, high, shape, np.uint8)


def ppo(space: Any, network: Any, seed: int = 0) -> Any:
    return mt.PPO(space, TWO, seed=seed, network=network)


def older(folder: Any, **info: Any) -> None:
    """Rewrite a description as versions without one of images wrote it, or with another one."""
    for name in ("agents.json", "weights.json"):
        if (folder / name).is_file():
            found = json.loads((folder / name).read_text())
            for entry in found["agents"]:
                place = entry.get("info", entry)
                place.pop("images", None)
                place.update(info)
            (folder / name).write_text(json.dumps(with_checksum(found)))


def values(agent: Any, observation: Any) -> Any:
    rows = np.ones(len(observation), bool)
    acted = agent.decide(observation, None, None, turn=rows, explore=rows, rng=np.random.default_rng(0))
    return acted.extras["log_prob"]


CNN, FIRST = mt.CNN((5,), filters=((3, 2, 1),)), mt.CNN((5,), filters=((3, 2, 1),), channels="first")
SAVED = [
    (pixels(4, 5, high=2), mt.MLP((5,))),
    (pixels(4, 4, 7), CNN),
    (pixels(4, 4, 7), FIRST),
    (spaces.Box(np.zeros((4, 5), np.uint8), np.arange(1, 21, dtype=np.uint8).reshape(4, 5), dtype=np.uint8), CNN),
]


@pytest.mark.parametrize(("space", "network"), SAVED)
@pytest.mark.parametrize("backend", ["torch", "tensorflow"])
def test_agents_come_back_in_both_frameworks(space, network, backend, tmp_path):
    agent = ppo(space, network)
    mt.save(tmp_path / "agents", [agent])
    mt.save(tmp_path / "weights", [agent], weights_only=True)
    (loaded,) = mt.load(tmp_path / "agents", backend=backend)
    seen = RNG.integers(space.low, space.high.astype(int) + 1, (6, *space.shape)).astype(np.uint8)
    np.testing.assert_allclose(values(loaded, seen), values(agent, seen), atol=1e-5)
    for folder in ("agents", "weights"):
        other = ppo(space, network, 1)
        other.load_weights(tmp_path / folder)
        np.testing.assert_array_equal(values(other, seen), values(agent, seen))


@pytest.mark.parametrize(
    ("space", "network"),
    [(pixels(5, 6), mt.MLP((5,))), (pixels(4, 4, 7), mt.MLP((5,))), (pixels(6, 5, 3), CNN), (pixels(3, 6, 5), CNN)],
)
def test_older_agents_with_the_same_reading_come_back(space, network, tmp_path):
    """255 is the span of these spaces, and the channels are found as before, or networks do not look for them."""
    agent = ppo(space, network)
    mt.save(tmp_path / "agents", [agent])
    mt.save(tmp_path / "weights", [agent], weights_only=True)
    seen = RNG.integers(space.low, space.high.astype(int) + 1, (4, *space.shape)).astype(np.uint8)
    for folder in ("agents", "weights"):
        older(tmp_path / folder)
        other = ppo(space, network, 1)
        other.load_weights(tmp_path / folder)
        np.testing.assert_array_equal(values(other, seen), values(agent, seen))
    np.testing.assert_array_equal(values(mt.load(tmp_path / "agents")[0], seen), values(agent, seen))


@pytest.mark.parametrize(
    ("space", "network", "message"),
    [
        (pixels(4, 5, high=2), mt.MLP((5,)), r"divided images by 255. This one scales them by the bounds .*Box\(0, 2"),
        (pixels(4, 4, 7), CNN, r"shape \(4, 4, 7\): .* channels 'first', those of this agent read them 'last'"),
        (pixels(7, 4, 4), CNN, r"shape \(7, 4, 4\): .* channels 'last', those of this agent read them 'first'"),
    ],
)
def test_older_agents_with_another_reading_are_refused(space, network, message, tmp_path):
    agent = ppo(space, network)
    mt.save(tmp_path / "agents", [agent, mt.FrozenAgent(agent)])
    mt.save(tmp_path / "weights", [agent], weights_only=True)
    for folder in ("agents", "weights"):
        older(tmp_path / folder)
        before = agent.state().arrays
        with pytest.raises(mt.SaveError, match=rf"{folder}\.json: .*{message}"):
            agent.load_weights(tmp_path / folder, player=0)
        np.testing.assert_equal(agent.state().arrays, before)
    with pytest.raises(mt.SaveError, match=rf"agents\.json: agent 0 cannot be restored: .*{message}"):
        mt.load(tmp_path / "agents")
    state = agent.state()
    del state.info["images"]
    with pytest.raises(mt.SaveError, match=message):
        agent.restore(state)


@pytest.mark.parametrize("images", [[], "first", {}, {"image": "first"}, {"image": 3}, {"view": "last"}])
def test_forged_descriptions_are_refused(images, tmp_path):
    mt.save(tmp_path / "agents", [ppo(pixels(6, 5, 3), CNN)])
    older(tmp_path / "agents", images=images)
    with pytest.raises(mt.SaveError, match=r"agents\.json: agent 0 cannot be restored"):
        mt.load(tmp_path / "agents")


def test_models_of_a_users_own_read_images_as_they_like(tmp_path):
    import torch

    def model() -> Any:
        return torch.nn.Sequential(torch.nn.Flatten(), Halved(), torch.nn.Linear(20, 2))

    class Halved(torch.nn.Module):
        def forward(self, seen: Any) -> Any:
            return seen / 2

    agent = mt.PPO(pixels(4, 5, high=2), TWO, seed=0, network=model, critic_network=lambda: torch.nn.Sequential(
        torch.nn.Flatten(), Halved(), torch.nn.Linear(20, 1)))  # fmt: skip
    assert "images" not in agent.state().info
