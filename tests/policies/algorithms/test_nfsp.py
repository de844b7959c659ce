"""NFSP: who is played by hand, the loss of the average policy, what is kept, Kuhn poker, what it refuses."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

import marltrain as mt
from marltrain.core.errors import ConfigError, SpecError
from marltrain.policies.memory.reservoir import KEY
from tests.policies.backends.both import BOTH
from tests.policies.some_batches import VECTOR, some_replayed
from tests.tiers import LONG, rounds

ACTIONS, ROWS = spaces.Discrete(3), 4000
ON = np.ones(1, bool)


def made(**settings: Any) -> Any:
    """Return an agent whose best action is 0 of any, and whose average policy has the probabilities 1/8, 1/8, 3/4."""
    agent = mt.NFSP(VECTOR, ACTIONS, seed=3, **settings)
    state = agent.learner_.export(0)
    for name, array in state.arrays.items():
        if "/head0." in name:
            array[...] = 0.0
    state.arrays["net/q/head0.bias"][:] = [2.0, 1.0, 0.0]
    state.arrays["net/average/head0.bias"][:] = np.log([1.0, 1.0, 6.0])
    agent.learner_.load(0, state)
    return agent


def acts(agent: Any, explore: Any = True, carry: Any = None, legal: Any = None) -> Any:
    """Return the decisions of a training episode for `ROWS` equal observations."""
    obs = np.zeros((1, ROWS, 5), np.float32)
    explored = np.broadcast_to(np.asarray(explore, bool), (1, ROWS))
    given = mt.ActInputs(obs, legal, explored, carry, training=True)
    return agent.learner_.act(given, turn=explored, rngs=agent.learner_.rngs("act"))


def close(count: Any, share: float) -> bool:
    """Return whether a count of `ROWS` is within five deviations of its mean."""
    return bool(abs(count - ROWS * share) < 5 * np.sqrt(ROWS * share * (1 - share)))


@pytest.mark.parametrize("backend", BOTH)
def test_a_share_of_episodes_is_played_by_the_best_response_from_the_first_decision_to_the_end(backend):
    agent = made(eta=0.3, epsilon=0.0, backend=backend)
    first = acts(agent)
    best = first.extras[KEY][0] > 0
    assert close(best.sum(), 0.3)
    assert first.action.dtype == np.int64
    assert (first.action[0, best] == 0).all()
    for action, share in enumerate((1 / 8, 1 / 8, 3 / 4)):
        own = first.action[0, ~best] == action
        assert abs(own.mean() - share) < 5 * np.sqrt(share * (1 - share) / own.size)
    second = acts(agent, carry=first.carry)
    assert ((second.extras[KEY][0] > 0) == best).all()
    assert (second.action[0, best] == 0).all()
    anew = acts(agent, carry={name: np.zeros_like(value) for name, value in first.carry.items()})
    assert ((anew.extras[KEY][0] > 0) != best).any()
    keys = first.extras[KEY][0, best]
    assert keys.dtype == np.float32
    assert abs(keys.mean() - 0.5) < 5 / np.sqrt(12 * keys.size)


def test_best_responses_explore_and_heed_legal_actions():
    agent, legal = made(eta=1.0, epsilon=0.6), np.broadcast_to([False, True, True], (1, ROWS, 3))
    acted = acts(agent, legal=legal)
    assert (acted.extras[KEY] > 0).all()
    assert not (acted.action == 0).any()
    assert close((acted.action == 2).sum(), 0.3)
    agent.hyper.eta = 0.0
    legal = np.broadcast_to([True, True, False], (1, ROWS, 3))
    acted = acts(agent, legal=legal)
    assert (acted.extras[KEY] == 0).all()
    assert not (acted.action == 2).any()
    assert close((acted.action == 1).sum(), 0.5)


def test_seats_that_do_not_explore_and_all_others_play_the_average_policy():
    agent, obs = made(eta=1.0, epsilon=1.0), np.zeros((ROWS, 5), np.float32)
    silent = acts(agent, explore=False)
    assert (silent.action == 2).all()
    assert (silent.extras[KEY] == 0).all()
    assert (agent.act(obs) == 2).all()
    assert close((agent.act(obs, explore=True) == 2).sum(), 3 / 4)
    assert agent.probabilities(obs[0]) == pytest.approx([1 / 8, 1 / 8, 3 / 4])
    assert agent.probabilities(obs[0], np.array([True, True, False])) == pytest.approx([0.5, 0.5, 0.0])


def test_tests_of_a_trainer_play_the_average_policy():
    """The best response is action 0 in every state, and the average policy almost surely action 1."""
    env = "marltrain/kuhn_poker_v1"
    agents: Any = mt.make_agents("nfsp", env, seed=0, eta=1.0, epsilon=0.0)
    for agent, bias in zip(agents, ([30.0, 0.0], [0.0, 30.0]), strict=True):
        state = agent.learner_.export(0)
        state.arrays["net/average/head0.weight"][...], state.arrays["net/average/head0.bias"][:] = 0.0, bias
        agent.learner_.load(0, state)
    trainer = mt.DecentralizedTrainer(env, num_test_envs=4, seed=0, run_dir=False, progress=False)
    for sampled in (False, True):  # pass, bet, pass: the second player wins the ante
        returns = trainer.test(agents, 8, sampled=sampled).returns
        np.testing.assert_array_equal(returns, np.tile([-1.0, 1.0], (8, 1)))


def test_the_loss_of_the_average_policy_by_hand():
    agent = made(learning_rate=0.0)
    batch: Any = some_replayed(np.random.default_rng(0), agent.algorithm, 1, 2)
    batch.kept_action[0], batch.kept_legal = [2, 0], np.array([[[True] * 3, [True, True, False]]])
    metrics = agent.learner_.update(batch, learn=ON, batch_size=2)
    assert metrics["loss/average"][0] == pytest.approx(-(np.log(3 / 4) + np.log(1 / 2)) / 2, rel=1e-5)


def test_the_loss_of_the_best_response_is_half_the_squared_error():
    """Values 2, 1 and 0, and a return of -2: errors of 4 and 2, for which the Huber loss is linear."""
    agent = made(learning_rate=0.0)
    batch: Any = some_replayed(np.random.default_rng(0), agent.algorithm, 1, 2)
    batch.action[0], batch.reward[...], batch.discount[...] = [0, 2], -2.0, 0.0
    metrics = agent.learner_.update(batch, learn=ON, batch_size=2)
    assert metrics["loss/total"][0] == pytest.approx((16 / 2 + 4 / 2) / 2, rel=1e-5)


def test_an_empty_reservoir_leaves_the_average_policy_and_rates_differ():
    agent = made(learning_rate=0.01, average_learning_rate=0.1)
    before, rng = agent.learner_.export(0).arrays, np.random.default_rng(0)
    batch: Any = some_replayed(rng, agent.algorithm, 1, 8)
    batch.kept_weight[...] = 0.0
    agent.learner_.update(batch, learn=ON, batch_size=8)
    after = agent.learner_.export(0).arrays
    moved = {name for name in before if name.startswith("net/") and (before[name] != after[name]).any()}
    assert {name.split("/")[1] for name in moved} == {"q"}
    agent.learner_.update(some_replayed(rng, agent.algorithm, 1, 8), learn=ON, batch_size=8)
    step = np.abs(agent.learner_.export(0).arrays["net/average/head0.bias"] - after["net/average/head0.bias"])
    assert 0.02 < step.max() < 0.11  # Adam, in its second step


def test_kuhn_poker_comes_near_to_the_equilibrium():
    """From 0.458 of the uniform policy; in the long tier, three seeds gave 0.14, 0.12 and 0.13."""
    env, steps = "marltrain/kuhn_poker_v1", rounds(8_000, 16_000)
    agents = mt.make_agents(
        "nfsp", env, seed=0, gamma=1.0, network=mt.MLP((32,)), epsilon=mt.linear(0.1, 0.0, steps), eta=0.2,
        update_per_step=1 / 16, learning_rate=3e-3, batch_size=64, capacity=2_000, target_sync=100,
    )  # fmt: skip
    trainer = mt.DecentralizedTrainer(
        env, num_train_envs=64, update_freq=64, steps_per_train=steps, test_freq=None, seed=0, run_dir=False,
        progress=False,
    )  # fmt: skip
    trainer.train(agents, [1, 1], plot=False)
    assert mt.exploitability(agents, env) < (0.2 if LONG else 0.3)


def test_what_it_refuses():
    with pytest.raises(SpecError, match="NFSP needs a Discrete action space"):
        mt.NFSP(VECTOR, spaces.Box(-1, 1, (2,), np.float32))
    with pytest.raises(ConfigError, match="nfsp: its network 'q' cannot be recurrent"):
        mt.NFSP(VECTOR, ACTIONS, network=mt.GRU())
