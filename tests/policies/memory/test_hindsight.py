"""Transitions with other goals, worked out by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from gymnasium import spaces
from scipy.stats import chi2

import marltrain as mt
from marltrain.core.errors import AgentError, ConfigError
from marltrain.core.layout import Layout
from marltrain.core.spec import EnvSpec, PlayerSpec, Step
from marltrain.policies.memory import Storage, Streams
from marltrain.policies.memory.needs import Needs
from marltrain.policies.memory.sequences import reader_class
from tests.policies.memory.worlds import one_group

ONE = spaces.Box(-np.inf, np.inf, (1,), np.float32)
GOALS = spaces.Dict({"observation": ONE, "achieved_goal": ONE, "desired_goal": ONE})
ACHIEVED, DESIRED, SEEN = range(3)  # columns: the parts of a Dict are sorted


def near(achieved, desired, info):
    """0 at the goal, else -1."""
    assert achieved.shape == desired.shape == (len(achieved), 1) and info == {}
    return np.where(achieved[:, 0] == desired[:, 0], 0.0, -1.0)


def goal_spec(players="a"):
    return EnvSpec.of("goals", [PlayerSpec(p, GOALS, spaces.Discrete(2), Layout(GOALS), False) for p in players])


def played(steps, ends=(), rows=40, turns=None):
    """A player at place t in batch step t, whose goal is 100; ends: batch steps at which an episode ends at t.

    turns: the batch steps in which it acts; None: all.
    """
    streams = Streams(goal_spec(), 1, {0: Storage(rows)})
    for t in range(steps):
        step = Step.empty(streams.spec, 1)
        step.turn[0][:] = turns is None or t in turns
        seen: Any = ((step.obs[0], t + 0.5 if t in ends else t), (step.final_obs[0], t))
        for obs, place in seen:
            obs[..., [ACHIEVED, DESIRED, SEEN]] = place, 100, 10 * place
        step.reward[:] = -1
        step.terminated[:] = step.ended[:] = t in ends
        streams.record_step(step)
        if t < steps - 1:
            streams.record_actions(0, np.zeros((1, 1), np.int64), {})
    return streams


def reader_of(streams, n_step=1, prioritized=None, **settings):
    hindsight = mt.Hindsight(**{"reward_fn": near, "share": 1.0, **settings})
    needs = Needs.of(mt.Replay(40, n_step, prioritized, hindsight))
    return streams.reader([[0]], needs, reader_class(needs))


def found(reader, count=300, gamma=0.5):
    """The distinct transitions: (place, goal, reward, discount, next place), and the counts of each."""
    batch = reader.sample([np.random.default_rng(0)], np.array([gamma]), count)
    obs, after = batch.obs[0], batch.next_obs[0]
    assert (obs[:, SEEN] == 10 * obs[:, ACHIEVED]).all() and (after[:, DESIRED] == obs[:, DESIRED]).all()
    columns = obs[:, ACHIEVED], obs[:, DESIRED], batch.reward[0], batch.discount[0], after[:, ACHIEVED]
    rows = list(zip(*(column.tolist() for column in columns), strict=True))
    return {row: rows.count(row) for row in sorted(set(rows))}


def goals_of(rows):
    """The goals of each place."""
    return {place: sorted({row[1] for row in rows if row[0] == place}) for place in sorted({row[0] for row in rows})}


EPISODES: dict[str, Any] = {
    "steps": 9,
    "ends": (4,),
}
"""Places 0 to 3 and the final place 4; then 4.5, 5, 6, 7, and 8, which is open."""


FIRST = (0, 1, 2, 3)
LATER: dict[float, list[int]] = {
    0: [1, 2, 3, 4], 1: [2, 3, 4], 2: [3, 4], 3: [4], 4.5: [5, 6, 7, 8], 5: [6, 7, 8], 6: [7, 8], 7: [8],
}  # fmt: skip


@pytest.mark.parametrize(
    ("strategy", "goals"),
    [
        ("future", LATER),
        ("final", {place: [4 if place in FIRST else 8] for place in LATER}),
        ("episode", {place: [1, 2, 3, 4] if place in FIRST else [5, 6, 7, 8] for place in LATER}),
        ("random", {place: [1, 2, 3, 4, 5, 6, 7, 8] for place in LATER}),
    ],
)
def test_goals_of_each_strategy(strategy, goals):
    rows = found(reader_of(played(**EPISODES), strategy=strategy), 2000)
    assert goals_of(rows) == goals
    for place, goal, reward, discount, after in rows:
        assert reward == (0 if after == goal else -1)
        assert discount == (0 if place == 3 else 0.5)
        assert after == (5 if place == 4.5 else place + 1)


def test_goals_of_a_player_that_waits():
    """It acts in batch steps 0, 3, 4 and 7; the ring keeps what is left of an episode."""
    streams = played(9, turns=(0, 3, 4, 7, 8))
    assert goals_of(found(reader_of(streams))) == {0: [3, 4, 7, 8], 3: [4, 7, 8], 4: [7, 8], 7: [8]}
    short = played(9, turns=(0, 3, 4, 7, 8), rows=5)
    assert goals_of(found(reader_of(short, strategy="episode"))) == {3: [4, 7, 8], 4: [4, 7, 8], 7: [4, 7, 8]}


def test_future_goals_are_equally_likely():
    rows = found(reader_of(played(**EPISODES)), 8000)
    counts = np.array([count for (place, *_), count in rows.items() if place == 0])
    expected = counts.sum() / 4
    assert chi2.ppf(0.001, 3) < (np.square(counts - expected) / expected).sum() < chi2.ppf(0.999, 3)


def test_a_share_keeps_its_own_goals():
    rows = found(reader_of(played(**EPISODES), share=0.25), 4000)
    own = sum(count for (_, goal, *_), count in rows.items() if goal == 100)
    assert abs(own - 3000) < 4 * np.sqrt(4000 * 0.25 * 0.75)
    assert all(reward == -1 for _, goal, reward, *_ in rows if goal == 100)
    assert goals_of(found(reader_of(played(**EPISODES), share=0.0))) == {place: [100] for place in LATER}


def test_three_steps_of_prioritized_rows_by_hand():
    """From place 1, to 2, 3 and 4, where the episode ends: -1 - 1/2 + 0 for goal 4, -1 + 0 - 1/4 for goal 3."""
    reader = reader_of(played(**EPISODES), 3, mt.Prioritized(alpha=1.0, beta=0.0))
    batch = reader.sample([np.random.default_rng(1)], np.array([0.5]), 64)
    batch.errors = np.where(batch.obs[..., ACHIEVED] == 1, 1e6, 1e-6).astype(np.float32)
    reader.learned(batch)
    assert set(found(reader, 90)) == {
        (1, 2, 0 - 1 / 2 - 1 / 4, 0, 4), (1, 3, -1 + 0 - 1 / 4, 0, 4), (1, 4, -1 - 1 / 2 + 0, 0, 4),
    }  # fmt: skip


def test_wrong_rewards_and_observations():
    streams = played(**EPISODES)
    for wrong, came in (
        (lambda achieved, desired, info: 0.0, r"it returned float64 of shape \(\)"),
        (lambda achieved, desired, info: achieved, r"it returned float32 of shape \(300, 1\)"),
        (lambda achieved, desired, info: achieved[:, 0] * np.nan, "must return one finite reward for each of 300"),
        (lambda achieved, desired, info: achieved["x"], r"reward_fn raised for arrays \(300, 1\)"),
    ):
        with pytest.raises(AgentError, match=came):
            found(reader_of(streams, reward_fn=wrong))
    with pytest.raises(ConfigError, match=r"called as Hindsight: reward_fn\(achieved, desired, info\)"):
        mt.Hindsight(reward_fn=lambda achieved: 0)
    with pytest.raises(ConfigError, match="strategy must be one of future, final, episode, random"):
        mt.Hindsight("futur")
    with pytest.raises(ConfigError, match="give reward_fn="):
        reader_of(streams, reward_fn=None)
    blind: Any = Streams(one_group("a"), 1, {0: Storage(4)})
    with pytest.raises(ConfigError, match="achieved_goal and desired_goal are missing"):
        reader_of(blind)
    with pytest.raises(ConfigError, match="dqn: hindsight needs observations that are a Dict"):
        mt.DQN(ONE, spaces.Discrete(2), memory=mt.Replay(hindsight=mt.Hindsight()))
    uneven = spaces.Dict({"achieved_goal": ONE, "desired_goal": spaces.Box(0, 1, (2,), np.float32)})
    with pytest.raises(ConfigError, match="of one shape"):
        mt.DQN(uneven, spaces.Discrete(2), memory=mt.Replay(hindsight=mt.Hindsight()))
