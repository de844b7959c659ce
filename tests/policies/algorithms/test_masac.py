"""MASAC by hand: soft values of Box and Discrete actions, given the actions of the others."""

from __future__ import annotations

from typing import Any

import numpy as np

import marltrain as mt
from marltrain.policies.backends import numpy_ops
from marltrain.policies.distributions import SquashedGaussian, gumbel
from tests.policies.algorithms.central import BOTH, BOX, TAKEN, WEIGHT, linear_team, softmax, three_steps, update_rng

ALPHA = 0.3


def linear(arrays: dict[str, np.ndarray], name: str, inputs: np.ndarray) -> np.ndarray:
    """Return the outputs of a linear network, [B, A], or [2, B, A] of two critics."""
    weight, bias = arrays[f"net/{name}/head0.weight"], arrays[f"net/{name}/head0.bias"]
    result: np.ndarray = inputs @ weight + (bias if weight.ndim == 2 else bias[:, None])
    return result


def critics(arrays: dict[str, np.ndarray], name: str, state: np.ndarray, actions: np.ndarray) -> np.ndarray:
    return linear(arrays, name, np.concatenate([state, actions], -1))


def test_the_losses_by_hand():
    """Player 0's actions are samples of a squashed normal distribution; the value of player 1 is an expectation.

    The critics of player 1 read 0 in place of its own action.
    """
    agents, learner = linear_team(mt.MASAC, temperature=ALPHA, learning_rate=1e-9)
    arrays: Any = [agent.learner_.export(0).arrays for agent in agents]
    batch = three_steps()
    rngs, squashed = [update_rng(agent) for agent in agents], SquashedGaussian(BOX)
    metrics = learner.update(batch, learn=BOTH, batch_size=3)
    first, second = batch.members
    state, following = batch.state[0], batch.next_state[0]

    def sampled(obs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        out = linear(arrays[0], "actor", obs)
        action, _, log_prob = squashed.sample(numpy_ops, out[None], None, squashed.noise(rngs[:1], 3), None)
        return action[0], log_prob[0]

    next_action, next_log_prob = sampled(first.next_obs[0])
    next_logits = linear(arrays[1], "actor", second.next_obs[0])
    next_choice = np.eye(2)[(next_logits + gumbel(rngs[1:], (3, 2))[0]).argmax(-1)]
    next_action_there = next_action * first.next_present[0][:, None]

    q = critics(arrays[0], "target_critic", following, np.concatenate([next_action_there, next_choice], 1))
    y = first.reward[0] + first.discount[0] * (q.min(0)[:, 0] - ALPHA * next_log_prob)
    error = critics(arrays[0], "critic", state, TAKEN)[..., 0] - y
    np.testing.assert_allclose(metrics["loss/critic"][0], 0.5 * (error**2 @ WEIGHT[0]).sum(), rtol=1e-5)

    def soft(logits: np.ndarray, q: np.ndarray) -> np.ndarray:
        probs = softmax(logits)
        result: np.ndarray = (probs * (q.min(0) - ALPHA * np.log(probs))).sum(-1)
        return result

    q = critics(arrays[1], "target_critic", following, np.concatenate([next_action_there, np.zeros((3, 2))], 1))
    y = second.reward[0] + second.discount[0] * soft(next_logits, q)
    of_others = np.concatenate([TAKEN[:, :1], np.zeros((3, 2))], 1)
    q = critics(arrays[1], "critic", state, of_others)
    error = np.take_along_axis(q, second.action[0][None, :, None], -1)[..., 0] - y
    np.testing.assert_allclose(metrics["loss/critic"][1], 0.5 * (error**2 @ WEIGHT[1]).sum(), rtol=1e-5)

    own, log_prob = sampled(first.obs[0])
    mixed = critics(arrays[0], "critic", state, np.concatenate([own, TAKEN[:, 1:]], 1)).min(0)[:, 0]
    np.testing.assert_allclose(metrics["loss/actor"][0], -WEIGHT[0] @ (mixed - ALPHA * log_prob), rtol=1e-5)
    value = soft(linear(arrays[1], "actor", second.obs[0]), q)
    np.testing.assert_allclose(metrics["loss/actor"][1], -WEIGHT[1] @ value, rtol=1e-5)


def test_each_agent_tunes_its_own_temperature():
    agents, learner = linear_team(mt.MASAC, target_entropy_ratio=0.0, initial_temperature=0.5)
    learner.update(three_steps(), learn=BOTH, batch_size=3)
    tuned = [float(agent.learner_.export(0).arrays["net/temperature/head0.free"][0]) for agent in agents]
    assert tuned[0] != tuned[1] and tuned[1] < np.log(0.5)
