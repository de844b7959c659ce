"""Learning agents: their settings, and a user's own torch module in place of a network."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import nn

import marltrain as mt
from marltrain.core.errors import AgentError, ConfigError, SaveError
from tests.policies.some_batches import PICTURE_AND_VECTOR, VECTOR, some_rollout, some_transitions
from tests.toys import Identity
from tests.trainer.running import changed, trainer, weights

ONE = np.ones(1, bool)


class Own(nn.Module):
    """A user's model: [B, 5] -> [B, out], with dropout, a buffer and a layer that never learns."""

    def __init__(self, out=3, dropout=0.0, width=5):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(width, 8), nn.ReLU(), nn.Dropout(dropout), nn.Linear(8, out))
        self.fixed = nn.Linear(out, out).requires_grad_(False)
        self.register_buffer("scale", torch.tensor(2.0))

    def forward(self, obs):
        out = self.body(obs)
        return self.scale * out + self.fixed(out)


def own(seed=0, **settings):
    torch.manual_seed(seed)
    return Own(**settings)


def learn(agent, updates=3):
    rng = np.random.default_rng(0)
    for _ in range(updates):
        batch = (
            some_transitions(rng, VECTOR, 3, 1, 12) if isinstance(agent, mt.DQN)
            else some_rollout(rng, VECTOR, spaces.Discrete(3), [12])
        )  # fmt: skip
        agent.learner_.update(batch, learn=ONE, batch_size=12)


def nets(agents):
    """Weights without moments: a gradient that reaches no weight moves those alone."""
    return [{name: a for name, a in arrays.items() if name.startswith("net/")} for arrays in weights(agents)]


def with_module(kind, **settings):
    module = settings.pop("module", None) or own()
    critic = {"critic_network": own(out=1), "minibatches": 2} if kind is mt.PPO else {"target_sync": 2}
    return kind(VECTOR, spaces.Discrete(3), seed=0, network=module, **{**critic, **settings})


# Settings -------------------------------------------------------------------------------------------------------------


def test_hyper_reads_everything_and_sets_numbers():
    agent = mt.PPO(VECTOR, spaces.Discrete(3), seed=0, epochs=7, clip=0.3)
    assert (agent.hyper.epochs, agent.hyper.clip, agent.hyper.value_clip) == (7, 0.3, None)
    agent.hyper.clip = 0.1
    assert agent.hyper.clip == 0.1
    assert {"epochs", "clip", "learning_rate"} <= set(dir(agent.hyper))
    with pytest.raises(ConfigError, match="'epochs' is structural"):
        agent.hyper.epochs = 3
    with pytest.raises(ConfigError, match=r"'clp' does not exist\. Did you mean 'clip'"):
        agent.hyper.clp = 3
    with pytest.raises(AttributeError):
        agent.hyper.clp  # noqa: B018


def test_the_network_follows_the_observation_unless_it_is_given():
    assert isinstance(mt.PPO(VECTOR, spaces.Discrete(3)).settings.network, mt.MLP)
    image = spaces.Box(0, 255, (16, 16), np.uint8)
    assert isinstance(mt.DQN(image, spaces.Discrete(3)).settings.network, mt.CNN)
    assert isinstance(mt.DQN(PICTURE_AND_VECTOR, spaces.Discrete(3), network=mt.MLP()).settings.network, mt.MLP)
    with pytest.raises(AgentError, match="must be a NetworkSpec"):
        mt.DQN(VECTOR, spaces.Discrete(3), network="mlp")
    with pytest.raises(AgentError, match=r"DQN: network is the class MLP: write MLP\(\)"):
        mt.DQN(VECTOR, spaces.Discrete(3), network=mt.MLP)
    with pytest.raises(AgentError, match=r"was given as a network: it must make a torch\.nn\.Module, it made MLP"):
        mt.DQN(VECTOR, spaces.Discrete(3), network=lambda: mt.MLP())


# A module of one's own ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [mt.PPO, mt.DQN])
def test_a_module_learns_as_torchs_own_optimizer_would_have_it(kind):
    """The same architecture as module and as NetworkSpec, from the same weights, stays the same."""
    rest = {"minibatches": 2, "critic_network": mt.MLP(hidden=(4,))} if kind is mt.PPO else {"target_sync": 2}
    agent = kind(VECTOR, spaces.Discrete(3), seed=0, network=mt.MLP(hidden=(8,), activation="relu"), **rest)
    name = "actor" if kind is mt.PPO else "q"
    arrays = agent.learner_.export(0).arrays
    module = nn.Sequential(nn.Linear(5, 8), nn.ReLU(), nn.Linear(8, 3))
    for layer, place in ((module[0], "hidden0"), (module[2], "head0")):
        layer.weight.data = torch.from_numpy(arrays[f"net/{name}/{place}.weight"].T.copy())
        layer.bias.data = torch.from_numpy(arrays[f"net/{name}/{place}.bias"].copy())
    twin = kind(VECTOR, spaces.Discrete(3), seed=0, network=module, **rest)
    for one in (agent, twin):
        one.learner_.weights.custom = False  # seeding the module's randomness draws from the agent's stream
        learn(one)
    ours, theirs = agent.learner_.export(0).arrays, twin.learner_.export(0).arrays
    for place, number in (("hidden0", 0), ("head0", 2)):
        learned = theirs[f"net/{name}/{number}.weight"]
        np.testing.assert_allclose(ours[f"net/{name}/{place}.weight"].T, learned, atol=1e-5)
        assert np.abs(arrays[f"net/{name}/{place}.weight"] - ours[f"net/{name}/{place}.weight"]).max() > 1e-4


@pytest.mark.parametrize("kind", [mt.PPO, mt.DQN])
def test_every_agent_has_a_copy_of_its_own_and_the_users_stays_as_it_was(kind):
    module = own()
    before = {name: value.clone() for name, value in module.state_dict().items()}
    first, second = with_module(kind, module=module), with_module(kind, module=module)
    start = nets([first, second])
    learn(first)
    assert changed(start, nets([first, second])) == [True, False]
    assert all(torch.equal(before[name], value) for name, value in module.state_dict().items())
    assert not first.stackable
    assert first.kind != second.kind


def test_a_function_or_class_makes_a_module_for_each_agent_from_its_own_stream():
    for given in (Own, lambda: Own(dropout=0.1)):
        one, two = with_module(mt.DQN, module=given), with_module(mt.DQN, module=given)
        assert not any(changed(weights([one]), weights([two])))
        other = mt.DQN(VECTOR, spaces.Discrete(3), seed=1, network=given)
        assert all(changed(nets([one]), nets([other])))
        start = nets([one, two])
        learn(one)
        assert changed(start, nets([one, two])) == [True, False]
    shared = own()
    one, two = (with_module(mt.DQN, module=lambda: shared) for _ in range(2))
    start = nets([one, two])
    learn(one)
    assert changed(start, nets([one, two])) == [True, False]


def test_what_does_not_learn_in_a_module_stays_and_buffers_are_kept():
    agent = with_module(mt.DQN)
    before = agent.learner_.export(0).arrays
    learn(agent)
    after = agent.learner_.export(0).arrays
    assert {"net/q/scale", "net/q/fixed.weight", "net/q/body.0.weight"} <= set(after)
    assert (before["net/q/fixed.weight"] == after["net/q/fixed.weight"]).all()
    assert (before["net/q/body.0.weight"] != after["net/q/body.0.weight"]).any()
    assert (after["net/q/body.0.weight"] != after["net/target_q/body.0.weight"]).any()
    twin = with_module(mt.DQN, module=own(seed=5))
    twin.learner_.load(0, agent.learner_.export(0))
    assert not any(changed(weights([agent]), weights([twin])))
    learn(agent), learn(twin)
    assert not any(changed(weights([agent]), weights([twin])))


@pytest.mark.parametrize("kind", [mt.PPO, mt.DQN])
def test_dropout_is_off_in_acting_on_in_learning_and_repeats_with_the_agents_seed(kind):
    def run():
        agent = with_module(kind, module=own(dropout=0.5))
        observation = np.random.default_rng(0).uniform(-1, 1, (20, 5)).astype(np.float32)
        torch.rand(1)  # others draw from torch's generator too
        first, second = agent.act(observation).tolist(), agent.act(observation).tolist()
        assert first == second
        learn(agent)
        return agent

    state = torch.get_rng_state()
    first = run()
    second = run()
    assert not any(changed(weights([first]), weights([second])))
    plain = with_module(kind, module=own(dropout=0.0))
    learn(plain)
    assert any(changed(weights([first]), weights([plain])))
    torch.set_rng_state(state)
    before = torch.get_rng_state()
    learn(first)
    assert torch.equal(before, torch.get_rng_state())


@pytest.mark.parametrize(
    ("make", "error", "words"),
    [
        (
            lambda: with_module(mt.DQN, module=own(out=4)),
            AgentError,
            "module Own returned an output of shape (2, 4) for 2 rows, expected a tensor of shape (2, 3)",
        ),
        (
            lambda: with_module(mt.DQN, module=own(width=6)),
            AgentError,
            "module Own cannot take this player's observations",
        ),
        (lambda: with_module(mt.DQN, module=nn.ReLU()), AgentError, "ReLU has no parameters that learn"),
        (lambda: with_module(mt.DQN, module=nn.GRU(5, 3)), AgentError, "module GRU returned a tuple"),
        (lambda: with_module(mt.PPO, critic_network=own(out=2)), AgentError, "expected a tensor of shape (2, 1)"),
        (lambda: with_module(mt.PPO, critic_network=None), ConfigError, "give the critic's too with critic_network="),
        (
            lambda: mt.PPO(VECTOR, spaces.Box(-1, 1, (2,)), network=own(out=2), critic_network=mt.MLP()),
            AgentError,
            "expected a tensor of shape (2, 4)",
        ),
    ],
)
def test_modules_that_do_not_fit_are_refused_when_the_agent_is_made(make, error, words):
    with pytest.raises(error) as caught:
        make()
    assert words in str(caught.value)


def test_a_module_may_take_a_mapping_with_images():
    class Both(nn.Module):
        def __init__(self):
            super().__init__()
            self.see, self.feel = nn.Linear(72, 3), nn.Linear(2, 3)

        def forward(self, obs):
            return self.see(obs["view"].flatten(1) / 255) + self.feel(obs["vector"])

    agent = mt.DQN(PICTURE_AND_VECTOR, spaces.Discrete(3), seed=0, network=Both())
    observation = {"place": np.zeros(2, np.float32), "view": np.zeros((8, 9), np.uint8)}
    assert agent.act(observation) in range(3)
    before = weights([agent])
    batch = some_transitions(np.random.default_rng(0), PICTURE_AND_VECTOR, 3, 1, 12)
    agent.learner_.update(batch, learn=ONE, batch_size=12)
    assert changed(before, weights([agent])) == [True]


def test_modules_train_in_every_seat_beside_stacked_agents():
    """Three agents given one module: three copies, each a learner of its own, all of which learn."""
    args, module = {"players": 4, "length": 3}, own(width=3)
    agents = mt.make_agents("dqn", Identity, env_args=args, seed=0, network=module, learning_starts=0)[:3]
    agents.append(mt.make_agents("dqn", Identity, env_args=args, seed=0, learning_starts=0)[3])
    before = nets(agents)
    trainer(Identity, args, steps_per_train=36).train(agents, [1, 1, 0, 1], plot=False)
    assert changed(before, nets(agents)) == [True, True, False, True]
    learned = nets(agents[:2])
    assert changed(learned[:1], learned[1:]) == [True]


def test_a_frozen_copy_of_an_agent_with_a_module():
    agent = with_module(mt.DQN)
    frozen = mt.FrozenAgent(agent)
    observation = np.random.default_rng(0).uniform(-1, 1, (20, 5)).astype(np.float32)
    before = agent.act(observation).tolist()
    agent.hyper.learning_rate = 0.1
    learn(agent, 20)
    assert frozen.act(observation).tolist() == before != agent.act(observation).tolist()


def test_a_saved_module_must_be_supplied_again():
    agent = with_module(mt.DQN)
    learn(agent)
    state = agent.state()
    with pytest.raises(SaveError, match=r"custom_objects=\{'Own': "):
        mt.DQN.from_state(state, {}, None)
    for given in (own(seed=9), Own, lambda: own(seed=9)):
        twin = mt.DQN.from_state(state, {"Own": given}, None)
        assert not any(changed(weights([agent]), weights([twin])))
        assert twin.state().info == state.info


def test_compiling_is_for_networks_that_are_specifications():
    with pytest.raises(ConfigError, match=r"jit_compile=True compiles passes over networks that are NetworkSpecs"):
        mt.DQN(VECTOR, spaces.Discrete(3), network=nn.Linear(5, 3), jit_compile=True)
    with pytest.raises(ConfigError, match="jit_compile must be True or False or 'require', got 'yes'"):
        mt.DQN(VECTOR, spaces.Discrete(3), jit_compile="yes")  # type: ignore[arg-type]
