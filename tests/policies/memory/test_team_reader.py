"""Batch steps of a team: by hand, and in random worlds against a slow record."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from marltrain.core.errors import AgentError, SaveError
from marltrain.policies.memory import Storage, Streams
from marltrain.policies.memory.needs import Needs
from marltrain.policies.memory.team_reader import TeamReader
from marltrain.storage.state import State
from tests.policies.memory.test_states import Numbered, assert_of_moments, needs
from tests.policies.memory.worlds import Record, Script, World, drive, one_group, two_groups

GAMMA, ALL = 0.9, [True, True, True]
PLAIN = Needs(on_policy=False)


def reader(streams, members, need=PLAIN, one_reward=True):
    return TeamReader(streams, members, [need] * len(members), one_reward=one_reward)


def at(team, times, envs):
    """The batch steps that are asked for, in place of random ones."""
    team._draw = lambda rng, count: (np.array(times), np.array(envs))
    agents = sum(len(member.seats) for member in team.members)
    return team.sample([np.random.default_rng(0)] * agents, np.full(agents, GAMMA), len(times))


def played(steps):
    """Streams of one environment in which the players a, b and c of the script have acted; see `Script.show`."""
    spec = one_group()
    streams, script = Streams(spec, 1, {0: Storage(10)}), Script(spec)
    for time, (turn, reward, ends, ended) in enumerate(steps):
        seen = {p: (10 * time + p, ALL) for p in turn}
        streams.record_step(script.show(seen, reward, ends, ended=ended))
        streams.record_actions(0, np.full((3, 1), time % 3), {})
    return streams


STEPS = [
    ((0, 1, 2), (0, 0, 0), {}, False),
    ((0, 1, 2), (1, 1, 1), {}, False),
    ((0, 2), (2, 2, 2), {1: ("terminated", 21, ALL)}, False),
    ((0, 2), (3, -7, 3), {}, False),
    ((0, 1, 2), (4, 0, 4), {0: ("truncated", 40.5, ALL), 2: ("truncated", 42.5, ALL)}, True),
    ((0, 1), (5, 5, 0), {}, False),
    ((0, 1, 2), (6, 6, 6), {}, False),
    ((0, 1, 2), (7, 7, 7), dict.fromkeys(range(3), ("terminated", 7, ALL)), True),
    ((0, 1, 2), (0, 0, 0), {}, False),
]
"""b dies at 2 while the others go on; a and c are truncated at 4; c pauses at 5 and joins at 6; all terminate at 7."""


def test_rewards_of_a_file_that_differ_are_refused():
    """Those of players that were not in time do not count: b at batch step 3, and nobody's at the newest."""
    streams = played(STEPS)
    ring = streams.rings[0]
    for one_reward in (True, False):
        reader(streams, [[[0], [1], [2]]], one_reward=one_reward).restore(State())
    ring.reward[1, 3], ring.reward[2, 6] = 99, 8
    with pytest.raises(SaveError, match=r"one reward, and theirs differ in environment 0: a 7, b 7, c 8"):
        reader(streams, [[[0], [1], [2]]]).restore(State())
    with pytest.raises(
        AgentError, match=r"one reward, and theirs differ in environment 0: a 7, b 7, c 8\. .* give the"
    ):
        reader(streams, [[[0], [1], [2]]]).check()
    reader(streams, [[[0], [1]]]).restore(State())
    reader(streams, [[[0], [1]]]).check()
    reader(streams, [[[0], [1], [2]]], one_reward=False).restore(State())
    ring.learnable[2] = False  # c does not learn, and a batch of the others holds its rewards
    with pytest.raises(SaveError, match=r"one reward, and theirs differ in environment 0: a 7, b 7, c 8"):
        reader(streams, [[[0], [1]], [[2]]]).restore(State())
    ring.learnable[...] = False  # nobody learns, and nothing is drawn
    reader(streams, [[[0], [1]], [[2]]]).restore(State())


def test_the_moments_of_a_game_by_hand():
    batch = at(reader(played(STEPS), [[[0], [1], [2]]]), range(7), [0] * 7)
    (rows,) = batch.members
    assert batch.reward.tolist() == [[1, 2, 3, 4, 5, 6, 7]]
    np.testing.assert_allclose(batch.discount, [[0.9, 0.9, 0.9, 0.9, 0.9, 0.9, 0]])
    assert batch.weight.tolist() == [[1] * 7] and batch.state is None
    present = [[1] * 7, [1, 1, 0, 0, 1, 1, 1], [1, 1, 1, 1, 1, 0, 1]]
    following = [[1, 1, 1, 1, 1, 1, 0], [1, 0, 0, 0, 1, 1, 0], [1, 1, 1, 1, 0, 1, 0]]
    assert rows.present.tolist() == np.array(present, bool).tolist()
    assert rows.next_present.tolist() == np.array(following, bool).tolist()
    assert rows.obs[..., 0][rows.present].tolist() == [
        0, 10, 20, 30, 40, 50, 60, 1, 11, 41, 51, 61, 2, 12, 22, 32, 42, 62
    ]  # fmt: skip
    assert rows.next_obs[..., 0][rows.next_present].tolist() == [
        10, 20, 30, 40.5, 50, 60, 11, 51, 61, 12, 22, 32, 42.5, 62
    ]  # fmt: skip
    assert rows.action[0].tolist() == [0, 1, 2, 0, 1, 2, 0]
    np.testing.assert_allclose(rows.discount, GAMMA * np.array(following), rtol=1e-6)
    assert rows.reward.tolist() == [[1, 2, 3, 4, 5, 6, 7], [1, 2, 0, 0, 5, 6, 7], [1, 2, 3, 4, 0, 0, 7]]


def test_sums_of_three_rewards_by_hand():
    """They end with the episodes at 3 and 6. b dies at 2, and adds no value later; c is absent at 5."""
    need = Needs(on_policy=False, n_step=3)
    batch = at(reader(played(STEPS), [[[0], [1], [2]]], need), range(7), [0] * 7)
    (rows,) = batch.members
    sums = [5.23, 7.94, 6.6, 4, 16.07, 12.3, 7]  # 1 + 0.9 * 2 + 0.81 * 3, ...
    np.testing.assert_allclose(batch.reward, [sums], rtol=1e-6)
    np.testing.assert_allclose(batch.discount, [[0.729, 0.729, 0.81, 0.9, 0, 0, 0]], rtol=1e-6)
    np.testing.assert_allclose(
        rows.reward, [sums, [2.8, 2, 0, 0, 16.07, 12.3, 7], [*sums[:4], 5.67, 6.3, 7]], rtol=1e-6
    )
    assert rows.next_present.tolist() == [[True] * 4 + [False] * 3, [False] * 7, [True] * 4 + [False] * 3]
    assert rows.obs[0, :, 0].tolist() == [0, 10, 20, 30, 40, 50, 60]
    assert rows.next_obs[..., 0][rows.next_present].tolist() == [30, 40.5, 40.5, 40.5, 32, 42.5, 42.5, 42.5]
    assert batch.weight.tolist() == [[1] * 7]


def test_a_sum_of_rewards_ends_with_a_truncated_player_whose_value_follows():
    """At 1, c is truncated and a goes on."""
    steps = [
        ((0, 2), (0, 0, 0), {}, False),
        ((0,), (1, 0, 1), {2: ("truncated", 12.5, ALL)}, False),
        ((0,), (2, 0, 0), {}, False),
        ((0,), (3, 0, 0), {}, False),
    ]
    batch = at(reader(played(steps), [[[0], [2]]], Needs(on_policy=False, n_step=3)), range(3), [0] * 3)
    np.testing.assert_allclose(batch.reward, [[1, 4.7, 3]], rtol=1e-6)
    np.testing.assert_allclose(batch.discount, [[0.9, 0.81, 0.9]], rtol=1e-6)
    (rows,) = batch.members
    assert rows.next_obs[:, :, 0].tolist() == [[10, 30, 30], [12.5, 0, 0]]


def test_a_sum_of_rewards_ends_before_a_batch_step_from_which_no_seat_learns():
    streams = learning_in_turn()
    batch = at(reader(streams, [[[1]]], Needs(on_policy=False, n_step=3)), [1, 2, 4], [0] * 3)
    np.testing.assert_allclose(batch.reward, [[1.9, 1, 1.9]], rtol=1e-6)
    assert batch.members[0].next_obs[0, :, 0].tolist() == [31, 31, 61]


def test_a_shared_agent_reads_its_seats_one_after_another():
    streams = played(STEPS)
    (apart,) = at(reader(streams, [[[0], [1], [2]]]), [0, 2], [0, 0]).members
    shared, alone = at(reader(streams, [[[0, 2]], [[1]]]), [0, 2], [0, 0]).members
    assert shared.obs.shape == (1, 4, 2) and shared.obs[0, :, 0].tolist() == [0, 20, 2, 22]
    assert shared.present.tolist() == [apart.present[[0, 2]].ravel().tolist()]
    assert alone.present.tolist() == [apart.present[1].tolist()]


def test_a_shared_agent_observes_for_which_player_it_acts():
    (rows,) = at(
        reader(played(STEPS), [[[0, 2]]], Needs(on_policy=False, identity=("a", "b", "c"))), [0, 3], [0, 0]
    ).members
    assert rows.obs[0].tolist() == [[0, 0, 1, 0, 0], [30, -30, 1, 0, 0], [2, -2, 0, 0, 1], [32, -32, 0, 0, 1]]
    assert rows.next_obs[0, [1, 3]].tolist() == [[40.5, -40.5, 1, 0, 0], [42.5, -42.5, 0, 0, 1]]


def test_sequences_for_recurrent_networks_by_hand():
    """Three batch steps from each that is drawn; c pauses at 5, and the episodes end at 3 and at 6."""
    need = Needs(on_policy=False, block=3)
    batch = at(reader(played(STEPS), [[[0], [1], [2]]], need), [1, 3, 4], [0] * 3)
    (rows,) = batch.members
    assert batch.weight.tolist() == [[1, 1, 1, 1, 0, 0, 1, 1, 1]]
    assert batch.reward.tolist() == [[2, 3, 4, 4, 0, 0, 5, 6, 7]]
    present = [[1, 1, 1, 1, 0, 0, 1, 1, 1], [1, 0, 0, 0, 0, 0, 1, 1, 1], [1, 1, 1, 1, 0, 0, 1, 0, 1]]
    assert rows.present.tolist() == np.array(present, bool).tolist()
    begins = [[1, 0, 0, 1, 1, 1, 1, 0, 0], [1, 1, 1, 1, 1, 1, 1, 0, 0], [1, 0, 0, 1, 1, 1, 1, 1, 1]]
    assert rows.begins is not None and rows.begins.tolist() == np.array(begins, bool).tolist()
    following = [[1, 1, 1, 1, 0, 0, 1, 1, 0], [0, 0, 0, 0, 0, 0, 1, 1, 0], [1, 1, 1, 1, 0, 0, 0, 0, 0]]
    assert rows.next_present.tolist() == np.array(following, bool).tolist()
    assert rows.obs[0, :, 0].tolist() == [10, 20, 30, 30, 0, 0, 40, 50, 60]


def test_a_burn_in_by_hand():
    """One batch step before each that is drawn, and one after it; the episodes begin at 0, 4 and 7."""
    need = Needs(on_policy=False, block=3, burn_in=1)
    batch = at(reader(played(STEPS), [[[0], [1], [2]]], need), [1, 0, 4, 6], [0] * 4)
    (rows,) = batch.members
    assert batch.weight.tolist() == [[0, 1, 1, 0, 1, 1, 0, 1, 1, 0, 1, 0]]
    assert rows.obs[0, :, 0].tolist() == [0, 10, 20, 0, 0, 10, 0, 40, 50, 50, 60, 0]
    begins = [[1, 0, 0, 1, 1, 0, 1, 1, 0, 1, 0, 1]]
    assert rows.begins is not None and rows.begins[:1].tolist() == np.array(begins, bool).tolist()
    assert rows.weight[0].tolist() == batch.weight[0].tolist()
    assert rows.weight[2].tolist() == [0, 1, 1, 0, 1, 1, 0, 0, 0, 0, 1, 0]  # c pauses at 5
    assert rows.present[2].tolist() == np.array([1, 1, 1, 0, 1, 1, 0, 1, 0, 0, 1, 0], bool).tolist()


def test_different_rewards_are_refused_with_the_players_and_a_remedy():
    steps = [*STEPS[:2], ((0, 1, 2), (2, 2.5, 2), {}, False), STEPS[0]]
    team = reader(played(steps), [[[0], [1], [2]]])
    at(team, [0], [0])
    with pytest.raises(AgentError, match=r"environment 0: a 2, b 2.5, c 2\. .* give the trainer team_reward=.* Rivals"):
        at(team, [0, 1], [0, 0])
    own = at(reader(played(steps), [[[0], [1], [2]]], one_reward=False), [1], [0])
    assert own.members[0].reward.tolist() == [[2], [2.5], [2]] and own.reward.tolist() == [[0]]


def test_agents_of_a_team_have_one_discount():
    team = reader(played(STEPS), [[[0], [1], [2]]])
    with pytest.raises(AgentError, match=r"one discount, and gamma is 0\.9, 0\.95: set agent\.hyper\.gamma"):
        team.sample([np.random.default_rng(0)] * 3, np.array([0.9, 0.95, 0.9]), 4)


def test_only_batch_steps_in_which_a_player_of_the_team_learned_are_drawn():
    spec = one_group()
    streams, script = Streams(spec, 1, {0: Storage(20)}), Script(spec)
    team = reader(streams, [[[0], [1]]])
    masks = {0: [0, 0, 1], 4: [0, 1, 1], 6: [0, 0, 1], 9: [1, 1, 0]}
    for time in range(13):
        streams.record_step(script.show(dict.fromkeys(range(3), (time, ALL)), (1, 1, 1)))
        if time in masks:
            streams.learning(np.array(masks[time], bool))
        streams.record_actions(0, np.zeros((3, 1), int), {})
        if time == 4:
            assert team.size().tolist() == [0, 0]
            with pytest.raises(AgentError, match="no agent of the team has a closed row"):
                team.sample([np.random.default_rng(0)] * 2, np.full(2, GAMMA), 4)
    drawn = team.sample([None, np.random.default_rng(0)], np.full(2, GAMMA), 400)
    times, counts = np.unique(drawn.members[0].obs[0, :, 0], return_counts=True)
    assert times.tolist() == [4, 5, 9, 10, 11]
    assert abs(counts - 80).max() < 4 * np.sqrt(400 * 0.2 * 0.8)


def learning_in_turn():
    """Streams of six batch steps of three players; in step t, the observations are 10 t + player. Masks by step:

    a learns from 0 to 3 and does not any more; b in 1, 2, 4 and 5; c in 2, 3 and 5.
    """
    spec = one_group()
    streams, script = Streams(spec, 1, {0: Storage(10)}), Script(spec)
    masks = [[1, 0, 0], [1, 1, 0], [1, 1, 1], [1, 0, 1], [0, 1, 0], [0, 1, 1]]
    for time, mask in enumerate([*masks, masks[-1]]):
        streams.learning(np.array(mask, bool))
        streams.record_step(script.show({p: (10 * time + p, ALL) for p in range(3)}, (1, 1, 1)))
        if time < len(masks):
            streams.record_actions(0, np.zeros((3, 1), int), {})
    return streams


def test_rows_of_seats_that_did_not_learn_or_do_not_learn_now_have_weight_0():
    """By hand, for three agents: a does not learn now, so that its rows are not learned from."""
    streams = learning_in_turn()
    team = reader(streams, [[[0], [1], [2]]])
    assert team.size().tolist() == [0, 4, 3]
    batch = at(reader(streams, [[[0], [1], [2]]]), range(6), [0] * 6)
    (rows,) = batch.members
    learned = [[0] * 6, [0, 1, 1, 0, 1, 1], [0, 0, 1, 1, 0, 1]]
    assert rows.learned is not None and rows.learned.tolist() == np.array(learned, bool).tolist()
    assert rows.weight.tolist() == learned and rows.present.all()
    assert batch.weight.tolist() == [[0, 1, 1, 1, 1, 1]]
    drawn = team.sample([np.random.default_rng(0)] * 3, np.full(3, GAMMA), 200)
    assert np.unique(drawn.members[0].obs[0, :, 0]).tolist() == [10, 20, 30, 40, 50]


def test_one_agent_in_several_seats_learns_from_those_that_learn():
    team = reader(learning_in_turn(), [[[0, 2]], [[1]]])
    assert team.size().tolist() == [3, 4]
    shared, alone = at(team, range(6), [0] * 6).members
    assert shared.weight.tolist() == [[0] * 6 + [0, 0, 1, 1, 0, 1]]
    assert alone.learned is not None and alone.learned.tolist() == [[False, True, True, False, True, True]]
    every = at(team, [2, 5], [0, 0]).members[1]
    assert every.learned is None and every.weight.tolist() == [[1, 1]]


def test_seats_that_alone_learned_are_drawn_once_they_learn_again():
    streams = learning_in_turn()
    team = reader(streams, [[[0], [1]]])
    streams.learning(np.array([1, 0, 0], bool))
    assert team.size().tolist() == [4, 0]
    drawn = team.sample([np.random.default_rng(0)] * 2, np.full(2, GAMMA), 200).members[0]
    assert np.unique(drawn.obs[0, :, 0]).tolist() == [0, 10, 20, 30] and not drawn.weight[1].any()


def test_a_sequence_begins_anew_after_a_decision_that_is_not_learned_from():
    """No gradient flows back into it. The rows of a burn-in give none, and c starts from them."""
    gru = Needs(on_policy=False, block=5)
    (rows,) = at(reader(learning_in_turn(), [[[0], [1], [2]]], gru), [1], [0]).members
    begins = [[1, 0, 0, 0, 0], [1, 0, 0, 1, 0], [1, 1, 0, 0, 1]]
    assert rows.begins is not None and rows.begins.tolist() == np.array(begins, bool).tolist()
    assert rows.weight.tolist() == [[0] * 5, [1, 1, 0, 1, 1], [0, 1, 1, 0, 1]]
    (rows,) = at(reader(learning_in_turn(), [[[0], [1], [2]]], replace(gru, burn_in=1)), [2], [0]).members
    begins = [[1, 0, 0, 0, 0], [1, 0, 0, 1, 0], [1, 0, 0, 0, 1]]
    assert rows.begins is not None and rows.begins.tolist() == np.array(begins, bool).tolist()
    assert rows.weight.tolist() == [[0] * 5, [0, 1, 0, 1, 1], [0, 1, 1, 0, 1]]


PARTS = [(one_group(), [[[0], [1], [2]]]), (one_group(), [[[2, 0]]]), (two_groups(), [[[0], [2]], [[1, 3]]]),
         (two_groups(), [[[3]], [[0]]])]  # fmt: skip


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(("spec", "members"), PARTS)
def test_random_games_against_a_slow_record(spec, members, seed):
    """Deaths, ends of both kinds, players that pause, episodes that are given up, and a ring that wraps."""
    world, record = World(spec, 3, seed, dense=seed == 2), Record(spec, 3)
    streams = Streams(spec, 3, {g: Storage(9, {}) for g in range(len(spec.groups))})
    team = reader(streams, members, one_reward=False)
    rng, seen = np.random.default_rng(seed), []

    def on_step(t):
        if t % 7 == 6 and team.size().any():
            batch = team.sample([rng] * len(team.size()), np.full(len(team.size()), GAMMA), 40)
            seen.append(
                sum(_held(record, member, rows, batch) for member, rows in zip(members, batch.members, strict=True))
            )

    drive(world, streams, record, on_step, 60, resets=(25,), cuts=[(40, [1])])
    assert len(seen) > 5 and sum(seen) > 100


def _held(record, member, rows, batch):
    """Hold the rows of a member to the record; return how many players were there."""
    players = [player for held in member for player in held]
    names = ("obs", "next_obs", "action", "reward", "present", "next_present", "discount", "cells")
    columns = {name: np.asarray(getattr(rows, name)).reshape(len(players), 40, -1) for name in names}
    envs = columns["cells"][0, :, 0] % 3
    there = 0
    for b in range(40):
        found = [_row(record, player, columns, i, b, envs) for i, player in enumerate(players)]
        for i, row in enumerate(found):
            assert columns["present"][i, b, 0] == (row is not None)
            if row is None:
                continue
            there += 1
            assert (columns["obs"][i, b] == row.obs).all() and columns["action"][i, b, 0] == row.action
            in_time = row.closed_at == row.time + 1
            if in_time:
                assert columns["reward"][i, b, 0] == row.reward
            value = in_time and (row.end is None or not row.end[0])
            assert columns["next_present"][i, b, 0] == value
            assert columns["discount"][i, b, 0] == np.float32(GAMMA if value else 0)
            if value:
                assert (columns["next_obs"][i, b] == (row.next.obs if row.end is None else row.end[1])).all()
    return there


def _row(record, player, columns, i, b, envs):
    """The player's decided row of the record that has the observation of a batch step, or None."""
    same = [row for row in record.rows.get(player, []) if row.env == envs[b] and row.decided
            and (row.obs == columns["obs"][i, b]).all()]  # fmt: skip
    return same[0] if same and columns["present"][i, b, 0] else None


@pytest.mark.parametrize("seed", range(2))
def test_states_are_those_of_the_moments(seed):
    world = Numbered(one_group(masked=False), 3, seed)
    streams = Streams(world.spec, 3, {0: Storage(9, states=("state",))})
    team = reader(streams, [[[0], [1], [2]]], needs(on_policy=False), one_reward=False)
    rng, checked = np.random.default_rng(seed), 0

    def on_step(t):
        nonlocal checked
        if t % 7 == 6:
            batch = team.sample([rng] * 3, np.full(3, GAMMA), 30)
            (rows,) = batch.members
            state, following = (np.broadcast_to(each, (3, 30, 2)) for each in (batch.state, batch.next_state))
            assert_of_moments(world, rows.obs, state, rows.present)
            assert_of_moments(world, rows.next_obs, following, rows.next_present)
            checked += int(rows.next_present.sum())

    drive(world, streams, Record(world.spec, 3), on_step, 60)
    assert checked > 100
