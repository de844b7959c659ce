"""DDPG, TD3 and SAC: updates equal tianshou's; what they share: spaces, networks, settings, stacks, saving, games."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import nn

import marltrain as mt
from marltrain.core.errors import ConfigError, SpecError
from marltrain.core.seeds import generator
from marltrain.policies.learner.algorithm_learner import AlgorithmLearner
from tests.policies.algorithms.twins import BOX, HIDDEN, ON, RATE, Twin, in_numbers, rows_of
from tests.policies.some_batches import VECTOR, of_agent, some_transitions
from tests.toys import Relay
from tests.trainer.running import trainer

DISCRETE = spaces.Discrete(4)
KINDS = [(mt.DDPG, BOX), (mt.TD3, BOX), (mt.SAC, BOX), (mt.SAC, DISCRETE)]
every_kind = pytest.mark.parametrize(("make", "space"), KINDS, ids=["ddpg", "td3", "sac", "discrete sac"])
SMALL = mt.MLP((8,), "relu")


@pytest.mark.parametrize(
    ("make", "space", "settings"),
    [
        (mt.DDPG, BOX, {}),
        (mt.TD3, BOX, {"target_noise": 0.3, "target_noise_clip": 0.4}),
        (mt.SAC, BOX, {"initial_temperature": 0.5}),
        (mt.SAC, BOX, {"temperature": 0.2}),
        (mt.SAC, DISCRETE, {"target_entropy_ratio": 0.6}),
    ],
)
def test_updates_equal_tianshous(make, space, settings, monkeypatch):
    """Three updates from equal weights, rows and noise. Sums of two critics' losses have the gradients of each.

    tianshou adds 1.2e-7 to 1 - tanh^2 in the density, and does not clip the target policy's action with its noise (the
    paper's published code does, as ours): the actions here are far from both.
    """
    agent = make(VECTOR, space, seed=3, network=mt.MLP(HIDDEN, "relu"), learning_rate=RATE, tau=0.1, **settings)
    twin, rng, drawn = Twin(agent), np.random.default_rng(0), generator(3, "update")
    start = twin.our_weights()

    def normal(*shape: Any, size: Any = None, **_: Any) -> torch.Tensor:
        return torch.from_numpy(drawn.standard_normal(tuple(size or shape[0]), np.float32))

    monkeypatch.setattr(torch.distributions.normal, "_standard_normal", normal)
    monkeypatch.setattr(torch, "randn", normal)
    for _ in range(3):
        batch = rows_of(rng, space)
        agent.learner_.update(batch, learn=ON, batch_size=13)
        twin.update(batch, in_numbers if isinstance(space, spaces.Box) else np.asarray)
    ours = twin.our_weights()
    for name, array in twin.weights().items():
        np.testing.assert_allclose(ours[name], array, atol=2e-6, err_msg=name)
        assert np.abs(array - start[name]).max() > 3e-4, f"{name} hardly moved: the comparison says nothing"


@every_kind
def test_stacked_agents_learn_as_single_ones(make, space):
    """Two agents of one learner, one of which pauses in the second of three updates."""

    def made(seed):
        return make(VECTOR, space, seed=seed, network=SMALL, tau=0.2, learning_rate=1e-3)

    singles = [made(1), made(2)]
    learner = AlgorithmLearner(singles[0].algorithm, singles[0].backend, [1, 2], draw=True)
    rng = np.random.default_rng(0)
    for active in ([True, True], [True, False], [True, True]):
        batch = some_transitions(rng, VECTOR, space, 2, 11, masked=isinstance(space, spaces.Discrete))
        learner.update(batch, learn=np.array(active), batch_size=11)
        for k in range(2):
            if active[k]:
                singles[k].learner_.update(of_agent(batch, k), learn=ON, batch_size=11)
    for k, single in enumerate(singles):
        together, alone = learner.export(k), single.learner_.export(0)
        assert together.info == alone.info
        for name, array in together.arrays.items():
            np.testing.assert_allclose(array, alone.arrays[name], atol=2e-6, err_msg=name)


@every_kind
def test_padding_changes_nothing(make, space):
    """9 rows with weight, 4 without."""
    agents = [make(VECTOR, space, seed=1, network=SMALL) for _ in range(2)]
    batch = some_transitions(np.random.default_rng(0), VECTOR, space, 1, 13)
    batch.weight[:, 9:] = 0
    agents[0].learner_.update(batch, learn=ON, batch_size=13)
    agents[1].learner_.update(of_agent(batch, 0, 9), learn=ON, batch_size=9)
    padded, alone = (agent.learner_.export(0) for agent in agents)
    assert padded.info == alone.info
    for name, array in padded.arrays.items():
        np.testing.assert_allclose(array, alone.arrays[name], atol=1e-6, err_msg=name)


def test_sac_of_a_box_continues_in_the_other_framework(tmp_path):
    """The others, and discrete SAC, are in the suite of the registry."""
    rng, space = np.random.default_rng(0), BOX
    agent = mt.SAC(VECTOR, space, seed=1, network=SMALL, learning_rate=1e-3)
    agent.learner_.update(rows_of(rng, space), learn=ON, batch_size=13)
    mt.save(tmp_path / "agent", [agent])
    other: Any = mt.load(tmp_path / "agent", backend="tensorflow")[0]
    obs = rng.uniform(-1, 1, (7, 5)).astype(np.float32)
    np.testing.assert_allclose(other.act(obs, explore=True), agent.act(obs, explore=True), atol=1e-5)
    batch = rows_of(rng, space)
    for each in (agent, other):
        each.learner_.update(batch, learn=ON, batch_size=13)
    states = agent.learner_.export(0), other.learner_.export(0)
    assert states[0].info == states[1].info
    for name, array in states[0].arrays.items():
        np.testing.assert_allclose(states[1].arrays[name], array, atol=1e-5, err_msg=name)


HALF_BOUNDED = spaces.Box(np.array([0, -np.inf], np.float32), np.ones(2, np.float32))


@pytest.mark.parametrize(
    ("make", "space", "words"),
    [
        (mt.DDPG, DISCRETE, "DDPG needs a Box of actions, got Discrete(4); DQN and SAC take Discrete actions"),
        (mt.TD3, spaces.MultiDiscrete([2, 2]), "TD3 needs a Box of actions"),
        (mt.SAC, spaces.MultiDiscrete([2, 2]), "SAC needs a Box or Discrete action space"),
        (mt.TD3, HALF_BOUNDED, "TD3 needs two finite bounds in every dimension of a Box; dimension 1 of the action "
         "space goes from -inf to 1"),
        (mt.SAC, spaces.Box(-np.inf, np.inf, (1,)), "dimension 0 of the action space"),
    ],
)  # fmt: skip
def test_wrong_action_spaces(make, space, words):
    with pytest.raises(SpecError) as caught:
        make(VECTOR, space, seed=0)
    assert words in str(caught.value)


@pytest.mark.parametrize(
    ("make", "space", "settings", "words"),
    [
        (mt.SAC, DISCRETE, {"target_entropy": -1.0}, "SAC: target_entropy=-1.0 is for a Box of actions"),
        (mt.DDPG, BOX, {"network": nn.Linear(5, 2)}, "DDPG: network=Linear is a model of your own and only the actor"),
        (mt.TD3, BOX, {"policy_delay": 0}, "policy_delay must be at least 1, got 0"),
        (mt.TD3, BOX, {"noise_scale": (1.0,)}, "TD3: noise_scale must have one number"),
    ],
)
def test_wrong_settings(make, space, settings, words):
    with pytest.raises(ConfigError) as caught:
        make(VECTOR, space, seed=0, **settings)
    assert words in str(caught.value)


def test_networks():
    """2 x 256 relu by default; the critics have their own network, or the actor's."""
    assert mt.TD3(VECTOR, BOX, seed=0).settings.network == mt.MLP((256, 256), "relu")
    agent = mt.SAC(VECTOR, BOX, seed=0, network=SMALL, critic_network=mt.MLP((6,), "tanh"))
    arrays = agent.learner_.export(0).arrays
    assert arrays["net/actor/hidden0.weight"].shape == (5, 8)
    assert arrays["net/critic/hidden0.weight"].shape == (2, 5 + 2, 6)
    assert arrays["net/target_critic/head0.weight"].shape == (2, 6, 1)
    assert mt.SAC(VECTOR, DISCRETE, seed=0, network=SMALL).learner_.export(0).arrays[
        "net/critic/head0.weight"
    ].shape == (2, 8, 4)


class Joined(nn.Module):
    """A critic of one's own: an observation and an action, two values."""

    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(7, 8), nn.ReLU(), nn.Linear(8, 2))

    def forward(self, obs, action):
        return self.layers(torch.cat([obs, action], -1))


def test_models_of_ones_own(tmp_path):
    agent = mt.SAC(VECTOR, BOX, seed=0, network=nn.Linear(5, 4), critic_network=Joined())
    batch = rows_of(np.random.default_rng(0), BOX)
    metrics = agent.learner_.update(batch, learn=ON, batch_size=13)
    assert np.isfinite(metrics["loss/critic"]).all()
    mt.save(tmp_path / "own", [agent])
    (again,) = mt.load(tmp_path / "own", custom_objects={"actor": nn.Linear(5, 4), "critic": Joined})
    obs = np.ones((3, 5), np.float32)
    np.testing.assert_array_equal(again.act(obs), agent.act(obs))


@every_kind
def test_actions_are_inside_the_space(make, space):
    agent = make(VECTOR, space, seed=0, network=SMALL, random_share=0.5, random_steps=0)
    obs = np.random.default_rng(0).uniform(-1, 1, (200, 5)).astype(np.float32)
    for explore in (False, True):
        actions = agent.act(obs, explore=explore)
        assert all(space.contains(space.dtype.type(a) if space is DISCRETE else a) for a in actions)
    assert len(np.unique(agent.act(obs[:1].repeat(50, 0), explore=True), axis=0)) > 3
    assert len(np.unique(agent.act(obs[:1].repeat(50, 0)), axis=0)) == 1


def test_turns_and_masks():
    """Three players in turn, some moves illegal, one absent in some episodes."""
    agents: list[Any] = mt.make_agents(
        "sac", Relay, seed=0, network=SMALL, learning_starts=20, batch_size=8, update_per_step=0.3
    )
    result = trainer(Relay, num_train_envs=2, steps_per_train=120).train(agents, [1, 1, 1], plot=False)
    assert all(agent.learner_.gradient_steps.sum() > 5 for agent in agents)
    assert np.isfinite(result["history"]["ann/entropy"].iloc[-1])
