"""VDN: its mixed value, target and gradients by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

import marltrain as mt
from marltrain.core.errors import ConfigError, SpecError
from marltrain.policies.backends import make_backend
from marltrain.policies.learner.joint_learner import JointLearner
from marltrain.policies.memory import Storage, Streams
from marltrain.policies.networks.specs import MLP
from tests.policies.algorithms.mixing import BOTH, SPACES, WEIGHTS, array, linear, linear_team, set_linear, two_steps
from tests.policies.memory.worlds import Script, one_group


@pytest.mark.parametrize("backend", ["torch", "tensorflow"])
def test_the_mixed_value_is_the_sum_of_the_chosen_ones(backend):
    (agent, _), _ = linear_team(mt.VDN)
    result = make_backend(backend, "cpu")
    values = np.random.default_rng(0).standard_normal((1, 4, 5)).astype(np.float32)
    total = agent.algorithm.mixed(result.ops, None, result.tensor(values), target=False)
    np.testing.assert_allclose(result.numpy(total), values.sum(-1), atol=1e-6)


@pytest.mark.parametrize("backend", ["torch", "tensorflow"])
def test_target_and_gradients_by_hand(backend):
    """The values of both players, over the batch steps of `two_steps`.

    Chosen: 0: [1 2] W = (5, -1), so 5; [1 0 1] W + b = (0, 1, 4), so 4; Q_tot = 9.
            1: (2, 0), so 0; (1, 0, 3), so 1; Q_tot = 1.   2: (4, 0), so 4, and player 1 is absent; Q_tot = 4.
    Next:   0: online (2, 0) and (1, 0, 3) choose 0 and 2; the target networks give 3 and -2; y = 2 + 0.5 * 1 = 2.5.
            1: y = -1.   2: cut: online (3, 0) chooses 0, target 4; y = 4 + 0.5 * 4 = 6.
    Errors: 6.5, 2, -2; the loss is (42.25 + 4 + 4) / 3; its gradients by Q_tot are 2/3 of the errors: 13/3, 4/3, -4/3.
    """
    agents, learner = linear_team(mt.VDN, backend=backend)
    metrics = learner.update(two_steps(), learn=BOTH, batch_size=3)
    np.testing.assert_allclose(metrics["loss/total"], [50.25 / 3] * 2, rtol=1e-6)
    np.testing.assert_allclose(metrics["q_mean"], [14 / 3] * 2, rtol=1e-6)
    gradients = [
        # action 0 in steps 0 and 2, 1 in step 1
        ([[13 - 8, 0], [26 - 4, 4]], [13 - 4, 4]),
        # action 2 in step 0, 0 in step 1; step 2 gives no gradient
        ([[0, 0, 13], [4, 0, 0], [0, 0, 13]], [4, 0, 13]),
    ]
    for agent, before, gradient in zip(agents, WEIGHTS["q"], gradients, strict=True):
        for now, was, slope in zip(linear(agent), before, gradient, strict=True):
            np.testing.assert_allclose(now, array(was) - array(slope) / 3, atol=1e-5)
    norms = [np.sqrt(sum(np.square(array(part)).sum() for part in each)) / 3 for each in gradients]
    np.testing.assert_allclose(metrics["grad_norm/q"], norms, rtol=1e-5)


def test_the_gradient_of_the_team_is_clipped_as_one():
    free, learner = linear_team(mt.VDN)
    learner.update(two_steps(), learn=BOTH, batch_size=3)
    bound, learner = linear_team(mt.VDN, max_grad_norm=1.0)
    metrics = learner.update(two_steps(), learn=BOTH, batch_size=3)
    norm = np.sqrt(np.square(metrics["grad_norm/q"]).sum())
    for agent, other, before in zip(free, bound, WEIGHTS["q"], strict=True):
        for far, near, was in zip(linear(agent), linear(other), before, strict=True):
            np.testing.assert_allclose(near - array(was), (far - array(was)) / norm, atol=1e-5)


def test_vdn_needs_discrete_actions_and_the_size_of_the_team():
    with pytest.raises(SpecError, match="VDN needs a Discrete action space"):
        mt.VDN(SPACES[0][0], spaces.Box(-1, 1, (2,), np.float32), team_size=2)
    with pytest.raises(ConfigError, match=r"vdn: agents learn together in a team, .*make_agents\('vdn', env\)"):
        mt.VDN(*SPACES[0])


@pytest.mark.parametrize(("backend", "n_step", "error"), [("torch", 1, 3), ("torch", 2, 2.25), ("tensorflow", 2, 2.25)])
def test_from_the_steps_of_a_game_to_the_gradients_by_hand(backend, n_step, error):
    """Both players act at step 0, with which player 1 dies; player 0 acts at step 1, after which a limit ends the game.

    Observations are (v, -v): of player 0 with v = 1 and 2, at the end 3; of player 1 with v = 4.
    Chosen: 0: v (1, -1, 1) + (0, 0, 1/2), so 1, and v (1, 1, 0) + (0, 1, 0), so 4; Q_tot = 5.  1: -2.
    Next: the online network prefers action 2, whose target value is v: y = 1 + 0.5 * 2 = 2, and 2 + 0.5 * 3 = 3.5.
    With sums of two rewards, the first y is 1 + 0.5 * 2 + 0.25 * 3 = 2.75.
    Errors: 3 (or 2.25) and -5.5, which are the gradients by Q_tot, too, because the loss is the mean over two steps.
    """
    given: dict[str, Any] = {"network": MLP(()), "optimizer": "sgd", "learning_rate": 1.0, "max_grad_norm": None}
    spec, legal = one_group("ab"), [True] * 3
    given |= {"backend": backend, "n_step": n_step, "team_size": 2}
    agents: list[Any] = [mt.VDN(SPACES[0][0], spaces.Discrete(3), seed=i, **given) for i in range(2)]
    before = ([[1, 0, 2], [0, 1, 1]], [0, 0, 0.5]), ([[1, 1, 0], [0, 0, 0]], [0, 1, 0])
    target = [[0, 1, 0], [0, 0, -1]], [0, 0, 0]
    for agent, weights in zip(agents, before, strict=True):
        set_linear(agent, {"q": weights, "target_q": target})
    learner = JointLearner([agent.learner_ for agent in agents], [1, 1], [0, 1])
    streams, script = Streams(spec, 1, {0: Storage(5)}), Script(spec)
    ends = {0: ("truncated", 3, legal)}
    steps = [
        ({0: (1, legal), 1: (4, legal)}, (0, 0), {}, False),
        ({0: (2, legal)}, (1, 1), {1: ("terminated", 9, legal)}, False),
        ({0: (7, legal), 1: (8, legal)}, (2, -5), ends, True),
    ]
    for time, (seen, reward, ended_parts, ended) in enumerate(steps):
        streams.record_step(script.show(seen, reward, ended_parts, ended=ended))
        streams.record_actions(0, np.full((2, 1), time), {})
    reader: Any = learner.reader(streams, [[0], [1]])
    reader._draw = lambda rng, count: (np.arange(2), np.zeros(2, int))
    metrics = learner.update(
        reader.sample([np.random.default_rng(0)] * 2, np.full(2, 0.5), 2), learn=BOTH, batch_size=2
    )
    np.testing.assert_allclose(metrics["loss/total"], [(error**2 + 30.25) / 2] * 2, rtol=1e-6)
    first = [[error, -11, 0], [-error, 11, 0]], [error, -5.5, 0]
    gradients = first, ([[4 * error, 0, 0], [-4 * error, 0, 0]], [error, 0, 0])
    for agent, was, slopes in zip(agents, before, gradients, strict=True):
        for now, old, slope in zip(linear(agent), was, slopes, strict=True):
            np.testing.assert_allclose(now, array(old) - array(slope), atol=1e-5)
