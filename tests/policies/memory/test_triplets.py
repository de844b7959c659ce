"""Triplets of rows of one episode: their rows, goals and offsets by hand, and the law of the offsets."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from gymnasium import spaces
from scipy.stats import chi2

import marltrain as mt
from marltrain.core.errors import ConfigError
from marltrain.core.seeds import generator
from marltrain.policies.batches.batch import TripletTransitions
from marltrain.policies.memory import Storage, Streams
from marltrain.policies.memory.needs import Needs
from marltrain.policies.memory.sequences import reader_class
from tests.policies.memory.test_hindsight import ACHIEVED, DESIRED, EPISODES, GOALS, LATER, ONE, SEEN, played
from tests.policies.memory.worlds import one_group


def reader_of(streams, offsets="uniform", seats=((0,),), **settings):
    needs = Needs.of(mt.Replay(40, settings.pop("n_step", 1), triplets=mt.Triplets(offsets), **settings))
    return streams.reader(seats, needs, reader_class(needs))


def sampled(reader, count=4000, gamma=0.5, seed=0):
    return reader.sample([np.random.default_rng(seed)], np.array([gamma]), count)


def found(reader, count=4000, gamma=0.5):
    """The triplets (place of i, of k, of the goal j, offset of k, of j), each with its count."""
    batch = sampled(reader, count, gamma)
    whole, near, far = batch.goal_obs[0], batch.near_obs[0], batch.far_obs[0]
    for obs in (whole, near):
        assert (obs[:, [ACHIEVED, SEEN]] == batch.obs[0][:, [ACHIEVED, SEEN]]).all()
    assert (batch.obs[..., DESIRED] == 100).all() and (batch.next_obs[..., DESIRED] == 100).all()
    assert (near[:, DESIRED] == far[:, ACHIEVED]).all() and (far[:, SEEN] == 10 * far[:, ACHIEVED]).all()
    assert (far[:, DESIRED] == whole[:, DESIRED]).all()
    columns = whole[:, ACHIEVED], far[:, ACHIEVED], whole[:, DESIRED], batch.near_offset[0], batch.offset[0]
    rows = list(zip(*(column.tolist() for column in columns), strict=True))
    return {row: rows.count(row) for row in sorted(set(rows))}


def expected(later):
    """All triplets of places whose later places are known; the last of them begins no row."""
    return {
        (i, (i, *goals)[near], goals[n - 1], near, n)
        for i, goals in later.items() for n in range(1, len(goals) + 1) for near in (range(1, n) if n > 1 else (0,))
    }  # fmt: skip


@pytest.mark.parametrize("offsets", ["uniform", "geometric"])
def test_triplets_stay_in_an_episode(offsets):
    """The first episode ends at place 4, which is a goal but no row; place 8 is open."""
    rows = found(reader_of(played(**EPISODES), offsets), gamma=0.8)
    assert set(rows) == expected(LATER)


def test_a_player_that_waits_and_overwritten_rows():
    """It acts in batch steps 0, 3, 4 and 7: offsets count its decisions. A short ring has lost row 0."""
    turns = (0, 3, 4, 7, 8)
    later: dict[float, list[int]] = {0: [3, 4, 7, 8], 3: [4, 7, 8], 4: [7, 8], 7: [8]}
    assert set(found(reader_of(played(9, turns=turns)))) == expected(later)
    del later[0]
    assert set(found(reader_of(played(9, turns=turns, rows=5)))) == expected(later)


def test_death_truncation_and_a_seat_that_does_not_learn():
    streams = played(3)
    streams.learning(np.zeros(1, bool))
    step: Any = mt.Step.empty(streams.spec, 1)
    for t in range(3, 9):
        step.turn[0][:] = t != 8
        step.obs[0][..., [ACHIEVED, DESIRED, SEEN]] = t, 100, 10 * t
        step.final_obs[0][..., [ACHIEVED, DESIRED, SEEN]] = t, 100, 10 * t
        step.truncated[:] = step.ended[:] = t == 8
        streams.record_actions(0, np.zeros((1, 1), np.int64), {})
        streams.record_step(step)
        streams.learning(np.full(1, t >= 5))
    assert set(found(reader_of(streams))) == expected({0: [1, 2], 1: [2], 5: [6, 7, 8], 6: [7, 8], 7: [8]})


def chi_squared(counts, shares):
    """Whether counts fit the shares, neither too badly nor too well."""
    counts, wanted = np.array(counts), np.sum(counts) * np.array(shares)
    statistic = (np.square(counts - wanted) / wanted).sum()
    return chi2.ppf(0.001, len(counts) - 1) < statistic < chi2.ppf(0.999, len(counts) - 1)


@pytest.mark.parametrize(
    ("offsets", "gamma", "shares"),
    [
        ("uniform", 0.5, [1 / 7] * 7),
        ("geometric", 0.8, [*(0.2 * 0.8**n for n in range(6)), 0.8**6]),  # offsets 1 to 6, and the rest
    ],
)
def test_the_law_of_the_offsets(offsets, gamma, shares):
    """From place 0 of an episode of 7 steps; the row in between is uniform."""
    batch = sampled(reader_of(played(9, ends=(7,)), offsets), 40_000, gamma)
    first = batch.obs[0, :, ACHIEVED] == 0
    offset, near = batch.offset[0, first], batch.near_offset[0, first]
    assert chi_squared(np.bincount(offset.astype(int), minlength=8)[1:], shares)
    for n in (5, 7):
        assert chi_squared(np.bincount(near[offset == n].astype(int), minlength=n)[1:], [1 / (n - 1)] * (n - 1))
    assert (near[offset == 1] == 0).all() and (near[offset == 2] == 1).all()


@pytest.mark.parametrize(("gamma", "only"), [(0.0, {1}), (1.0, {7})])
def test_bounds_of_the_geometric_law(gamma, only):
    batch = sampled(reader_of(played(9, ends=(7,)), "geometric"), 200, gamma)
    assert set(batch.offset[0, batch.obs[0, :, ACHIEVED] == 0]) == only


def test_rows_are_chosen_by_priorities_and_windows():
    streams = played(**EPISODES)
    reader = reader_of(streams, prioritized=mt.Prioritized(alpha=1.0, beta=0.0), n_step=3)
    batch = sampled(reader, 64)
    batch.errors = np.where(batch.obs[..., ACHIEVED] == 1, 1e6, 1e-6).astype(np.float32)
    reader.learned(batch)
    assert set(found(reader, 200)) == expected({1: LATER[1]})
    newest = reader_of(played(**EPISODES), window=3)
    assert set(found(newest)) == expected({i: goals for i, goals in LATER.items() if i >= 5})


def test_stacked_agents_draw_what_each_draws_alone():
    streams = played(30, ends=(4, 13))
    both = reader_of(streams, "geometric", seats=((0,), (0,), (0,)))
    batch: Any = both.sample([generator(1, "update"), None, generator(2, "update")], np.array([0.9, 0.9, 0.5]), 33)
    assert batch.weight[1].sum() == 0 and (batch.offset[1] == 1).all() and np.isfinite(batch.goal_obs).all()
    for k, seed, gamma in ((0, 1, 0.9), (2, 2, 0.5)):
        alone: Any = reader_of(streams, "geometric").sample([generator(seed, "update")], np.array([gamma]), 33)
        for name in ("obs", "reward", "weight", *TripletTransitions.added):
            if getattr(alone, name) is not None:
                assert (getattr(batch, name)[k] == getattr(alone, name)[0]).all(), name


def test_wrong_settings_and_observations():
    replay = mt.Replay(triplets=mt.Triplets())
    with pytest.raises(ConfigError, match="offsets must be one of geometric, uniform"):
        mt.Triplets("near")
    with pytest.raises(ConfigError, match="hindsight replaces the goals of transitions, triplets give goals beside"):
        mt.Replay(hindsight=mt.Hindsight(), triplets=mt.Triplets())
    with pytest.raises(ConfigError, match="triplets needs observations that are a Dict of observation, achieved_goal"):
        reader_of(Streams(one_group("a"), 1, {0: Storage(4)}))
    with pytest.raises(ConfigError, match="dqn: triplets needs observations that are a Dict"):
        mt.DQN(ONE, spaces.Discrete(2), memory=replay)
    with pytest.raises(ConfigError, match=r"dqn: memory has triplets=.*losses do not read: leave triplets= out"):
        mt.DQN(GOALS, spaces.Discrete(2), memory=replay)
