"""Rollouts of a team: by hand, and in random worlds, in which each batch step comes once."""

from __future__ import annotations

import numpy as np
import pytest

from marltrain.core.errors import AgentError, SaveError
from marltrain.policies.memory import Storage, Streams
from marltrain.policies.memory.needs import Needs
from marltrain.policies.memory.team_rollouts import TeamRolloutReader
from marltrain.storage.state import State
from tests.policies.memory.test_team_reader import ALL, GAMMA, PARTS, STEPS
from tests.policies.memory.worlds import Record, Script, World, drive, one_group

NEED = Needs(on_policy=True)


def reader(streams, members, one_reward=True):
    return TeamRolloutReader(streams, members, [NEED] * len(members), one_reward=one_reward)


def taken(team):
    return team.take(np.full(len(team.size()), GAMMA))


def play(streams, script, times):
    """Play the steps of `STEPS` with these numbers."""
    for time in times:
        turn, reward, ends, ended = STEPS[time]
        streams.record_step(script.show({p: (10 * time + p, ALL) for p in turn}, reward, ends, ended=ended))
        streams.record_actions(0, np.full((3, 1), time % 3), {})


def test_rollouts_of_a_game_by_hand():
    """Two rollouts, of batch steps 0 to 4 and 5 to 7; see `STEPS`. c pauses after 4, so that its row is not closed."""
    spec = one_group()
    streams, script = Streams(spec, 1, {0: Storage(2)}), Script(spec)  # the reader keeps what is not taken yet
    team = reader(streams, [[[0], [1], [2]]])
    play(streams, script, range(6))
    assert team.size().tolist() == [5] * 3
    first = taken(team)
    assert first.reward.tolist() == [[1, 2, 3, 4, 5]] and first.weight.tolist() == [[1] * 5]
    assert first.cut.tolist() == [[False, False, False, True, True]]
    np.testing.assert_allclose(first.discount, [[0.9] * 5])
    (rows,) = first.members
    assert rows.weight.tolist() == [[1] * 5, [1, 1, 0, 0, 1], [1, 1, 1, 1, 0]]
    assert rows.obs[0, :, 0].tolist() == [0, 10, 20, 30, 40]
    assert rows.next_obs[0, 3, 0] == 40.5 and rows.next_present[1].tolist() == [True, False, False, False, True]
    assert team.size().tolist() == [0] * 3
    with pytest.raises(AgentError, match="no batch step of the team ended since the last rollout"):
        taken(team)
    play(streams, script, range(6, 9))
    second = taken(team)
    assert second.reward.tolist() == [[6, 7, 0]] and second.cut.tolist() == [[False, True, True]]
    np.testing.assert_allclose(second.discount, [[0.9, 0, 0.9]])


def test_batch_steps_at_which_nobody_of_the_team_learned_weigh_nothing():
    spec = one_group()
    streams, script = Streams(spec, 1, {0: Storage(9)}), Script(spec)
    team = reader(streams, [[[0], [1]]])
    for time in range(6):
        streams.learning(np.array([time >= 4, time != 2, True]))
        streams.record_step(script.show(dict.fromkeys(range(3), (time, ALL)), (time, time, 0)))
        streams.record_actions(0, np.zeros((3, 1), int), {})
    rollout = taken(team)
    assert rollout.weight.tolist() == [[1, 1, 0, 1, 1]] and rollout.reward.tolist() == [[1, 2, 0, 4, 5]]
    assert rollout.cut.tolist() == [[False, True, True, False, True]]
    assert rollout.members[0].weight.tolist() == [[0, 0, 0, 0, 1], [1, 1, 0, 1, 1]]
    assert rollout.members[0].present.tolist() == [[True, True, False, True, True]] * 2


def test_the_rows_of_a_seat_up_to_its_last_drop_are_not_taken():
    """One agent in the seats of a and c, and b. c is dropped before its decision in step 2, and b in step 4."""
    spec = one_group()
    streams, script = Streams(spec, 1, {0: Storage(9)}), Script(spec)
    team = reader(streams, [[[0, 2]], [[1]]])
    for time in range(6):
        streams.record_step(script.show(dict.fromkeys(range(3), (time, ALL)), (time, time, time)))
        for agent, seat in {2: [(0, 1)], 4: [(1, 0)]}.get(time, []):
            team.drop(agent, seat)
        streams.record_actions(0, np.zeros((3, 1), int), {})
    again = reader(streams, [[[0, 2]], [[1]]])
    again.restore(team.state())
    for each in (team, again):
        rollout = taken(each)
        assert rollout.weight.tolist() == [[1] * 5]
        shared, alone = rollout.members
        assert shared.weight.tolist() == [[1] * 5 + [0, 0, 1, 1, 1]] and alone.weight.tolist() == [[0, 0, 0, 0, 1]]
        assert shared.learned is not None and shared.learned.tolist() == (shared.weight > 0).tolist()
    team.drop(0)
    with pytest.raises(AgentError, match="no batch step of the team ended"):
        taken(team)


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize(("spec", "members"), PARTS)
def test_in_random_games_each_row_comes_once(spec, members, seed):
    """Deaths, ends of both kinds, players that pause, episodes that are given up, and rings that are too small.

    Rows whose outcome was known at the next batch step come, in the order of time; traces hold consecutive ones.
    """
    world, record = World(spec, 3, seed, dense=seed == 1), Record(spec, 3)
    streams = Streams(spec, 3, {g: Storage(2, {}) for g in range(len(spec.groups))})
    team = reader(streams, members, one_reward=False)
    players = [player for member in members for held in member for player in held]
    seen: dict[int, list[float]] = {player: [] for player in players}
    links = 0

    def on_step(t):
        nonlocal links
        if t % 7 != 6 or not team.size().any():
            return
        batch = taken(team)
        rows = batch.cut.size
        columns = [
            np.concatenate([np.asarray(getattr(member, name)).reshape(-1, rows, *more) for member in batch.members])
            for name, more in (("weight", ()), ("obs", (2,)), ("next_obs", (2,)))
        ]
        for player, weight, obs, following in zip(players, *columns, strict=True):
            seen[player] += obs[weight > 0, 0].tolist()
            linked = ~batch.cut[0, :-1] & (weight[:-1] > 0) & (weight[1:] > 0)
            assert (following[:-1][linked] == obs[1:][linked]).all()
            links += linked.sum()

    drive(world, streams, record, on_step, 63, resets=(25,), cuts=[(40, [1])])
    for player, values in seen.items():
        closed = [row.obs[0] for row in record.rows[player] if row.decided and row.closed_at == row.time + 1]
        assert len(values) == len(set(values)) > 20
        assert set(values) == set(closed)
    assert links > 20


def test_a_restored_reader_goes_on_where_it_was():
    spec = one_group()
    streams, script = Streams(spec, 1, {0: Storage(9)}), Script(spec)
    team = reader(streams, [[[0], [1], [2]]])
    play(streams, script, range(3))
    taken(team)
    play(streams, script, range(3, 5))
    other = reader(streams, [[[0], [1], [2]]])
    other.restore(team.state())
    assert taken(other).reward.tolist() == taken(team).reward.tolist() == [[3, 4]]
    dropped = np.zeros(3, np.int64)
    with pytest.raises(SaveError, match="since"):
        other.restore(State({"since": 6}, {"dropped": dropped}))
    for forged in (dropped + 6, dropped - 1, dropped[:2], dropped.astype(float)):
        with pytest.raises(SaveError, match="dropped"):
            other.restore(State({"since": 3}, {"dropped": forged}))
