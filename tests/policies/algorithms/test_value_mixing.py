"""Value mixing: which actions follow, who has a value, what is normalized by what."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import marltrain as mt
from marltrain.policies.backends import numpy_ops
from tests.policies.algorithms.mixing import BOTH, SPACES, WEIGHTS, array, linear, linear_team, two_steps


def first_errors(total: float, target: float) -> float:
    """Return the loss of `two_steps` whose first step has this value and target; the others are those of VDN."""
    return ((total - target) ** 2 + 4 + 4) / 3


@pytest.mark.parametrize(
    ("double", "legal", "following"),
    [
        (True, [1, 1, 1], 3 - 2),  # online, player 1 prefers action 2
        (True, [1, 1, 0], 3 + 0),  # of actions 0 and 1, its network prefers 0
        (False, [1, 1, 1], 4 + 6),  # the target networks choose: 1 and 1
        (False, [1, 0, 1], 4 + 0),  # of actions 0 and 2, the target network prefers 0
    ],
)
def test_next_actions_are_legal_and_chosen_by_the_online_networks_if_double(double, legal, following):
    _, learner = linear_team(mt.VDN, double=double)
    batch = two_steps()
    batch.members[1].next_legal = np.array([[legal, [1, 1, 1], [1, 1, 1]]], bool)
    third = 4 + 0.5 * (4 if double else 6)  # of the cut step: online, player 0 chooses 0; its target network 1
    metrics = learner.update(batch, learn=BOTH, batch_size=3)
    expected = ((9 - 2 - 0.5 * following) ** 2 + 4 + (4 - third) ** 2) / 3
    np.testing.assert_allclose(metrics["loss/total"], [expected] * 2, rtol=1e-6)


def test_a_truncated_step_bootstraps_and_a_terminated_one_does_not():
    """In the cut step, the next value of 4 counts; with discount 0 it does not: errors 6.5, 2 and 0."""
    _, learner = linear_team(mt.VDN)
    batch = two_steps()
    batch.discount[0, 2] = 0
    metrics = learner.update(batch, learn=BOTH, batch_size=3)
    np.testing.assert_allclose(metrics["loss/total"], [(42.25 + 4) / 3] * 2, rtol=1e-6)


def test_a_player_that_died_adds_nothing_to_the_next_value():
    """Player 1 dies in the first step while player 0 goes on: y = 2 + 0.5 * 3."""
    _, learner = linear_team(mt.VDN)
    batch = two_steps()
    batch.members[1].next_present[0, 0] = False
    metrics = learner.update(batch, learn=BOTH, batch_size=3)
    np.testing.assert_allclose(metrics["loss/total"], [first_errors(9, 3.5)] * 2, rtol=1e-6)


@pytest.mark.parametrize("kind", [mt.VDN, mt.QMIX])
def test_an_absent_player_gets_no_gradient_and_its_rows_are_not_read(kind):
    """Player 1 is absent from all steps; whatever stands in its rows, player 0 learns the same."""
    result = []
    for garbage in (3.0, -50.0):
        agents, learner = linear_team(kind)
        batch = two_steps()
        second: Any = batch.members[1]
        nobody = np.zeros((1, 3), bool)
        batch.members[1] = replace(second, obs=second.obs * 0 + garbage, next_obs=second.obs * garbage,
                                 present=nobody, next_present=nobody)  # fmt: skip
        learner.update(batch, learn=BOTH, batch_size=3)
        for now, was in zip(linear(agents[1]), WEIGHTS["q"][1], strict=True):
            np.testing.assert_array_equal(now, array(was))
        result.append(linear(agents[0])[0])
    np.testing.assert_array_equal(result[0], result[1])
    assert np.abs(result[0] - array(WEIGHTS["q"][0][0])).max() > 0.1


def test_the_steps_have_weights():
    """Without the first step, the loss is the mean of the errors 2 and -2, each squared."""
    _, learner = linear_team(mt.VDN)
    batch = two_steps()
    batch.weight[0, 0] = 0
    metrics = learner.update(batch, learn=BOTH, batch_size=3)
    np.testing.assert_allclose(metrics["loss/total"], [4, 4], rtol=1e-6)
    np.testing.assert_allclose(metrics["q_mean"], [2.5] * 2, rtol=1e-6)


def test_dueling_values_are_value_and_centered_advantage():
    agent: Any = mt.VDN(*SPACES[1], team_size=1, dueling=True, seed=0)
    value, advantage = np.array([[[3.0]]]), np.array([[[1.0, 2.0, 6.0]]])
    np.testing.assert_allclose(agent.algorithm.values(numpy_ops, (value, advantage)), [[[1, 2, 6]]])
    assert agent.algorithm.compiled_form() is None


def test_target_networks_follow_every_so_many_updates():
    agents, learner = linear_team(mt.QMIX, target_sync=2, learning_rate=1e-3)
    for update in (1, 2):
        learner.update(two_steps(), learn=BOTH, batch_size=3)
        team = learner.team.export(0)
        nets = [agent.learner_.export(0).arrays for agent in agents] + [team]
        for arrays, name in zip(nets, ("q", "q", "mixer"), strict=True):
            online = {key: a for key, a in arrays.items() if key.startswith(f"net/{name}/")}
            same = [np.array_equal(a, arrays[key.replace("net/", "net/target_")]) for key, a in online.items()]
            assert all(same) == (update == 2), (name, update)


@pytest.mark.parametrize("backend", ["torch", "tensorflow"])
def test_decisions_that_are_not_learned_from_are_in_the_mixture_without_a_gradient(backend):
    """Player 0 does not learn from step 0, player 1 not from step 1; see `test_vdn.test_target_and_gradients_by_hand`.

    Loss and values are the same. The slopes 13/3, 4/3 and -4/3 of Q_tot reach player 0 in steps 1 and 2, and player 1
    in step 0.
    """
    agents, learner = linear_team(mt.VDN, backend=backend)
    batch = two_steps()
    for rows, learned in zip(batch.members, ([[0, 1, 1]], [[1, 0, 1]]), strict=True):
        rows.learned = np.array(learned, bool)
        rows.weight *= rows.learned
    metrics = learner.update(batch, learn=BOTH, batch_size=3)
    np.testing.assert_allclose(metrics["loss/total"], [50.25 / 3] * 2, rtol=1e-6)
    np.testing.assert_allclose(metrics["q_mean"], [14 / 3] * 2, rtol=1e-6)
    gradients = ([[-8, 0], [-4, 4]], [-4, 4]), ([[0, 0, 13], [0, 0, 0], [0, 0, 13]], [0, 0, 13])
    for agent, before, gradient in zip(agents, WEIGHTS["q"], gradients, strict=True):
        for now, was, slope in zip(linear(agent), before, gradient, strict=True):
            np.testing.assert_allclose(now, array(was) - array(slope) / 3, atol=1e-5)


@pytest.mark.parametrize("kind", [mt.QMIX, mt.WQMIX])
def test_an_agent_that_learns_from_no_decision_changes_as_one_that_does_not_learn(kind):
    """The mixers and the other agent learn from all steps, as beside an agent whose mask is 0."""
    result = []
    for masked in (False, True):
        agents, learner = linear_team(kind, target_sync=1)
        batch = two_steps()
        if masked:
            batch.members[1].learned = np.zeros((1, 3), bool)
        learner.update(batch, learn=np.array([True, masked]), batch_size=3)
        result.append([agent.learner_.export(0).arrays for agent in agents])
    for one, other in zip(*result, strict=True):
        for name in (n for n in one if "net/" in n):
            np.testing.assert_allclose(one[name], other[name], atol=1e-6, err_msg=name)
    (q, before), now = WEIGHTS["q"], result[0]
    assert (now[0]["net/q/head0.weight"] != array(q[0])).any()
    assert (now[1]["net/q/head0.weight"] == array(before[0])).all()
