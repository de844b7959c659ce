"""What algorithms of Q-learning have in common: updates as tianshou's, noisy networks, stacked as looped, saving."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from tianshou import algorithm as tianshou_algorithms
from tianshou.algorithm.modelfree.c51 import C51Policy
from tianshou.algorithm.modelfree.dqn import DiscreteQLearningPolicy
from tianshou.algorithm.optim import AdamOptimizerFactory
from tianshou.data import Batch, ReplayBuffer
from tianshou.utils.net.common import Net
from tianshou.utils.torch_utils import policy_within_training_step

import marltrain as mt
from marltrain.core.errors import ConfigError
from marltrain.policies.algorithms.q_learning import weight_noise
from marltrain.policies.batches.batch import Transitions
from marltrain.policies.learner.algorithm_learner import AlgorithmLearner
from tests.policies.some_batches import VECTOR, of_agent, some_transitions

ON, FOUR = np.ones(1, bool), spaces.Discrete(4)
CATEGORICAL: dict[str, Any] = {"atoms": 7, "v_min": -3.0, "v_max": 4.0}
PLACES = ("hidden0", "head0")


def linears(module: Any) -> list[torch.nn.Linear]:
    return [layer for layer in module.modules() if isinstance(layer, torch.nn.Linear)]


def tianshou_of(agent: Any, double: bool) -> Any:
    """tianshou's algorithm over a network of one hidden layer (11,) with the weights of `agent`."""
    categorical: dict[str, Any] = {"softmax": True, "num_atoms": 7} if isinstance(agent, mt.C51) else {}
    net = Net(state_shape=(5,), action_shape=4, hidden_sizes=[11], activation=torch.nn.Tanh, **categorical)
    arrays = agent.learner_.export(0).arrays
    for place, layer in zip(PLACES, linears(net), strict=True):
        layer.weight.data = torch.from_numpy(arrays[f"net/q/{place}.weight"].T.copy())
        layer.bias.data = torch.from_numpy(arrays[f"net/q/{place}.bias"].copy())
    rest: dict[str, Any] = {"optim": AdamOptimizerFactory(lr=3e-3), "gamma": 0.97, "target_update_freq": 99}
    if categorical:
        distributions = C51Policy(model=net, action_space=FOUR, num_atoms=7, v_min=-3.0, v_max=4.0)
        return tianshou_algorithms.C51(policy=distributions, **rest)
    values = DiscreteQLearningPolicy(model=net, action_space=FOUR)
    return tianshou_algorithms.DQN(policy=values, is_double=double, huber_loss_delta=1.0, **rest)


def both(seed: int, rows: int) -> tuple[ReplayBuffer, Transitions]:
    """The same single steps for tianshou and for us, a fifth of them terminated."""
    batch = some_transitions(np.random.default_rng(seed), VECTOR, 4, 1, rows)
    assert isinstance(batch.obs, np.ndarray)
    assert isinstance(batch.next_obs, np.ndarray)
    buffer = ReplayBuffer(rows)
    for i in range(rows):
        buffer.add(Batch(
            obs=batch.obs[0, i], act=batch.action[0, i], rew=batch.reward[0, i], obs_next=batch.next_obs[0, i],
            terminated=batch.discount[0, i] == 0, truncated=False, info={},
        ))  # fmt: skip
    return buffer, batch


@pytest.mark.parametrize(
    ("make", "settings"),
    [(mt.DQN, {"double": True}), (mt.DQN, {"double": False}), (mt.C51, {"double": True, **CATEGORICAL})],
    ids=["double DQN", "DQN", "C51"],
)
def test_updates_equal_tianshous(make, settings):
    """tianshou's C51 is always double. It takes the logarithm of p + 1e-8, which differs by rounding only."""
    agent = make(
        VECTOR, FOUR, seed=3, network=mt.MLP((11,)), max_grad_norm=None, learning_rate=3e-3, target_sync=99, **settings
    )
    other, start = tianshou_of(agent, settings["double"]), agent.learner_.export(0).arrays
    for seed in range(3):  # after the first, the target network is another one
        buffer, batch = both(seed, 23)
        with policy_within_training_step(other.policy):
            other.update(buffer=buffer, sample_size=0)
        agent.learner_.update(batch, learn=ON, batch_size=23)
    arrays = agent.learner_.export(0).arrays
    for place, layer in zip(PLACES, linears(other.policy.model), strict=True):
        theirs = {"weight": layer.weight.detach().numpy().T, "bias": layer.bias.detach().numpy()}
        for kind, array in theirs.items():
            name = f"net/q/{place}.{kind}"
            np.testing.assert_allclose(arrays[name], array, atol=3e-6, err_msg=name)
            assert np.abs(array - start[name]).max() > 1e-3, f"{name} hardly moved: the comparison says nothing"


# Noisy networks -------------------------------------------------------------------------------------------------------

MAKERS = [mt.DQN, mt.C51]
SMALL: dict[str, Any] = {"seed": 4, "network": mt.MLP((6,))}


def test_factors_are_signed_roots_of_normal_numbers_of_each_agent():
    result = weight_noise([np.random.default_rng(seed) for seed in (0, 1)], 3, 5)
    for k in range(2):
        normal = np.random.default_rng(k).standard_normal((3, 5), np.float32)
        np.testing.assert_allclose(result[k] * np.abs(result[k]), normal, rtol=1e-5)


@pytest.mark.parametrize("make", MAKERS)
def test_a_seat_that_does_not_explore_acts_by_the_means(make):
    """Equal seeds: the means of the noisy network are the weights of the one without noise."""
    noisy, plain = make(VECTOR, FOUR, noisy=3.0, **SMALL), make(VECTOR, FOUR, **SMALL)
    obs = np.random.default_rng(0).uniform(-1, 1, (200, 5)).astype(np.float32)
    legal = np.random.default_rng(1).random((200, 4)) < 0.7
    legal[:, 2] = True
    greedy = plain.act(obs, legal)
    exploring = np.arange(200) < 100
    acted = noisy.act(obs, legal, explore=exploring)
    np.testing.assert_array_equal(acted[100:], greedy[100:])
    assert np.mean(acted[:100] != greedy[:100]) > 0.1
    assert legal[np.arange(200), acted].all()
    one = noisy.act(np.repeat(obs[:1], 200, 0), explore=True)
    assert len(set(one.tolist())) > 1  # each row has noise of its own


@pytest.mark.parametrize("settings", [{"noisy": 0.5}, {"dueling": True}])
def test_compiled_code_leaves_noisy_and_dueling_networks_to_the_framework(settings):
    algorithm = mt.DQN(VECTOR, FOUR, **SMALL, **settings).algorithm
    assert algorithm.compiled_form() is None
    assert mt.DQN(VECTOR, FOUR, **SMALL).algorithm.compiled_form() is not None


def test_a_rule_may_explore_beside_the_noise():
    agent = mt.DQN(VECTOR, FOUR, noisy=0.5, exploration="epsilon_greedy", epsilon=1.0, **SMALL)
    counts = np.bincount(agent.act(np.zeros((400, 5), np.float32), explore=True), minlength=4)
    assert counts.min() > 60


@pytest.mark.parametrize("exploration", [None, "epsilon_greedy"])
def test_noise_of_more_rows_is_that_of_fewer_rows_and_more(exploration):
    algorithm = mt.DQN(VECTOR, FOUR, noisy=0.5, exploration=exploration, **SMALL).algorithm
    once, twice = ([np.random.default_rng(seed) for seed in (0, 1)] for _ in range(2))
    together, first, second = algorithm.noise(once, 5), algorithm.noise(twice, 2), algorithm.noise(twice, 3)
    for name, values in together.items():
        np.testing.assert_array_equal(values, np.concatenate([first[name], second[name]], 1))
    assert together["weights"].shape == (2, 5, 5 + 6 + 6 + 4)


@pytest.mark.parametrize("double", [False, True])
def test_a_pass_has_one_sample_for_all_rows_and_another_for_each_network(double):
    algorithm: Any = mt.DQN(VECTOR, FOUR, noisy=0.5, double=double, **SMALL).algorithm
    drawn = algorithm.phases[0].draw([np.random.default_rng(seed) for seed in (0, 1)], 6)
    assert list(drawn) == ["online_noise", "target_noise", *["chooser_noise"] * double]
    for values in drawn.values():
        assert values.shape == (2, 6, 21)
        assert (values == values[:, :1]).all()
    samples = {tuple(values[k, 0].tolist()) for values in drawn.values() for k in range(2)}
    assert len(samples) == 2 * len(drawn)


def test_a_model_of_ones_own_is_not_noisy():
    with pytest.raises(ConfigError, match=r"DQN: noisy=0\.5 needs a NetworkSpec"):
        mt.DQN(VECTOR, FOUR, network=torch.nn.Linear(5, 4), noisy=0.5)


@pytest.mark.parametrize("make", [mt.C51, mt.Rainbow])
def test_stacked_equals_looped(make):
    """Three agents, of which the second rests in one update: weights, moments, streams of random numbers."""
    agents = [make(VECTOR, FOUR, seed=k, network=mt.MLP((9,)), target_sync=2) for k in range(3)]
    first, rng = agents[0], np.random.default_rng(1)
    learner = AlgorithmLearner(first.algorithm, first.backend, [0, 1, 2], draw=True)
    for learn in ([True, True, True], [True, False, True], [True, True, True]):
        batch = some_transitions(rng, VECTOR, 4, 3, 11, n_step=3, masked=True)
        learner.update(batch, learn=np.array(learn), batch_size=11)
        for k, agent in enumerate(agents):
            if learn[k]:
                agent.learner_.update(of_agent(batch, k, 11), learn=ON, batch_size=11)
    for k, agent in enumerate(agents):
        together, alone = learner.export(k), agent.learner_.export(0)
        assert together.info == alone.info
        for name, array in alone.arrays.items():
            np.testing.assert_allclose(together.arrays[name], array, atol=1e-5, err_msg=name)
