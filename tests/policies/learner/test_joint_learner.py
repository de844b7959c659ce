"""Teams that learn together: agents in one stack or in learners of their own, both frameworks, and their limits."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

import marltrain as mt
from marltrain.core.errors import AgentError, ConfigError
from marltrain.core.layout import map_tree
from marltrain.policies.batches.batch import TeamBatch
from marltrain.policies.learner.joint_learner import JointLearner
from tests.policies.some_batches import VECTOR, some_team
from tests.tiers import LONG

PLACES = (("a", 3), ("b", 2), ("c", 3), ("d", 2))
"""Players in order, with their numbers of actions: two kinds that alternate."""
ALL, ROWS = np.ones(4, bool), 7


def agents(algo: Any = mt.QMIX, **more: Any) -> list[Any]:
    sizes = {"state_size": 3, "mixing_units": 4, "hyper_units": 6} if algo is not mt.VDN else {}
    own = {"network": mt.MLP((5,)), "team_size": 4, "learning_rate": 0.01, "target_sync": 2, **sizes, **more}
    return [algo(VECTOR, spaces.Discrete(n), seed=i, **own) for i, (_, n) in enumerate(PLACES)]


def stacked(agents: list[Any]) -> JointLearner:
    """Return the learner of the team with a stack for each kind of agents: a and c, b and d."""
    members = []
    for held in ((0, 2), (1, 3)):
        first = agents[held[0]]
        member = type(first.learner_)(first.algorithm, first.backend, [agents[i].seed for i in held], draw=False)
        for row, i in enumerate(held):
            member.load(row, agents[i].learner_.export(0))
        members.append(member)
    return JointLearner(members, [1, 1], [0, 2, 1, 3])


def looped(agents: list[Any]) -> JointLearner:
    """Return the learner of the team in which every agent has a learner of its own."""
    return JointLearner([agent.learner_ for agent in agents], [1] * 4, range(4))


def batches(learner: JointLearner, count: int) -> list[TeamBatch]:
    rng = np.random.default_rng(4)
    return [some_team(rng, learner.members, [1] * len(learner.members), ROWS) for _ in range(count)]


def apart(batch: TeamBatch) -> TeamBatch:
    """Return a batch of two stacks, (a, c) and (b, d), as one of four agents in order."""
    rows = [picked(batch.members[member], np.s_[row : row + 1]) for member, row in ((0, 0), (1, 0), (0, 1), (1, 1))]
    return replace(batch, members=rows)


def picked(rows: Any, index: Any) -> Any:
    """Return the columns of rows at an index."""
    return replace(rows, **{f.name: map_tree(lambda x: x[index], getattr(rows, f.name)) for f in fields(rows)})


def exported(learner: JointLearner) -> list[dict[str, np.ndarray]]:
    """Return the arrays of each agent, in the order of the learner."""
    return [member.export(row).arrays for member in learner.members for row in range(member.num_agents)]


TEAMS = [(mt.VDN, ALL), (mt.QMIX, ALL), (mt.QMIX, np.array([1, 0, 1, 1], bool))]


@pytest.mark.parametrize(
    ("algo", "learn", "backend"),
    [*((*team, "torch") for team in TEAMS), (mt.WQMIX, ALL, "torch"),
     *((*team, "tensorflow") for team in (TEAMS if LONG else TEAMS[2:]))],
)  # fmt: skip
def test_a_team_in_stacks_learns_as_one_agent_by_agent(algo, learn, backend):
    """All weights, targets and moments of two kinds of agents that alternate among the players, after five updates."""
    given = {"backend": backend, "weight_decay": 0.1, "max_grad_norm": 0.7}
    together, alone = stacked(agents(algo, **given)), looped(agents(algo, **given))
    before = exported(alone)
    for batch in batches(together, 5):
        in_stacks = together.update(batch, learn=learn[[0, 2, 1, 3]], batch_size=ROWS)
        one_by_one = alone.update(apart(batch), learn=learn, batch_size=ROWS)
    for got, expected in zip([exported(together)[i] for i in (0, 2, 1, 3)], exported(alone), strict=True):
        assert got.keys() == expected.keys()
        for name in got:
            np.testing.assert_allclose(got[name], expected[name], atol=2e-6, err_msg=name)
    assert in_stacks.keys() == one_by_one.keys() >= {"loss/total", "q_mean", "grad_norm/q", "epsilon"}
    for name, values in one_by_one.items():
        np.testing.assert_allclose(in_stacks[name][[0, 2, 1, 3]], values, atol=1e-5, err_msg=name)
    changed = [any((a[name] != b[name]).any() for name in a if name.startswith(("net/q/", "optimizer/q/")))
               for a, b in zip(before, exported(alone), strict=True)]  # fmt: skip
    assert changed == learn.tolist()
    assert together.gradient_steps.tolist() == (5 * learn[[0, 2, 1, 3]]).tolist()


def test_agents_without_rows_do_not_change_and_the_team_follows_the_agent_with_most_updates():
    """target_sync=2: the mixer is copied at the second and fourth update of the agents that have rows."""
    team = looped(agents(max_grad_norm=None))
    (first, *later), copies = batches(team, 5), []
    team.update(first, learn=ALL, batch_size=ROWS)
    absent = exported(team)[1]
    for batch in later[:3]:
        batch.members[1] = replace(batch.members[1], weight=np.zeros_like(batch.members[1].weight))
        before = team.backend.numpy(team.team.target["mixer"].flat).copy()
        team.update(batch, learn=ALL, batch_size=ROWS)
        copies.append(bool((before != team.backend.numpy(team.team.target["mixer"].flat)).any()))
    assert copies == [True, False, True]
    assert team.gradient_steps.tolist() == [4, 1, 4, 4]
    got = exported(team)[1]
    assert all(np.array_equal(got[name], value) for name, value in absent.items() if not name.startswith("team"))


FOLLOWING = [
    (mt.VDN, {"tau": 0.25}, 0.75**5), (mt.QMIX, {"target_sync": 6}, 0.0), (mt.QMIX, {"target_sync": 9}, 1.0),
    (mt.WQMIX, {"tau": 0.25}, 0.75**5),
]  # fmt: skip


@pytest.mark.parametrize(
    ("algo", "settings", "left", "backend"),
    [
        *((*case, "torch") for case in FOLLOWING),
        *((*case, "tensorflow") for case in (FOLLOWING if LONG else FOLLOWING[:1])),
    ],
)
def test_the_target_networks_of_an_agent_that_no_longer_learns_follow_its_networks(algo, settings, left, backend):
    """After an update of all agents, the second one does not learn in five more; `left`: of the distance.

    The team's updates are counted on: the sixth of the others copies with target_sync=6.
    """
    team = looped(agents(algo, backend=backend, **settings))
    first, *later = batches(team, 6)
    team.update(first, learn=ALL, batch_size=ROWS)
    before = exported(team)
    for batch in later:
        team.update(batch, learn=np.array([1, 0, 1, 1], bool), batch_size=ROWS)
    then, now = before[1], exported(team)[1]
    followed = [name for name in now if name.startswith("net/target_")]
    for name in followed:
        online = now[name.replace("target_", "")]
        assert (online == then[name.replace("target_", "")]).all()
        distance = then[name] - online
        assert np.abs(distance).max() > 1e-4
        np.testing.assert_allclose(now[name] - online, left * distance, atol=1e-7, err_msg=name)
    assert len(followed) >= 2
    kept = [name for name in now if not name.startswith(("team/", "net/target_"))]
    assert all((now[name] == then[name]).all() for name in kept)
    assert team.gradient_steps.tolist() == [6, 1, 6, 6]


def test_agents_with_equal_targets_do_not_change_by_a_bit_while_they_do_not_learn():
    team = looped(agents(tau=0.3))
    before = exported(team)
    for batch in batches(team, 3):
        team.update(batch, learn=np.array([1, 0, 1, 0], bool), batch_size=ROWS)
    for was, now in zip(before[1::2], exported(team)[1::2], strict=True):
        assert all((was[name] == now[name]).all() for name in now if not name.startswith("team/"))


def test_no_target_network_moves_if_nobody_has_rows():
    team = looped(agents(tau=0.3))
    first, second = batches(team, 2)
    team.update(first, learn=ALL, batch_size=ROWS)
    before = exported(team)
    for rows in second.members:
        rows.weight[...] = 0
    team.update(second, learn=np.array([1, 0, 1, 1], bool), batch_size=ROWS)
    for was, now in zip(before, exported(team), strict=True):
        assert all((was[name] == now[name]).all() for name in now if "target_" in name)


@pytest.mark.parametrize(
    ("algo", "backend"),
    [(mt.VDN, "torch"), (mt.QMIX, "torch"), (mt.WQMIX, "torch"), (mt.VDN, "tensorflow"),
     *LONG * [(mt.QMIX, "tensorflow"), (mt.WQMIX, "tensorflow")]],
)  # fmt: skip
def test_a_shared_agent_learns_from_one_seat_as_an_agent_beside_one_that_does_not_learn(algo, backend):
    """One agent in two seats, of which the second is not learned from, and two agents with equal weights."""
    given = {"tau": 1.0, "backend": backend, "team_size": 2, "max_grad_norm": 0.3}
    first, second = agents(algo, **given)[::2]
    second.restore(first.state())
    shared = JointLearner([first.frozen_copy().learner_], [2], [0, 1])
    pair = JointLearner([first.learner_, second.learner_], [1, 1], [0, 1])
    batch = some_team(np.random.default_rng(1), shared.members, [2], ROWS)
    learned = np.arange(2 * ROWS)[None] < ROWS
    members = [picked(batch.members[0], np.s_[:, half]) for half in (slice(None, ROWS), slice(ROWS, None))]
    masked = replace(batch.members[0], learned=learned, weight=batch.members[0].weight * learned)
    before = exported(shared)[0]
    shared.update(replace(batch, members=[masked]), learn=np.ones(1, bool), batch_size=ROWS)
    pair.update(replace(batch, members=members), learn=np.array([True, False]), batch_size=ROWS)
    (joined,), (one, _) = exported(shared), exported(pair)
    assert (joined["net/q/head0.weight"] != before["net/q/head0.weight"]).any()
    for name in one:
        np.testing.assert_allclose(joined[name], one[name], atol=1e-6, err_msg=name)


def test_both_frameworks_learn_the_same():
    teams = [stacked(agents(backend=backend, dueling=True, tau=0.3)) for backend in ("torch", "tensorflow")]
    for batch in batches(teams[0], 4):
        for team in teams:
            team.update(batch, learn=ALL, batch_size=ROWS)
    for ours, theirs in zip(*map(exported, teams), strict=True):
        for name in ours:
            np.testing.assert_allclose(ours[name], theirs[name], atol=2e-5, err_msg=name)


def test_a_shared_agent_learns_from_all_its_seats():
    """One agent in the seats of a and c is an agent with the sum of both gradients."""
    first, second = agents(mt.VDN, optimizer="sgd", max_grad_norm=None, target_sync=100)[::2]
    second.restore(first.state())
    shared = JointLearner([first.frozen_copy().learner_], [2], [0, 1])
    pair = JointLearner([first.learner_, second.learner_], [1, 1], [0, 1])
    start = first.learner_.export(0).arrays
    batch = some_team(np.random.default_rng(1), shared.members, [2], ROWS)
    members = [picked(batch.members[0], np.s_[:, half]) for half in (slice(None, ROWS), slice(ROWS, None))]
    shared.update(batch, learn=np.ones(1, bool), batch_size=ROWS)
    pair.update(replace(batch, members=members), learn=np.ones(2, bool), batch_size=ROWS)
    (joined,), (one, other) = exported(shared), exported(pair)
    for name in (n for n in joined if n.startswith("net/q/")):
        moved = (one[name] - start[name]) + (other[name] - start[name])
        np.testing.assert_allclose(joined[name], start[name] + moved, atol=1e-6, err_msg=name)


def test_the_gradient_of_the_team_is_clipped_as_one():
    free, clipped = (looped(agents(optimizer="sgd", learning_rate=1.0, max_grad_norm=most)) for most in (None, 0.01))
    before = exported(free)
    for team in (free, clipped):
        measured = team.update(apart(batches(stacked(agents()), 1)[0]), learn=ALL, batch_size=ROWS)

    def step(team: JointLearner) -> np.ndarray:
        of_agents = [
            b[n] - a[n] for a, b in zip(before, exported(team), strict=True) for n in a if n.startswith("net/q/")
        ]
        of_team = [exported(team)[0][n] - before[0][n] for n in before[0] if n.startswith("team/net/mixer/")]
        return np.concatenate([moved.ravel() for moved in (*of_agents, *of_team)])

    whole, small = step(free), step(clipped)
    assert np.linalg.norm(small) == pytest.approx(0.01, rel=1e-4)
    np.testing.assert_allclose(small, whole * 0.01 / np.linalg.norm(whole), atol=1e-6)
    norms = np.concatenate([measured["grad_norm/q"], measured["grad_norm/mixer"][:1]])
    assert np.linalg.norm(norms) == pytest.approx(np.linalg.norm(whole), rel=1e-4)


def test_after_a_loss_that_is_not_finite_nobody_changes():
    team = stacked(agents())
    (batch,) = batches(team, 1)
    batch.reward[0, 2] = np.inf
    before = exported(team)
    measured = team.update(batch, learn=ALL, batch_size=ROWS)
    assert np.isnan(measured["grad_norm/q"]).all() and np.isnan(measured["grad_norm/mixer"]).all()
    for old, new in zip(before, exported(team), strict=True):
        assert all((old[name] == new[name]).all() for name in old if name.startswith(("net/", "team/net/")))


def test_the_networks_of_the_team_are_in_the_file_of_each_agent(tmp_path):
    """A team of loaded agents goes on as the team that was saved; its mixer is that of the first agent."""
    result = agents()
    team = looped(result)
    first, second = (apart(batch) for batch in batches(stacked(agents()), 2))
    team.update(first, learn=ALL, batch_size=ROWS)
    mt.save(tmp_path / "team", result)
    loaded = mt.load(tmp_path / "team")
    again = looped(loaded)
    obs = np.zeros((3, *VECTOR.shape), np.float32)
    assert [agent.act(obs).tolist() for agent in loaded] == [agent.act(obs).tolist() for agent in result]
    for each in (team, again):
        each.update(second, learn=ALL, batch_size=ROWS)
    for ours, theirs in zip(exported(team), exported(again), strict=True):
        assert all((ours[name] == theirs[name]).all() for name in ours)
        assert any(name.startswith("team/net/target_mixer/") for name in ours)


def test_agents_that_do_not_fit_are_refused():
    one, two = agents()[:2]
    with pytest.raises(AgentError, match=r"qmix team share its networks, .* ones: mixing_units=\d+ and 5\. Give"):
        JointLearner([one.learner_, agents(mixing_units=5)[1].learner_], [1, 1], [0, 1])
    with pytest.raises(AgentError, match=r"one backend and device, .* 'torch' on cpu, backend 'tensorflow'"):
        JointLearner([one.learner_, agents(backend="tensorflow")[1].learner_], [1, 1], [0, 1])
    with pytest.raises(ConfigError, match=r"trained without strategy=: leave it out"):
        agents(strategy=mt.DataParallel(processes=2))
    with pytest.raises(ConfigError, match=r"take no reward_model=: leave it out"):
        agents(reward_model=lambda observation, action, reward: reward)
    with pytest.raises(ConfigError, match=r"make_agents\('vdn', env\) gives it, or team_size= does"):
        mt.VDN(VECTOR, spaces.Discrete(2))
    with pytest.raises(ConfigError, match=r"make_agents\('qmix', env\) gives it, or state_size= does"):
        mt.QMIX(VECTOR, spaces.Discrete(2), team_size=2)
    with pytest.raises(ConfigError, match="gradient noise of agents that learn together is not measured"):
        two.learner_.measured.ask("gradient_noise")
