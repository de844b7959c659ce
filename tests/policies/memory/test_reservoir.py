"""Reservoirs: which decisions they hold, by the law and beside a slow record, draws, saved states, refusals."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

import marltrain as mt
from marltrain.core.errors import ConfigError, SaveError
from marltrain.policies.algorithms.a2c import A2CAlgorithm
from marltrain.policies.batches.batch import ReservoirTransitions
from marltrain.policies.memory import Storage, Streams
from marltrain.policies.memory.needs import Column, Needs
from marltrain.policies.memory.reservoir import COLUMN, KEY
from tests.policies.memory.worlds import Record, World, blank, drive, one_group, same, seeing
from tests.policies.some_batches import GOALS, VECTOR

COLUMNS = {"log_prob": Column(), KEY: COLUMN}
NEEDS = Needs(False, COLUMNS, reservoir=4)
Q999 = 72.1
"""Quantile 0.999 of the chi-squared distribution with 39 degrees of freedom."""


class Offering(World):
    """A world whose players offer about half of their decisions, with uniform keys."""

    def decide(self, group: int) -> Any:
        action, extras = super().decide(group)
        keys = self.rng.random(action.shape, np.float32)
        self.offered = np.where(self.rng.random(action.shape) < 0.5, 1 - keys, 0)
        return action, {**extras, KEY: self.offered.astype(np.float32)}


class Offered(Record):
    """The slow record, which also notes the keys."""

    def record_actions(self, group: int, action: Any, extras: Any) -> None:
        super().record_actions(group, action, extras)
        for row, p in enumerate(self.spec.groups[group].players):
            for begun in self.rows.get(p, []):
                if begun.time == self.now:
                    begun.key = extras[KEY][row, begun.env]


def driven(spec: Any, *, steps: int = 60, seed: int = 0, streams: Streams | None = None) -> tuple[Streams, Offered]:
    """Streams with a reservoir of 4 decisions of each player, beside the record of the same random steps."""
    streams = streams or Streams(spec, 3, {0: Storage(8, COLUMNS, reservoir=4)})
    record, masks = Offered(spec, 3), [(20, [i != 1 for i in range(len(spec.players))])]
    drive(Offering(spec, 3, seed), streams, record, lambda t: None, steps, masks=masks)
    return streams, record


def test_each_of_n_offered_decisions_is_held_with_the_same_probability():
    """500 players offer 40 decisions each, to reservoirs of 10: each row is held by 125 of them on average.

    The counts of a draw without replacement have the covariance n p (1 - p) N / (N - 1) (I - 1 / N).
    """
    players, envs, steps, capacity = 500, 8, 5, 10
    spec, rng = one_group([f"p{i}" for i in range(players)], masked=False), np.random.default_rng(0)
    streams, step = Streams(spec, envs, {0: Storage(3, {KEY: COLUMN}, reservoir=capacity)}), blank(spec, envs)
    step.turn[0][...] = True
    for t in range(steps):
        step.obs[0][..., 0] = t * envs + np.arange(envs)  # the number of the row
        streams.record_step(step)
        keys = 1 - rng.random((players, envs), np.float32)
        streams.record_actions(0, np.zeros((players, envs), np.int64), {KEY: keys})
    held: Any = streams.rings[0].reservoir
    rows = held.columns["obs/vector"][..., 0].astype(int)
    assert all(len(set(own)) == capacity for own in rows.tolist())
    assert (held.offered == envs * steps).all()
    counts, n = np.bincount(rows.reshape(-1), minlength=envs * steps), envs * steps
    share = capacity / n
    spread = np.square(counts - players * share).sum() / (players * share * (1 - share) * n / (n - 1))
    assert spread < Q999


@pytest.mark.parametrize("spec", [one_group(), seeing()], ids=["masked", "stacked images"])
def test_the_largest_keys_are_held_with_their_decisions(spec):
    streams, record = driven(spec)
    held: Any = streams.rings[0].reservoir
    for p in range(len(spec.players)):
        rows = [row for row in record.rows[p] if row.decided and row.learnable and row.key > 0]
        best = sorted(rows, key=lambda row: -row.key)[:4]
        assert held.offered[p] == len(rows) > 8
        found = np.array([[[p] * 4], [np.argsort(-held.columns["key"][p])]])
        obs, legal, action = held.obs_at(found), held.legal_at(found), held.actions_at(found)
        for i, row in enumerate(best):
            assert held.columns["key"][p, found[1, 0, i]] == row.key
            assert same({n: a[0, i] for n, a in obs.items()} if isinstance(obs, dict) else obs[0, i], row.obs)
            assert same(None if legal is None else legal[0, i], row.legal)
            assert action[0, i] == row.action


def test_what_is_restored_goes_on_equally():
    spec = one_group()
    streams, _ = driven(spec)
    streams.record_step(blank(spec, 3))  # states are saved between a Step and its decisions
    state, other = streams.state(), Streams(spec, 3, {0: Storage(8, COLUMNS, reservoir=4)})
    other.restore(state)
    for each in (streams, other):
        each.learning(np.ones(3, bool))  # the trainer sets it anew
        each.record_actions(0, np.zeros((3, 3), np.int64), {name: np.zeros((3, 3), np.float32) for name in COLUMNS})
        driven(spec, seed=1, streams=each)
    mine, theirs = (each.rings[0].reservoir for each in (streams, other))
    assert mine is not None
    assert theirs is not None
    assert (mine.offered == theirs.offered).all()
    for name, column in mine.columns.items():
        np.testing.assert_array_equal(column, theirs.columns[name])


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("held", 5, r"held\[0\] must be from 0 to 4, got 5"),
        ("offered", 3, r"offered\[0\] must be from 4 to"),
        ("key", 0.0, r"key\[0, 0\] must be from .* to 1"),
        ("action", 3, r"action\[0, 0\] must be from 0 to 2, got 3"),
        ("obs/vector", np.nan, r"obs/vector\[0, 0, 0\] must be a finite number"),
    ],
)
def test_impossible_states_are_refused(name, value, message):
    spec = one_group()
    streams, _ = driven(spec)
    streams.record_step(blank(spec, 3))
    state = streams.state()
    array = state.arrays[f"reservoir/0/{name}"] = state.arrays[f"reservoir/0/{name}"].copy()
    array.reshape(-1)[0] = value
    with pytest.raises(SaveError, match=message):
        Streams(spec, 3, {0: Storage(8, COLUMNS, reservoir=4)}).restore(state)


def test_an_agent_of_two_players_draws_from_all_their_decisions():
    """Player a offers 12 decisions and b 6, so two of three draws are from a; the last agent has none."""
    spec, rng = one_group("abc"), np.random.default_rng(0)
    streams, step = Streams(spec, 6, {0: Storage(9, COLUMNS, reservoir=4)}), blank(spec, 6)
    step.turn[0][...], step.legal[0][...] = True, True
    for t in range(4):
        streams.record_step(step)
        keys = np.zeros((3, 6), np.float32)
        keys[0, :] = (1 - rng.random(6, np.float32)) * (t < 2)
        keys[1, :] = (1 - rng.random(6, np.float32)) * (t == 2)
        streams.record_actions(0, np.full((3, 6), t // 2), {KEY: keys, "log_prob": keys})
    reader = streams.reader([[0, 1], [2]], replace(NEEDS, columns={"log_prob": Column()}))
    batch = reader.sample([np.random.default_rng(1), np.random.default_rng(2)], np.ones(2), 9000)
    assert isinstance(batch, ReservoirTransitions)
    assert batch.kept_weight[0] == pytest.approx(1 / 9000)
    assert (batch.kept_weight[1] == 0).all()
    assert (batch.kept_action[0] == 0).mean() == pytest.approx(2 / 3, abs=0.025)  # five deviations
    assert reader.metrics()["reservoir_rows"].tolist() == [8, 0]


@pytest.mark.parametrize(
    ("make", "place"),
    [
        (lambda: mt.NFSP(GOALS, spaces.Discrete(3), memory=mt.Replay(hindsight=mt.Hindsight())), "hindsight"),
        (lambda: OnPolicy(VECTOR, spaces.Discrete(3)), "rollouts"),
    ],
)
def test_other_batches_have_no_place_for_them(make, place):
    with pytest.raises(ConfigError, match=f"a reservoir stands beside transitions.*not beside {place}"):
        make()


class Keeping(A2CAlgorithm):
    """An algorithm of rollouts that asks for a reservoir."""

    def needs(self) -> Needs:
        return replace(super().needs(), reservoir=4)


class OnPolicy(mt.A2C):
    algorithm_class = Keeping
