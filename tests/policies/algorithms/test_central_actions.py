"""Critics of the actions of all players: in stacks and one by one, in both frameworks, absent players, wrong input."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

import marltrain as mt
from marltrain.core.errors import AgentError, ConfigError, SpecError
from marltrain.policies.learner.joint_learner import JointLearner
from marltrain.policies.learner.phase_draws import PhaseDraws
from tests.policies.learner.test_joint_learner import apart, batches, exported, looped, picked, stacked
from tests.policies.some_batches import VECTOR, some_team
from tests.tiers import LONG

BOX = spaces.Box(np.array([-2, 0], np.float32), np.array([2, 6], np.float32))
SPACES = (spaces.Discrete(3), BOX, spaces.Discrete(3), BOX)
"""Action spaces of four players in order: two kinds that alternate."""
ALL, ROWS, IN_STACKS = np.ones(4, bool), 7, [0, 2, 1, 3]
KINDS = (mt.MADDPG, mt.MATD3, mt.MASAC)


def agents(kind: Any, count: int = 4, **more: Any) -> list[Any]:
    size = sum(3 if isinstance(space, spaces.Discrete) else 2 for space in SPACES[:count])
    own = {"network": mt.MLP((5,)), "team_size": count, "state_size": 3, "joint_action_size": size, "tau": 0.3,
           "learning_rate": 0.01, "weight_decay": 0.1, "max_grad_norm": 0.3, **more}  # fmt: skip
    return [kind(VECTOR, space, seed=i, **own) for i, space in enumerate(SPACES[:count])]


@pytest.mark.parametrize("kind", KINDS)
def test_a_team_in_stacks_learns_as_one_agent_by_agent(kind):
    """All weights, targets and moments of two kinds of agents, of which one does not learn, after four updates."""
    learn = np.array([1, 0, 1, 1], bool)
    together, alone = stacked(agents(kind)), looped(agents(kind))
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


@pytest.mark.parametrize("kind", KINDS if LONG else KINDS[1:])  # MADDPG is in test_registry
def test_both_frameworks_learn_the_same(kind):
    teams = [stacked(agents(kind, backend=backend)) for backend in ("torch", "tensorflow")]
    for batch in batches(teams[0], 3):
        for team in teams:
            team.update(batch, learn=ALL, batch_size=ROWS)
    for ours, theirs in zip(*map(exported, teams), strict=True):
        for name in ours:
            np.testing.assert_allclose(ours[name], theirs[name], atol=2e-5, err_msg=name)


@pytest.mark.parametrize("kind", [mt.MADDPG, mt.MATD3])
def test_an_agent_learns_from_the_target_actions_of_others_but_not_through_their_actors(kind):
    """The other's actor changes nothing of an agent; the network of its next actions does."""
    result = {}
    for touched in (None, "actor", "target_actor"):
        one, two = agents(kind, 2)
        state = two.learner_.export(0)
        if touched is not None:
            state.arrays[f"net/{touched}/head0.weight"] *= -30
        two.learner_.load(0, state)
        learner = JointLearner([one.learner_, two.learner_], [1, 1], [0, 1])
        batch = some_team(np.random.default_rng(1), learner.members, [1, 1], ROWS)
        batch.members[1].next_present[:] = True
        learner.update(batch, learn=ALL[:2], batch_size=ROWS)
        result[touched] = one.learner_.export(0).arrays
    for touched, same in (("actor", True), ("target_actor", False)):
        equal = [np.array_equal(result[touched][name], array) for name, array in result[None].items()]
        assert all(equal) == same, touched


@pytest.mark.parametrize("kind", KINDS)
def test_an_absent_player_is_not_read_and_its_agent_does_not_learn(kind):
    """Whatever stands in the rows of player 1, which is absent from all steps."""
    result = []
    for garbage in (0, 1):
        pair = agents(kind, 2, weight_decay=0.0)
        start = pair[1].learner_.export(0).arrays
        learner = JointLearner([agent.learner_ for agent in pair], [1, 1], [0, 1])
        batch = some_team(np.random.default_rng(1), learner.members, [1, 1], ROWS)
        rows: Any = batch.members[1]
        nobody = np.zeros((1, ROWS), bool)
        batch.members[1] = replace(rows, obs=rows.obs + garbage, next_obs=rows.next_obs - garbage, weight=nobody * 1.0,
                                 action=rows.action * garbage, present=nobody, next_present=nobody)  # fmt: skip
        learner.update(batch, learn=ALL[:2], batch_size=ROWS)
        end = pair[1].learner_.export(0).arrays
        assert all((end[name] == start[name]).all() for name in start if name.startswith("net/"))
        result.append(pair[0].learner_.export(0).arrays)
    assert all((result[0][name] == result[1][name]).all() for name in result[0])


def test_a_loss_that_is_not_finite_stops_only_its_agent():
    team = stacked(agents(mt.MADDPG))
    (batch,) = batches(team, 1)
    for member in batch.members:
        member.weight[:] = 1
    batch.members[0].reward[1, 2] = np.inf
    before = exported(team)
    measured = team.update(batch, learn=ALL, batch_size=ROWS)
    assert np.isnan(measured["grad_norm/critic"]).tolist() == [False, True, False, False]
    for i, (old, new) in enumerate(zip(before, exported(team), strict=True)):
        same = all((old[name] == new[name]).all() for name in old if name.startswith("net/critic/"))
        assert same == (i == 1)


def test_the_gradient_of_each_agent_is_clipped_by_its_own_norm():
    team = stacked(agents(mt.MADDPG, max_grad_norm=0.01))
    measured = team.update(batches(team, 1)[0], learn=ALL, batch_size=ROWS)
    np.testing.assert_allclose(measured["grad_norm_clipped/critic"], [0.01] * 4, rtol=1e-3)


def test_a_shared_agent_is_an_agent_with_the_mean_of_the_gradients_of_its_seats():
    given: dict[str, Any] = {"optimizer": "sgd", "max_grad_norm": None, "weight_decay": 0.0, "straight_through": False}
    first, _, second, _ = agents(mt.MADDPG, **given, team_size=2, joint_action_size=6)
    second.restore(first.state())
    shared = JointLearner([first.frozen_copy().learner_], [2], [0, 1])
    pair = JointLearner([first.learner_, second.learner_], [1, 1], [0, 1])
    start = first.learner_.export(0).arrays
    batch = some_team(np.random.default_rng(1), shared.members, [2], ROWS)
    batch.members[0].weight[:] = 1
    members = [picked(batch.members[0], np.s_[:, half]) for half in (slice(None, ROWS), slice(ROWS, None))]
    generators: Any = [Same(), Same()]
    for learner in (shared, pair):
        for member in learner.members:
            member.draws = PhaseDraws(member.algorithm.phases, generators[: member.num_agents])
    shared.update(batch, learn=np.ones(1, bool), batch_size=ROWS)
    pair.update(replace(batch, members=members), learn=np.ones(2, bool), batch_size=ROWS)
    (joined,), (one, other) = exported(shared), exported(pair)
    for name in (n for n in joined if n.startswith("net/critic/")):
        moved = 0.5 * (one[name] - start[name]) + 0.5 * (other[name] - start[name])
        np.testing.assert_allclose(joined[name], start[name] + moved, atol=1e-6, err_msg=name)


class Same:
    """A generator of equal numbers."""

    def random(self, dtype: Any, out: np.ndarray) -> None:
        out[...] = 0.5


def test_wrong_input_is_refused():
    with pytest.raises(ConfigError, match=r"make_agents\('maddpg', env\) gives it, or joint_action_size= does"):
        mt.MADDPG(VECTOR, BOX, team_size=2, state_size=3)
    with pytest.raises(ConfigError, match=r"make_agents\('masac', env\) gives it, or state_size= does"):
        mt.MASAC(VECTOR, BOX, team_size=2, joint_action_size=4)
    sizes: Any = {"team_size": 1, "state_size": 3, "joint_action_size": 2}
    with pytest.raises(SpecError, match=r"MADDPG needs two finite bounds"):
        mt.MADDPG(VECTOR, spaces.Box(-np.inf, np.inf, (2,)), **sizes)
    with pytest.raises(SpecError, match=r"MASAC needs a Box or Discrete action space"):
        mt.MASAC(VECTOR, spaces.MultiDiscrete([2, 3]), **sizes)
    one, two = agents(mt.MATD3, 2)
    other = agents(mt.MATD3, 2, policy_delay=3)[1]
    with pytest.raises(AgentError, match=r"matd3 team are trained in equal phases"):
        JointLearner([one.learner_, other.learner_], [1, 1], [0, 1])
    with pytest.raises(AgentError, match=r"joint_action_size"):
        JointLearner([agents(mt.MATD3, 1)[0].learner_, two.learner_], [1, 1], [0, 1])
