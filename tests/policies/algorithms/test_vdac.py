"""VDAC: the value of the team, its advantages and gradients by hand; in stacks, both frameworks, wrong input."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

import marltrain as mt
from marltrain.core.errors import ConfigError
from marltrain.policies.algorithms.mixer import MIXER
from marltrain.policies.algorithms.returns import gae
from marltrain.policies.backends import numpy_ops
from marltrain.policies.batches.batch import TeamRollout
from marltrain.policies.learner.joint_learner import JointLearner
from marltrain.policies.networks.specs import MLP
from tests.policies.algorithms.mixing import BOTH, SPACES, array, linear, set_linear, two_steps
from tests.policies.learner.test_joint_learner import apart, batches, exported, looped, stacked
from tests.policies.some_batches import VECTOR, some_team

CRITICS = (([[1], [2]], [0.5]), ([[2], [-1], [1]], [2]))
"""V_0 is 5.5, 2.5 and 4.5 in the batch steps of `two_steps`, V_1 5 and 1; after the cut step, V_0 is 3.5."""
ALL, ROWS, IN_STACKS = np.ones(4, bool), 7, [0, 2, 1, 3]
BOX = spaces.Box(np.array([-2, 0], np.float32), np.array([2, 6], np.float32))


def linear_team(**settings: Any) -> tuple[list[Any], JointLearner]:
    """Return two agents with uniform policies and linear critics, and their learner: gradient descent with rate 1."""
    given: dict[str, Any] = {"network": MLP(()), "optimizer": "sgd", "learning_rate": 1.0, "max_grad_norm": None,
                             "mixing": "sum", "team_size": 2, **settings}  # fmt: skip
    agents = [mt.VDAC(*SPACES[i], seed=i, **given) for i in range(2)]
    for i, agent in enumerate(agents):
        uniform = np.zeros((2 + i, 2 + i)), np.zeros(2 + i)
        set_linear(agent, {"critic": CRITICS[i], "actor": uniform})
    return agents, JointLearner([agent.learner_ for agent in agents], [1, 1], [0, 1])


def rollout() -> Any:
    """Return the batch steps of `two_steps`, of which the second follows the first."""
    return TeamRollout(**vars(two_steps()), cut=np.array([[False, True, True]]))


@pytest.mark.parametrize("backend", ["torch", "tensorflow"])
def test_advantages_and_gradients_by_hand(backend):
    """V_tot is 10.5, 3.5 and 4.5 (player 1 is absent); the rewards are 2, -1 and 4, the discounts 0.5, 0 and 0.5.

    Targets: 2 + 0.5 * -1 = 1.5; -1; 4 + 0.5 * 3.5 = 5.75, from the end of the cut step. Advantages: -9, -4.5, 1.25.
    """
    agents, learner = linear_team(backend=backend)
    metrics = learner.update(rollout(), learn=BOTH, batch_size=3)
    np.testing.assert_allclose(metrics["loss/critic"], [(81 + 20.25 + 1.5625) / 3] * 2, rtol=1e-6)
    np.testing.assert_allclose(metrics["value_mean"], [18.5 / 3] * 2, rtol=1e-6)
    np.testing.assert_allclose(metrics["return_mean"], [6.25 / 3] * 2, rtol=1e-6)
    np.testing.assert_allclose(metrics["entropy"], np.log([2, 3]), rtol=1e-6)
    actors = [np.log(2) * -12.25 / 3, np.log(3) * -13.5 / 2]
    np.testing.assert_allclose(metrics["loss/actor"], actors, rtol=1e-6)
    # by V_tot 18/3, 9/3 and -2.5/3
    critics = [([[18 - 5], [36 + 9 - 2.5]], [24.5]), ([[18], [9], [18]], [27])]
    # by the logits: -A (chosen - policy) / rows
    logits = array([[4.5, -4.5], [-2.25, 2.25], [-0.625, 0.625]]) / 3, array([[-3, -3, 6], [3, -1.5, -1.5]]) / 2
    for agent, before, slopes, by_logits, rows in zip(agents, CRITICS, critics, logits, rollout().members, strict=True):
        for now, was, slope in zip(linear(agent, "critic"), before, slopes, strict=True):
            np.testing.assert_allclose(now, array(was) - array(slope) / 3, atol=1e-5)
        weight, bias = linear(agent, "actor")
        np.testing.assert_allclose(weight, -rows.obs[0, : len(by_logits)].T @ by_logits, atol=1e-5)
        np.testing.assert_allclose(bias, -by_logits.sum(0), atol=1e-5)


def test_with_lambda_0_advantages_are_those_of_one_step():
    """2 + 0.5 * 3.5 - 10.5 = -6.75 in place of -9."""
    metrics = linear_team(gae_lambda=0.0)[1].update(rollout(), learn=BOTH, batch_size=3)
    np.testing.assert_allclose(metrics["loss/critic"], [(6.75**2 + 20.25 + 1.5625) / 3] * 2, rtol=1e-6)


def test_after_a_players_death_its_rows_weigh_nothing_and_the_team_goes_on():
    """Player 1 dies in the first step: V_tot of the second is 2.5, its advantage -3.5, and that of the first -9.

    Its actor learns from the first step alone.
    """
    agents, learner = linear_team()
    batch = rollout()
    second: Any = batch.members[1]
    second.next_present[0, 0] = second.present[0, 1] = False
    second.weight[0, 1] = 0
    metrics = learner.update(batch, learn=BOTH, batch_size=3)
    np.testing.assert_allclose(metrics["loss/critic"], [(81 + 12.25 + 1.5625) / 3] * 2, rtol=1e-6)
    np.testing.assert_allclose(metrics["loss/actor"][1], np.log(3) * -9, rtol=1e-6)
    np.testing.assert_allclose(linear(agents[1], "actor")[1], [3, 3, -6], atol=1e-5)


def test_an_absent_player_gets_no_gradient_and_its_rows_are_not_read():
    result = []
    for garbage in (3.0, -50.0):
        agents, learner = linear_team()
        batch = rollout()
        nobody, second = np.zeros((1, 3), bool), batch.members[1]
        batch.members[1] = replace(second, obs=second.obs * 0 + garbage, next_obs=second.obs * garbage,
                                 weight=nobody.astype(np.float32), present=nobody, next_present=nobody)  # fmt: skip
        learner.update(batch, learn=BOTH, batch_size=3)
        assert not any(member.any() for member in linear(agents[1], "actor"))
        for now, was in zip(linear(agents[1], "critic"), CRITICS[1], strict=True):
            np.testing.assert_array_equal(now, array(was))
        result.append(linear(agents[0], "critic")[0])
    np.testing.assert_array_equal(result[0], result[1])


@pytest.mark.parametrize("backend", ["torch", "tensorflow"])
def test_a_decision_that_is_not_learned_from_is_in_the_value_of_the_team_without_a_gradient(backend):
    """Of player 1 in step 0; see `test_advantages_and_gradients_by_hand`: its critic keeps the slope 9/3 of step 1.

    Its actor learns from step 1 alone, with the advantage -4.5.
    """
    agents, learner = linear_team(backend=backend)
    batch = rollout()
    batch.members[1].learned, batch.members[1].weight[0, 0] = np.array([[0, 1, 1]], bool), 0
    learner.update(batch, learn=BOTH, batch_size=3)
    weight, bias = linear(agents[1], "critic")
    np.testing.assert_allclose(weight, array(CRITICS[1][0]) - [[0], [3], [0]], atol=1e-5)
    np.testing.assert_allclose(bias, array(CRITICS[1][1]) - 3, atol=1e-5)
    np.testing.assert_allclose(linear(agents[1], "actor")[1], [-3, 1.5, 1.5], atol=1e-5)
    np.testing.assert_allclose(
        linear(agents[0], "critic")[0], array(CRITICS[0][0]) - array([[13], [42.5]]) / 3, atol=1e-5
    )


def test_values_are_mixed_at_the_states_and_next_states():
    """The critic's loss is the mean squared advantage, of values of the mixer over numpy."""
    agents, learner = linear_team(mixing="mix", state_size=4, gae_lambda=0.7)
    net, batch = learner.team.nets[MIXER].in_numpy(), rollout()
    mixed = agents[0].algorithm.mixer.mixed
    value = mixed(numpy_ops, net, array([[[5.5, 5], [2.5, 1], [4.5, 0]]]), batch.state)
    following = mixed(numpy_ops, net, array([[[2.5, 1], [0, 0], [3.5, 0]]]), batch.next_state)
    advantage = gae(batch.reward, batch.discount, value, following, batch.cut, np.array([0.7]))
    metrics = learner.update(batch, learn=BOTH, batch_size=3)
    np.testing.assert_allclose(metrics["loss/critic"], [np.square(advantage).mean()] * 2, rtol=1e-5)


def agents(**more: Any) -> list[Any]:
    """Four players of two kinds that alternate: Discrete and Box actions."""
    own = {"network": mt.MLP((5,)), "team_size": 4, "state_size": 3, "learning_rate": 0.01, "max_grad_norm": 0.3,
           "mixing_units": 4, "hyper_units": 6, "gae_lambda": 0.8, **more}  # fmt: skip
    kinds = [spaces.Discrete(3), BOX] * 2
    return [mt.VDAC(VECTOR, space, seed=i, **own) for i, space in enumerate(kinds)]


def test_a_team_in_stacks_learns_as_one_agent_by_agent():
    """All weights and moments after four updates; one agent does not learn."""
    learn = np.array([1, 0, 1, 1], bool)
    together, alone = stacked(agents()), looped(agents())
    before = exported(alone)
    for batch in batches(together, 4):
        in_stacks = together.update(batch, learn=learn[IN_STACKS], batch_size=ROWS)
        one_by_one = alone.update(apart(batch), learn=learn, batch_size=ROWS)
    for got, expected in zip([exported(together)[i] for i in IN_STACKS], exported(alone), strict=True):
        for name in got:
            np.testing.assert_allclose(got[name], expected[name], atol=3e-6, err_msg=name)
    for name, values in one_by_one.items():
        np.testing.assert_allclose(in_stacks[name][IN_STACKS], values, atol=1e-5, err_msg=name)
    changed = [
        [any((a[key] != b[key]).any() for key in a if key.startswith(f"net/{name}/")) for name in ("actor", "critic")]
        for a, b in zip(before, exported(alone), strict=True)
    ]
    assert changed == [[on] * 2 for on in learn.tolist()]


def test_both_frameworks_learn_the_same():
    teams = [stacked(agents(backend=backend)) for backend in ("torch", "tensorflow")]
    for batch in batches(teams[0], 3):
        measured = [team.update(batch, learn=ALL, batch_size=ROWS) for team in teams]
    for name, values in measured[0].items():
        np.testing.assert_allclose(values, measured[1][name], atol=2e-5, err_msg=name)
    for ours, theirs in zip(*map(exported, teams), strict=True):
        for name in ours:
            np.testing.assert_allclose(ours[name], theirs[name], atol=2e-5, err_msg=name)


def test_a_shared_agent_has_the_advantage_of_the_team_in_all_its_seats():
    """One agent in both seats is an agent with the mean of the gradients of both actors."""
    first, second = agents(optimizer="sgd", max_grad_norm=None, team_size=2)[::2]
    second.restore(first.state())
    shared = JointLearner([first.frozen_copy().learner_], [2], [0, 1])
    pair = JointLearner([first.learner_, second.learner_], [1, 1], [0, 1])
    start = first.learner_.export(0).arrays
    batch = some_team(np.random.default_rng(1), shared.members, [2], ROWS)
    batch.members[0].weight[...] = 1
    halves = [slice(None, ROWS), slice(ROWS, None)]
    members = [
        replace(batch.members[0], **{name: _picked(value, half) for name, value in vars(batch.members[0]).items()})
        for half in halves
    ]
    shared.update(batch, learn=np.ones(1, bool), batch_size=ROWS)
    pair.update(replace(batch, members=members), learn=np.ones(2, bool), batch_size=ROWS)
    (joined,), (one, other) = exported(shared), exported(pair)
    for name in (n for n in joined if n.startswith("net/actor/")):
        moved = (one[name] - start[name]) + (other[name] - start[name])
        np.testing.assert_allclose(joined[name], start[name] + moved / 2, atol=1e-6, err_msg=name)


def _picked(value: Any, half: slice) -> Any:
    if isinstance(value, dict):
        return {name: column[:, half] for name, column in value.items()}
    return None if value is None else value[:, half]


@pytest.mark.parametrize(
    ("settings", "told"),
    [({"mixing": "sum", "mixing_units": 8}, r"mixing_units=8 has no effect with mixing='sum'"),
     ({"mixing": "summ"}, r"mixing must be one of mix, sum, got 'summ'"),
     ({}, r"vdac: the team reads a global state, .*state_size= does"),
     ({"network": mt.GRU((4,)), "mixing": "sum"}, r"vdac: .*recurrent"),
     ({"minibatches": 2}, "VDAC has no setting 'minibatches'")],
)  # fmt: skip
def test_wrong_settings(settings, told):
    with pytest.raises(ConfigError, match=told):
        mt.VDAC(*SPACES[0], team_size=2, **settings)
