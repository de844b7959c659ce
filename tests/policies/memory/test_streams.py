from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from marltrain.core.errors import AgentError, ConfigError, EnvError, MarlTrainError
from marltrain.policies.memory import Storage, Streams
from marltrain.policies.memory.needs import Column
from tests.policies.memory.worlds import Script, blank, one_group, rollouts, two_groups, uniform

COLUMNS = {"log_prob": Column()}
GAMMA = np.array([0.5, 0.5, 0.5])
ANY = (True, True, True)


def decide(streams, actions):
    """actions: player -> action; its log-probability is recorded as minus a tenth of it."""
    action = np.full((3, 1), 2)
    for p, chosen in actions.items():
        action[p] = chosen
    streams.record_actions(0, action, {"log_prob": -0.1 * action.astype(np.float32)})


def play(how):
    """Three players in turns, two episodes; c dies in the first and is absent from the second.

    The first episode ends as `how` says for a and b. Return the streams and a reader of all three.
    """
    spec = one_group()
    script = Script(spec)
    streams = Streams(spec, 1, {0: Storage(8, COLUMNS)})
    reader = rollouts(streams, [[0], [1], [2]], COLUMNS)
    story: Any = [
        (dict(turn={0: (1, ANY)}), {0: 0}),
        (dict(turn={1: (2, ANY)}, reward=(1, 5, 7)), {1: 1}),  # 5 and 7 come before any decision of b and c
        (dict(turn={2: (3, ANY)}, reward=(0.5, 0.25, 7)), {2: 2}),
        (dict(turn={0: (4, (True, False, True))}, reward=(0.25, 2, 1)), {0: 2}),
        # c dies on another's move, with its reward
        (dict(turn={1: (5, (False, True, True))}, reward=(3, 0.5, -4), ends={2: ("terminated", 30, ANY)}), {1: 2}),
        (dict(turn={0: (6, (False, False, True))}, reward=(1, 1, 9)), {0: 2}),  # 9 for the dead: nobody's
        (
            dict(
                turn={1: (7, ANY)}, reward=(10, -10, 0), ended=True,
                ends={0: (how, 60, (True, False, False)), 1: (how, 61, (False, True, False))},
            ),
            {1: 0},
        ),
        (dict(turn={0: (8, ANY)}, reward=(0, 0.5, 9)), {0: 1}),
        (dict(turn={1: (9, ANY)}, reward=(2, 0.125, 9)), {1: 1}),
    ]  # fmt: skip
    for shown, actions in story:
        streams.record_step(script.show(**shown))
        decide(streams, actions)
    return streams, reader


def test_three_players_in_turns_by_hand():
    _, reader = play("terminated")
    assert reader.size().tolist() == [3, 3, 1]
    rollout = reader.take(GAMMA)
    assert rollout.weight.tolist() == [[1, 1, 1], [1, 1, 1], [1, 0, 0]]
    # a: 1 + 0.5 + 0.25 until its own next move; 3 + 1; 10.  b: 0.25 + 2 + 0.5; 1 - 10; then 0.5 + 0.125.  c: 1 - 4.
    assert rollout.reward.tolist() == [[1.75, 4, 10], [2.75, -9, 0.625], [-3, 0, 0]]
    assert rollout.discount.tolist() == [[0.5, 0.5, 0], [0.5, 0, 0.5], [0, 0, 0]]
    assert rollout.cut.tolist() == [[False, False, True], [False, True, True], [True, True, True]]
    assert rollout.boot.tolist() == [[-1, -1, 0], [-1, 0, 1], [0, 0, 0]]
    assert rollout.obs[:2, :, 0].tolist() == [[1, 4, 6], [2, 5, 7]]
    assert rollout.obs[2, 0].tolist() == [3, -3]
    assert rollout.action.tolist()[:2] == [[0, 2, 2], [1, 2, 0]]
    assert rollout.legal[0].tolist() == [[1, 1, 1], [1, 0, 1], [0, 0, 1]]
    assert rollout.extras["log_prob"][1].tolist() == pytest.approx([-0.1, -0.2, 0])
    assert [rollout.boot_obs[k, m].tolist() for k, m in ((0, 0), (1, 0), (1, 1), (2, 0))] == [
        [60, -60], [61, -61], [9, -9], [30, -30],
    ]  # fmt: skip
    assert rollout.boot_legal[1].tolist() == [[0, 1, 0], [1, 1, 1]]
    assert not rollout.truncated.any()
    assert reader.size().tolist() == [0, 0, 0]


def test_truncation_bootstraps_where_termination_does_not():
    _, reader = play("truncated")
    rollout = reader.take(GAMMA)
    assert rollout.discount.tolist() == [[0.5, 0.5, 0.5], [0.5, 0.5, 0.5], [0, 0, 0]]  # c died: that is no limit
    assert rollout.truncated.tolist() == [[False, False, True], [False, True, False], [False, False, False]]
    assert rollout.cut.tolist() == [[False, False, True], [False, True, True], [True, True, True]]
    assert rollout.boot_obs[0, 0].tolist() == [60, -60]


@pytest.mark.parametrize("how", ["terminated", "truncated"])
def test_the_same_game_as_transitions(how):
    """What follows is the player's own next decision with the actions legal then; never another player's."""
    streams, _ = play(how)
    reader = uniform(streams, [[0], [1], [2]])
    assert reader.size().tolist() == [3, 3, 1]
    batch = reader.sample([np.random.default_rng(k) for k in range(3)], GAMMA, 200)
    kept = 0.0 if how == "terminated" else 0.5
    expected = [
        # seen, reward, discount, seen next, legal next
        {(1, 1.75, 0.5, 4, "101"), (4, 4, 0.5, 6, "001"), (6, 10, kept, 60, "100")},
        {(2, 2.75, 0.5, 5, "011"), (5, -9, kept, 61, "010"), (7, 0.625, 0.5, 9, "111")},
        {(3, -3, 0, 30, "111")},
    ]
    for k in range(3):
        legal = ["".join(str(int(x)) for x in row) for row in batch.next_legal[k]]
        columns = batch.obs[k, :, 0], batch.reward[k], batch.discount[k], batch.next_obs[k, :, 0], legal
        assert set(zip(*columns, strict=True)) == expected[k]


def test_rewards_can_be_replaced():
    script = Script(one_group())
    streams = Streams(script.spec, 1, {0: Storage(4, COLUMNS)})
    reader = rollouts(streams, [[1]], COLUMNS)
    for _ in range(2):
        streams.record_step(
            script.show(dict.fromkeys(range(3), (1, ANY)), reward=(1, 2, 3)), np.full((3, 1), 2.5, np.float32)
        )
        decide(streams, {})
    assert reader.take(GAMMA[:1]).reward.tolist() == [[2.5]]


def simultaneous(steps, rows=2, on_policy=True, num_envs=2):
    """A game in which everyone always decides and sees the batch step; return streams and a reader of player 1."""
    spec = one_group()
    streams = Streams(spec, num_envs, {0: Storage(rows, COLUMNS)})
    reader = (rollouts if on_policy else uniform)(streams, [[1]])
    for t in range(steps):
        more(streams, t)
    return streams, reader


def more(streams, t):
    step = blank(streams.spec, streams.num_envs)
    step.turn[0][:], step.legal[0][:], step.obs[0][:], step.reward[:] = True, True, t, t
    streams.record_step(step)
    nothing = np.zeros((3, streams.num_envs))
    streams.record_actions(0, nothing.astype(np.int64), {"log_prob": nothing})


def test_what_does_not_fit_into_memory_is_told_with_what_makes_it_so():
    with pytest.raises(ConfigError, match=r"do not fit into memory: 1,000,000,000,000 batch steps .* Lower capacity"):
        Streams(one_group(), 2, {0: Storage(10**12)})


def test_its_size_when_it_is_full_is_that_of_the_rings_that_have_grown():
    for rows, num_envs in ((1, 3), (7, 2)):
        streams = Streams(one_group(), num_envs, {0: Storage(rows, COLUMNS)})
        (ring,) = streams.rings.values()
        assert streams.full_size == ring.capacity * ring.step_size > 0


def test_a_plan_keeps_that_many_whole_rows_and_no_more():
    streams, reader = simultaneous(50, rows=5, on_policy=False)
    assert reader.size().tolist() == [10]
    assert streams.rings[0].capacity == 6
    batch = reader.sample([np.random.default_rng(0)], GAMMA[:1], 300)
    assert set(batch.obs[0, :, 0]) == {44, 45, 46, 47, 48}
    assert (batch.next_obs == batch.obs + 1).all() and (batch.reward == batch.obs[..., 0] + 1).all()


def test_rows_not_yet_taken_make_the_ring_grow():
    streams, reader = simultaneous(6, rows=5)
    assert streams.rings[0].capacity == 6
    for t in range(6, 20):
        more(streams, t)
    assert streams.rings[0].capacity == 24
    rollout = reader.take(GAMMA[:1])
    assert rollout.obs[0, :, 0].tolist() == [*range(19), *range(19)]
    assert rollout.boot.tolist() == [[-1] * 18 + [0] + [-1] * 18 + [1]]
    assert rollout.boot_obs[0, :, 0].tolist() == [19, 19]
    for t in range(20, 43):
        more(streams, t)
    assert streams.rings[0].capacity == 24  # what was taken is no longer protected
    assert reader.take(GAMMA[:1]).obs[0, :23, 0].tolist() == list(range(19, 42))


def test_a_reader_that_is_gone_protects_nothing():
    streams, reader = simultaneous(3, rows=5)
    del reader
    for t in range(3, 40):
        more(streams, t)
    assert streams.rings[0].capacity == 6


def test_an_open_row_outlives_the_ring():
    """b decides once and then waits while a moves 20 times."""
    script = Script(one_group())
    streams = Streams(script.spec, 1, {0: Storage(3)})
    streams.record_step(script.show({1: (50, ANY)}))
    decide(streams, {1: 1})
    for t in range(20):
        streams.record_step(script.show({0: (t, ANY)}, reward=(0, 1, 0)))
        decide(streams, {0: 0})
    streams.record_step(script.show({1: (51, ANY)}))
    reader = uniform(streams, [[1]])
    assert reader.size().tolist() == [1]
    batch = reader.sample([np.random.default_rng(0)], GAMMA[:1], 3)
    assert batch.obs[0, :, 0].tolist() == [50] * 3 and batch.next_obs[0, :, 0].tolist() == [51] * 3
    assert batch.reward[0].tolist() == [20] * 3


def test_abandoned_rows_never_become_whole_and_are_not_protected():
    streams, reader = simultaneous(3, rows=4)
    streams.abandon()
    for t in range(3, 5):
        more(streams, t)
    rollout = reader.take(GAMMA[:1])
    assert rollout.obs[0, :, 0].tolist() == [0, 1, 3] * 2
    assert rollout.boot.tolist() == [[-1, 0, 1, -1, 2, 3]]
    assert rollout.boot_obs[0, :, 0].tolist() == [2, 4, 2, 4]  # the abandoned decision was seen, so it bootstraps
    for t in range(5, 9):
        more(streams, t)
    assert streams.rings[0].capacity == 5


def test_one_environments_abandoned_rows_leave_the_others_alone():
    """At batch step 3 environment 1 begins anew: what was decided there at 2 never had an outcome."""
    streams, reader = simultaneous(3, rows=6)
    streams.abandon(np.array([1]))
    for t in range(3, 6):
        more(streams, t)
    rollout = reader.take(GAMMA[:1])
    assert rollout.obs[0, :, 0].tolist() == [0, 1, 2, 3, 4, 0, 1, 3, 4]
    assert rollout.boot.tolist() == [[-1, -1, -1, -1, 0, -1, 1, -1, 2]]
    assert rollout.boot_obs[0, :, 0].tolist() == [5, 2, 5]
    assert not rollout.truncated.any() and (rollout.discount == 0.5).all()
    assert streams.rings[0].drawable_count.tolist() == [9] * len(streams.rings[0].drawable_count)


def test_rows_before_a_step_without_decisions_stay_apart():
    """A run ends between arrived and decided; the next begins with a reset."""
    streams, reader = simultaneous(2, rows=4)
    step = blank(streams.spec, 2)
    step.turn[0][:] = True
    step.obs[0][:] = 2
    streams.record_step(step)
    streams.abandon()
    for t in (10, 11, 12):
        more(streams, t)
    rollout = reader.take(GAMMA[:1])
    assert rollout.obs[0, :, 0].tolist() == [0, 1, 10, 11] * 2
    assert rollout.reward[0].tolist() == [1, 0, 11, 12] * 2
    assert rollout.boot_obs[0, :, 0].tolist() == [2, 12] * 2


def test_a_row_that_nobody_decided_is_nobodys():
    """Two Steps without a decision between: what comes with the second rewards nothing."""
    streams, reader = simultaneous(2, rows=6)
    for _ in range(2):
        step = blank(streams.spec, 2)
        step.turn[0][:], step.reward[:] = True, 50
        streams.record_step(step)
        assert (streams.rings[0].open == -1).all()
    more(streams, 9)
    rollout = reader.take(GAMMA[:1])
    assert rollout.obs[0, :, 0].tolist() == [0, 1, 0, 1]
    assert rollout.reward[0].tolist() == [1, 50, 1, 50]


def test_what_is_wrong_is_said():
    streams = Streams(two_groups(), 2, {0: Storage(2)})
    with pytest.raises(ConfigError, match="group 5"):
        Streams(two_groups(), 2, {5: Storage(2)})
    with pytest.raises(ConfigError, match="rows=0"):
        Streams(two_groups(), 2, {0: Storage(0)})
    with pytest.raises(AgentError, match="same group"):
        uniform(streams, [[0], [1]])
    with pytest.raises(AgentError, match="same group"):
        uniform(streams, [[0], []])
    with pytest.raises(AgentError, match="not recorded"):
        uniform(streams, [[1]])
    with pytest.raises(AgentError, match="log_prob"):
        rollouts(streams, [[0]], COLUMNS)
    with pytest.raises(AgentError, match="group 1 is not recorded"):
        streams.record_actions(1, np.zeros((2, 2)), {})
    with pytest.raises(MarlTrainError, match="before any Step"):
        streams.record_actions(0, np.zeros((2, 2)), {})


def test_decisions_must_come_once_and_with_their_columns():
    streams, _ = simultaneous(1)
    with pytest.raises(MarlTrainError, match="twice for batch step 0"):
        streams.record_actions(0, np.zeros((3, 2)), {"log_prob": np.zeros((3, 2))})
    step = blank(streams.spec, 2)
    streams.record_step(step)
    with pytest.raises(AgentError, match="log_prob"):
        streams.record_actions(0, np.zeros((3, 2)), {})


def test_an_end_that_leaves_a_player_waiting_is_an_error():
    streams, _ = simultaneous(2)
    step = blank(streams.spec, 2)
    step.ended[1] = True
    step.terminated[[0, 2], 1] = True
    with pytest.raises(EnvError, match=r"environment 1 ended.*'b'"):
        streams.record_step(step)
