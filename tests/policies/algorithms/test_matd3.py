"""MATD3 by hand: the smaller of two critics at smoothed target actions, and delayed actors."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np

import marltrain as mt
from marltrain.policies.distributions import gumbel
from tests.policies.algorithms.central import BOTH, TAKEN, WEIGHT, linear, linear_team, three_steps, update_rng


def values(arrays: dict[str, np.ndarray], name: str, *inputs: np.ndarray) -> np.ndarray:
    """Return the values [2, B] of an agent's two linear critics."""
    joined = np.concatenate(inputs, -1)
    weight, bias = (arrays[f"net/{name}/head0.{member}"].reshape(2, -1) for member in ("weight", "bias"))
    result: np.ndarray = weight @ joined.T + bias
    return result


def test_the_target_by_hand():
    """Player 0's target action has noise 0.8 N, at most 0.3; player 1's is a sample."""
    agents, learner = linear_team(mt.MATD3, target_noise=0.8, target_noise_clip=0.3)
    before: Any = [agent.learner_.export(0).arrays for agent in agents]
    batch = three_steps()
    normal = update_rng(agents[0]).standard_normal((3, 1), np.float32)
    noise = gumbel([update_rng(agents[1])], (3, 2))[0]
    metrics = learner.update(batch, learn=BOTH, batch_size=3)
    first, second = batch.members

    def out(i: int, obs: np.ndarray) -> np.ndarray:
        result: np.ndarray = obs @ before[i]["net/target_actor/head0.weight"] + before[i]["net/target_actor/head0.bias"]
        return result

    action = np.clip(np.tanh(out(0, first.next_obs[0])) + np.clip(0.8 * normal, -0.3, 0.3), -1, 1)
    choice = np.eye(2)[(out(1, second.next_obs[0]) + noise).argmax(-1)]
    following = np.concatenate([action * first.next_present[0][:, None], choice], 1)
    for i, rows in enumerate((first, second)):
        least = values(before[i], "target_critic", batch.next_state[0], following).min(0)
        error = values(before[i], "critic", batch.state[0], TAKEN) - (rows.reward[0] + rows.discount[0] * least)
        np.testing.assert_allclose(metrics["loss/critic"][i], (error**2 @ WEIGHT[i]).sum(), rtol=1e-5)


def test_the_target_networks_of_an_agent_that_no_longer_learns_follow_at_every_update():
    agents, learner = linear_team(mt.MATD3, tau=0.25, policy_delay=2)
    learner.update(three_steps(), learn=BOTH, batch_size=3)
    before = linear(agents[1])
    for _ in range(3):
        learner.update(three_steps(), learn=np.array([True, False]), batch_size=3)
    now = linear(agents[1])
    for name in ("actor", "critic"):
        for was, target, online in zip(before[f"target_{name}"], now[f"target_{name}"], now[name], strict=True):
            assert np.abs(was - online).max() > 1e-3
            np.testing.assert_allclose(target - online, 0.75**3 * (was - online), atol=1e-6)


def test_actors_and_targets_are_delayed():
    agents, learner = linear_team(mt.MATD3, policy_delay=3)
    seen = [agents[0].learner_.export(0).arrays]
    for _ in range(4):
        learner.update(three_steps(), learn=BOTH, batch_size=3)
        seen.append(agents[0].learner_.export(0).arrays)
    for name, expected in (("actor", [1, 0, 0, 1]), ("target_critic", [1, 0, 0, 1]), ("critic", [1] * 4)):
        key = f"net/{name}/head0.weight"
        moved = [bool((a[key] != b[key]).any()) for a, b in itertools.pairwise(seen)]
        assert moved == [bool(e) for e in expected], name
