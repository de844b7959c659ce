"""MADDPG by hand: the target actions in the critics, the own action in the actors' losses, exploration."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

import marltrain as mt
from marltrain.policies.distributions import gumbel
from tests.policies.algorithms.central import (
    BOTH,
    RATE,
    TAKEN,
    WEIGHT,
    linear,
    linear_team,
    of,
    softmax,
    three_steps,
    update_rng,
)
from tests.policies.some_batches import VECTOR


@pytest.mark.parametrize("straight", [True, False])
def test_an_update_by_hand(straight):
    """Two players, three steps: a step, one at which player 1 is absent, one that ends the game of player 0.

    Player 0's target actions are tanh(o W + b), player 1's are samples softmax((o W + b + g) / 0.5).
    """
    agents, learner = linear_team(mt.MADDPG, straight_through=straight, gumbel_temperature=0.5, output_penalty=0.1)
    before: Any = [linear(agent) for agent in agents]
    batch, rng = three_steps(), update_rng(agents[1])
    metrics = learner.update(batch, learn=BOTH, batch_size=3)
    after: Any = [linear(agent) for agent in agents]
    first, second = batch.members

    def one_hot(relaxed: np.ndarray) -> np.ndarray:
        return np.eye(2)[relaxed.argmax(-1)] if straight else relaxed

    action = np.tanh(of(before[0]["target_actor"], first.next_obs[0]))
    choice = softmax((of(before[1]["target_actor"], second.next_obs[0]) + gumbel([rng], (3, 2))[0]) / 0.5)
    following = np.concatenate([action * first.next_present[0][:, None], one_hot(choice)], 1)
    assert following[2, 0] == 0
    for i, rows in enumerate((first, second)):
        y = rows.reward[0] + rows.discount[0] * of(before[i]["target_critic"], batch.next_state[0], following)[:, 0]
        error = of(before[i]["critic"], batch.state[0], TAKEN)[:, 0] - y
        np.testing.assert_allclose(metrics["loss/critic"][i], WEIGHT[i] @ error**2, rtol=1e-5)
        inputs = np.concatenate([batch.state[0], TAKEN], 1)
        grad = inputs.T @ (WEIGHT[i] * 2 * error)
        np.testing.assert_allclose(after[i]["critic"][0][:, 0], before[i]["critic"][0][:, 0] - RATE * grad, rtol=1e-4)

    # the actors, through the new critics; dQ/da is the critic's weight
    slope = after[0]["critic"][0][2:3, 0]
    out = of(before[0]["actor"], first.obs[0])
    q = of(after[0]["critic"], batch.state[0], np.tanh(out), TAKEN[:, 1:])[:, 0]
    np.testing.assert_allclose(metrics["loss/actor"][0], WEIGHT[0] @ (0.1 * out[:, 0] ** 2 - q), rtol=1e-4)
    grad = WEIGHT[0][:, None] * (0.2 * out - slope * (1 - np.tanh(out) ** 2))
    assert_moved(before[0]["actor"], after[0]["actor"], first.obs[0], grad)

    slope = after[1]["critic"][0][3:, 0]
    out = of(before[1]["actor"], second.obs[0])
    choice = softmax((out + gumbel([rng], (3, 2))[0]) / 0.5)
    q = of(after[1]["critic"], batch.state[0], TAKEN[:, :1], one_hot(choice))[:, 0]
    np.testing.assert_allclose(metrics["loss/actor"][1], WEIGHT[1] @ (0.1 * (out**2).mean(-1) - q), rtol=1e-4)
    relaxed = choice * (slope - (choice @ slope)[:, None]) / 0.5
    assert_moved(before[1]["actor"], after[1]["actor"], second.obs[0], WEIGHT[1][:, None] * (0.1 * out - relaxed))


def assert_moved(before: Any, after: Any, obs: np.ndarray, grad: np.ndarray) -> None:
    """Fail unless a linear network made a step against gradients [B, A] of its outputs."""
    np.testing.assert_allclose(after[0], before[0] - RATE * obs.T @ grad, rtol=1e-3, atol=1e-5)
    np.testing.assert_allclose(after[1], before[1] - RATE * grad.sum(0), rtol=1e-3, atol=1e-5)


def test_targets_follow_by_tau():
    agents, learner = linear_team(mt.MADDPG, tau=0.25)
    before = linear(agents[0])
    learner.update(three_steps(), learn=BOTH, batch_size=3)
    after = linear(agents[0])
    for name in ("actor", "critic"):
        mixed = 0.75 * before[f"target_{name}"][0] + 0.25 * after[name][0]
        np.testing.assert_allclose(after[f"target_{name}"][0], mixed, rtol=1e-5)


SIZES: dict[str, Any] = {"team_size": 1, "state_size": 3, "joint_action_size": 5, "seed": 0}


def test_discrete_actions_are_sampled_where_they_explore_and_legal():
    """Logits 0, 1 and 2 of the three legal actions; without exploration, the most probable one."""
    agent: Any = mt.MADDPG(VECTOR, spaces.Discrete(4), network=mt.MLP(()), random_share=0.0, random_steps=0, **SIZES)
    state = agent.learner_.export(0)
    state.arrays["net/actor/head0.weight"] *= 0
    state.arrays["net/actor/head0.bias"][:] = [0, 1, 2, 9]
    agent.learner_.load(0, state)
    obs, legal = np.zeros((4000, *VECTOR.shape), np.float32), np.tile([True, True, True, False], (4000, 1))
    assert (agent.act(obs, legal) == 2).all()
    share = np.bincount(agent.act(obs, legal, explore=True), minlength=4) / 4000
    np.testing.assert_allclose(share, [*softmax(np.arange(3.0)), 0], atol=0.03)
    agent.hyper.random_share = 1.0
    share = np.bincount(agent.act(obs, legal, explore=True), minlength=4) / 4000
    np.testing.assert_allclose(share, [1 / 3] * 3 + [0], atol=0.03)


def test_choices_of_a_multi_discrete_space_are_sampled_each():
    agent: Any = mt.MADDPG(VECTOR, spaces.MultiDiscrete([2, 3]), network=mt.MLP(()), random_steps=0, **SIZES)
    state = agent.learner_.export(0)
    state.arrays["net/actor/head0.weight"] *= 0
    state.arrays["net/actor/head0.bias"][:] = [0, 1, 9, 0, 0]
    agent.learner_.load(0, state)
    obs = np.zeros((2000, *VECTOR.shape), np.float32)
    assert (agent.act(obs) == [1, 0]).all()
    first, second = agent.act(obs, explore=True).T
    assert abs(first.mean() - softmax(np.array([0.0, 1.0]))[1]) < 0.04 and (second == 0).mean() > 0.99
