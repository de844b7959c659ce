"""WQMIX: weights, targets and gradients by hand, and the best joint action that QMIX cannot represent."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import marltrain as mt
from marltrain.core.errors import ConfigError
from tests.policies.algorithms.mixing import BOTH, SPACES, WEIGHTS, array, linear, linear_team, set_linear, two_steps
from tests.tiers import LONG
from tests.toys import Crowd
from tests.trainer.running import trainer

CENTRAL = {
    "central_q": (([[1, -1], [0, 3]], [0, 1]), ([[2, 0, 1], [1, 1, 0], [0, 4, 0]], [0, 0, 5])),
    "target_central_q": (([[2, -2], [0, 6]], [0, 1]), ([[4, 0, 2], [2, 2, 0], [0, 8, 0]], [0, 0, 5])),
}
"""Network -> weight and bias of both players' linear networks for Q*."""
FAR = 128.0
"""A bias, with which the sum of the players' values is above 0, where the mixers are linear."""


def summing_team(**settings: Any) -> tuple[list[Any], Any]:
    """Return a team with alpha 1/4, whose Q_tot is the sum of its values of `WEIGHTS`, and Q* of those of `CENTRAL`."""
    units = {"mixing_units": 1, "hyper_units": 1, "central_units": 1}
    agents, learner = linear_team(mt.WQMIX, alpha=0.25, **units, **settings)
    for i, agent in enumerate(agents):
        set_linear(agent, {name: weights[i] for name, weights in CENTRAL.items()})
    arrays = learner.team.export(0)
    for name in arrays:
        if name.startswith("net/"):
            arrays[name] = np.zeros_like(arrays[name])
    arrays["net/mixer/head0.bias"] = array([-1, 1, FAR, -1, -FAR])  # |W1|, b1, |w2|, V
    for net in ("net/central_mixer", "net/target_central_mixer"):
        arrays[f"{net}/hidden0.weight"] = array([[1], [1], [0], [0], [0], [0]])
        arrays |= {f"{net}/{layer}.weight": array([[1]]) for layer in ("hidden1", "hidden2", "head0")}
        arrays |= {f"{net}/hidden0.bias": array([FAR]), f"{net}/head0.bias": array([-FAR])}
    learner.team.load(0, arrays)
    return agents, learner


def losses(learner: Any, batch: Any) -> list[float]:
    """Return three times the losses of Q_tot and Q*, and the sum of the weights."""
    metrics = learner.update(batch, learn=BOTH, batch_size=3)
    return [3 * float(metrics[name][0]) for name in ("loss/q", "loss/central", "weight_mean")]


BY_HAND = [
    # the greedy joint action; another with y = -1 < Q*(u*) = 5; the greedy action of player 0, who is alone
    ("centralized", -1, [4.5**2 + 2**2 / 4 + 1, 2.5**2 + 6**2 + 3**2, 2.25]),
    ("optimistic", -1, [4.5**2 / 4 + 2**2 / 4 + 1, 2.5**2 + 6**2 + 3**2, 1.5]),  # only the third exceeds Q_tot
    ("centralized", 6, [4.5**2 + 5**2 + 1, 2.5**2 + 1 + 3**2, 3]),  # another with y = 6 > 5
    ("centralized", 4, [4.5**2 + 3**2 / 4 + 1, 2.5**2 + 1 + 3**2, 2.25]),  # 4 exceeds Q_tot = 1, and not 5
    ("optimistic", 4, [4.5**2 / 4 + 3**2 + 1, 2.5**2 + 1 + 3**2, 2.25]),
]


@pytest.mark.parametrize(
    ("weighting", "reward", "expected", "backend"),
    [*((*case, "torch") for case in BY_HAND), *((*case, "tensorflow") for case in (BY_HAND if LONG else BY_HAND[:1]))],
)
def test_weights_by_hand(weighting, reward, expected, backend):
    """Over the batch steps of `two_steps`, whose second has this reward.

    Q_tot is 9, 1 and 4 (see `test_vdn`); Q* is 1 + 6, 4 + 1 and 2, and of greedy joint actions 7, 0 + 5 and 2.
    y is 2 + (0 + 5) / 2 = 4.5, the reward, and 4 + 2 / 2 = 5: greedy by Q_tot's networks, valued by Q*'s target.
    """
    _, learner = summing_team(weighting=weighting, backend=backend)
    batch = two_steps()
    batch.reward[0, 1] = reward
    np.testing.assert_allclose(losses(learner, batch), expected, rtol=1e-5)


@pytest.mark.parametrize(("bound", "weights"), [((0, 1), 3), ((0,), 2.25), ((1,), 2.25)])
def test_the_greedy_joint_action_is_legal_and_of_all_players(bound, weights):
    """In the second step the chosen actions are greedy only for players for whom nothing else is legal."""
    _, learner = summing_team()
    batch = two_steps()
    for i in bound:
        rows, actions = batch.members[i], int(SPACES[i][1].n)
        rows.legal = np.ones((1, 3, actions), bool)
        rows.legal[0, 1] = np.arange(actions) == rows.action[0, 1]
    assert losses(learner, batch)[2] == pytest.approx(weights, rel=1e-6)


def test_an_absent_player_does_not_make_a_joint_action_another_one():
    """In the third step y = 0 + 2 / 2 is below Q*(u*) = 2; player 0 takes its best action, and player 1 is absent."""
    _, learner = summing_team()
    batch = two_steps()
    batch.reward[0, 2] = 0
    assert losses(learner, batch)[2] == pytest.approx(2.25, rel=1e-6)


def test_the_target_networks_choose_the_next_actions_unless_double():
    """They choose 1 and 1 in the first step and 1 in the third: y is 2 + (7 + 2) / 2 = 6.5, -1 and 4 + 5 / 2 = 6.5."""
    agents, learner = summing_team(double=False)
    assert losses(learner, two_steps())[1] == pytest.approx(0.5**2 + 6**2 + 4.5**2, rel=1e-5)
    assert "net/target_q/head0.weight" in agents[0].learner_.export(0).arrays


def test_gradients_by_hand():
    """By Q_tot 2/3 of the weighted errors: 3, 1/3 and -2/3; by Q* 2/3 of the errors 2.5, 6 and -3: 5/3, 4 and -2.

    Player 0 takes action 0 in the first and the third step, with observations [1 2] and [2 1], and 1 in the second.
    """
    agents, learner = summing_team()
    learner.update(two_steps(), learn=BOTH, batch_size=3)
    gradients = {
        "q": ([[3 - 4 / 3, 0], [6 - 2 / 3, 1 / 3]], [3 - 2 / 3, 1 / 3]),
        "central_q": ([[5 / 3 - 4, 0], [10 / 3 - 2, 4]], [5 / 3 - 2, 4]),
    }
    for name, gradient in gradients.items():
        before = {**WEIGHTS, **CENTRAL}[name][0]
        for now, was, slope in zip(linear(agents[0], name), before, gradient, strict=True):
            np.testing.assert_allclose(now, array(was) - array(slope), atol=1e-4, err_msg=name)


def test_values_of_a_recurrent_team_and_of_its_central_network():
    """The mixture learns from sequences, and Q* from observations; both change."""
    network = mt.GRU((3,), units=4, sequence_length=4)
    agents: list[Any] = mt.make_agents("wqmix", Crowd, seed=0, network=network, learning_starts=0, batch_size=8)
    plans = {name: net.plan for name, net in agents[0].learner_.weights.nets.items()}
    assert [bool(plans[name].cell) for name in ("q", "central_q")] == [True, False]
    before = agents[0].learner_.export(0).arrays
    trainer(Crowd, team_reward="sum", steps_per_train=90).train(agents, learning_mask=[1, 1, 1])
    after = agents[0].learner_.export(0).arrays
    for place in ("net/q/", "net/central_q/", "team/net/mixer/", "team/net/central_mixer/"):
        assert any((before[name] != array).any() for name, array in after.items() if name.startswith(place)), place


def test_settings_are_checked():
    given: dict[str, Any] = {"team_size": 2, "state_size": 4}
    with pytest.raises(ConfigError, match=r"weighting must be .*centralized.*optimistic"):
        mt.WQMIX(*SPACES[0], weighting="both", **given)
    with pytest.raises(ConfigError, match="alpha must be"):
        mt.WQMIX(*SPACES[0], alpha=0.0, **given)
