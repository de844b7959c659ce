"""First priorities from errors: which rows get one, and when, against a slow record; and runs in one process."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import marltrain as mt
from marltrain.core.errors import AgentError, ConfigError
from marltrain.policies.memory import Storage, Streams
from marltrain.policies.memory.initial_errors import BLOCK, NewRows
from marltrain.policies.memory.needs import Needs
from marltrain.policies.memory.ring_part import RingPart
from tests.policies.memory.test_priorities import WORLDS, chain, go_on
from tests.policies.memory.worlds import Record, World, drive

ERRORS = mt.Prioritized(initial="error")


def outcome_is_known(row: Any, record: Record, player: int, n_step: int) -> bool:
    """Whether the transition of up to n steps from a closed row can have no more steps."""
    for _ in range(n_step - 1):
        if row.end is not None:
            return True
        row = row.next
        waits = row.time == record.now or record.open.get((player, row.env)) is row
        if row.closed_at is None or not row.learnable:
            return not waits or (row.decided and not row.learnable)
    return True


def world(spec: Any, num_envs: int, capacity: int, dense: bool, columns: Any = None) -> tuple[Any, Any, Any]:
    result = spec()
    streams = Streams(result, num_envs, {g: Storage(capacity) for g in range(len(result.groups))})
    return World(result, num_envs, 1, dense=dense, end_chance=0.15), streams, Record(result, num_envs)


MASKS = [(9, [True, False, True, True]), (17, [True] * 4), (40, [False, True, True, True]), (46, [True] * 4)]


@pytest.mark.parametrize(("spec", "num_envs", "capacity", "dense", "seats"), WORLDS)
@pytest.mark.parametrize("n_step", [1, 3])
def test_each_row_is_taken_once_when_its_outcome_is_known(spec, num_envs, capacity, dense, seats, n_step):
    """Turns, ends, deaths, stacks, episodes given up, masks; rows that are overwritten before are never taken."""
    result, streams, record = world(spec, num_envs, capacity, dense)
    ring, players = streams.rings[0], sorted({p for own in seats for p in own})
    own = [ring.group.players.index(p) for p in players]
    rows, taken = NewRows(ring, own, n_step), set[Any]()

    def check(t):
        found = {(ring.group.players[p], time, env) for time, p, env in rows.take().tolist()}
        expected = {
            (p, row.time, row.env) for p in players for row in record.drawable(p, ring.oldest)
            if outcome_is_known(row, record, p, n_step)
        } - taken  # fmt: skip
        assert found == expected
        taken.update(found)

    masks = [(t, mask[: len(result.spec.players)]) for t, mask in MASKS]
    drive(result, streams, record, check, 70, resets=(25,), cuts=[(13, [0]), (33, [0, num_envs - 1])], masks=masks)
    assert len(taken) > 100


@pytest.mark.parametrize(("spec", "num_envs", "capacity", "dense", "seats"), WORLDS)
def test_a_part_of_a_ring_goes_on_elsewhere(spec, num_envs, capacity, dense, seats):
    """Streams of one environment that begin with the rows that are needed return the same rows from there on."""
    result, streams, record = world(spec, num_envs, 40, dense)
    ring, one = streams.rings[0], Streams(result.spec, 1, {0: Storage(2)})
    rows, other, env = NewRows(ring, range(ring.group.size), 3), list[Any](), num_envs - 1

    def check(t):
        found = rows.take()
        if t == 20:
            RingPart.of(ring, rows.earliest).columns(slice(env, env + 1)).load(one.rings[0])
            other.append(NewRows(one.rings[0], range(ring.group.size), 3))
            one.rings[0].register(other[0])
            other[0].take()
        elif t > 20:
            one.record_step(cut_step(result.step, env))
            mine = {tuple(row[:2]) for row in found.tolist() if row[2] == env}
            assert {tuple(row[:2]) for row in other[0].take().tolist()} == mine
        if t >= 20:
            mimic.append(t)

    mimic = list[int]()
    decided = Streams.record_actions

    def both(self, group, action, extras):
        decided(self, group, action, extras)
        if self is streams and group == 0 and mimic:
            decided(one, 0, action[:, env : env + 1], {})

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Streams, "record_actions", both)
        drive(result, streams, record, check, 50)


def cut_step(step: Any, env: int) -> Any:
    """The Step of one environment."""
    from dataclasses import fields, replace

    def cut(value: Any, axis: int) -> Any:
        if isinstance(value, dict):
            return {name: cut(array, axis) for name, array in value.items()}
        if isinstance(value, tuple | list):
            return type(value)(cut(array, axis) for array in value)
        return None if value is None else value[(slice(None),) * axis + (slice(env, env + 1),)]

    of_envs = ("ended", "episode", "state", "final_state")
    return replace(step, **{f.name: cut(getattr(step, f.name), 0 if f.name in of_envs else 1) for f in fields(step)})


class Rate:
    """The error of a transition is ten times its first observed value, plus the number of the agent."""

    def __init__(self, agents: int) -> None:
        self.agents, self.shapes = agents, set[Any]()

    def gammas(self) -> Any:
        return np.full(self.agents, 0.9)

    def __call__(self, batch: Any) -> Any:
        self.shapes.add(batch.weight.shape)
        return (10 * batch.obs[..., 0] + np.arange(self.agents)[:, None]).astype(np.float32)


def reader_of(streams: Any, seats: Any, n_step: int = 1) -> Any:
    replay = mt.Replay(10_000, n_step, ERRORS)
    reader = streams.reader(seats, Needs(False, n_step=n_step, replay=replay))
    reader.rate_new_rows(Rate(len(seats)))
    return reader


def test_rows_are_drawn_once_their_outcome_is_known_and_only_new_ones_are_rated():
    """Three steps: of nine decisions, of which eight are closed, six outcomes are known; priorities are exact."""
    streams = chain(9, envs=2)
    reader = reader_of(streams, [[0], [0]], n_step=3)
    assert reader.size().tolist() == [0, 0]
    reader.admit()
    slots = reader.choice._slots()
    assert reader.size().tolist() == [12, 12]
    assert (slots[0, :6] == 10 * np.arange(6, dtype=np.float32)[:, None] + np.float32(1e-6)).all()
    assert (slots[1, :6] == np.float32(1) + 10 * np.arange(6, dtype=np.float32)[:, None] + np.float32(1e-6)).all()
    assert (slots[:, 6:] == 0).all()
    batch = reader.sample([np.random.default_rng(0)] * 2, np.full(2, 0.9), 8)
    batch.errors = np.full((2, 8), 7.0, np.float32)
    reader.learned(batch)
    before = slots.copy()
    go_on(streams, 9)
    reader.admit()
    assert (slots[:, :6] == before[:, :6]).all() and (slots[0, 6] == np.float32(60.000001)).all()
    assert reader.size().tolist() == [14, 14] and reader.initial._rate.shapes == {(2, BLOCK)}


def test_errors_that_were_sent_are_taken_and_the_others_are_computed():
    streams = chain(5, envs=2)
    reader = reader_of(streams, [[0]])
    reader.initial.send(np.zeros(3, np.int64), np.array([6, 1, 999]), np.array([0.5, 0.25, 9.0], np.float32))
    reader.admit()
    slots = reader.choice._slots()[0]
    expected = np.array([[0.0, 0.25], [10.0, 10.0], [20.0, 20.0], [0.5, 30.0]], np.float32) + np.float32(1e-6)
    assert (slots[:4] == expected).all()


def test_the_state_holds_the_rows_without_a_priority():
    """A restored reader rates the rows whose outcome was not known, and no others."""
    streams = chain(6)
    reader = reader_of(streams, [[0]], n_step=2)
    reader.admit()
    again = reader_of(streams, [[0]], n_step=2)
    again.restore(reader.state())
    assert again.size().tolist() == [4] and again.initial.rows.take().tolist() == []
    reader.initial.send(np.zeros(1, np.int64), np.array([4]), np.array([0.5], np.float32))
    go_on(streams, 6)
    assert reader.state().arrays["priority"][0, 4, 0] == np.float32(0.500001)  # what was sent is not saved otherwise
    assert again.initial.rows.take().tolist() == [[4, 0, 0]]


def test_an_error_that_is_not_finite_is_refused():
    streams = chain(3)
    reader = reader_of(streams, [[0]])
    reader.initial.send(np.zeros(1, np.int64), np.zeros(1, np.int64), np.array([np.nan], np.float32))
    with pytest.raises(AgentError, match="priorities must be finite and at least 0, got the error nan of a row of ag"):
        reader.admit()


# runs in one process


def error_by_hand(ring: Any, number: int, flat: Any) -> Any:
    """|sum of gamma^i r_i + gamma^m max Q - Q(a)| over 3 steps by a linear network, read from the ring row by row."""
    weight, bias = flat[:8].reshape(4, 2), flat[8:]
    obs, first, env = ring.obs[next(iter(ring.obs))], number // ring.num_envs, number % ring.num_envs
    total, factor, t = 0.0, 1.0, first
    for _ in range(3):
        slot = t % ring.capacity
        total, factor = total + factor * ring.reward[0, slot, env], factor * 0.99
        following = ring.next[0, slot, env]
        if following < 0:
            seen = next(iter(ring.ends.obs.values()))[-2 - following]
            factor *= not ring.terminated[0, slot, env]
            break
        t, seen = following, obs[0, following % ring.capacity, env]
    q = obs[0, first % ring.capacity, env] @ weight + bias
    return abs(total + factor * (seen @ weight + bias).max() - q[ring.action[0, first % ring.capacity, env]])


def run(folder: Any = None, resume: Any = None, **settings: Any) -> Any:
    """Train linear DQN on CartPole; return the trainer, the result and the agent."""
    given = {"learning_starts": 60, "memory": mt.Replay(n_step=3, prioritized=ERRORS), **settings.pop("agent", {})}
    agents = mt.make_agents("dqn", "marltrain/CartPole-v1", seed=0, batch_size=16, network=mt.MLP(()), **given)
    trainer: Any = mt.DecentralizedTrainer("marltrain/CartPole-v1", **{
        "seed": 3, "num_train_envs": 4, "num_test_envs": 1, "episodes_per_test": 1, "test_freq": None,
        "update_freq": 20, "steps_per_train": 400, "progress": False, "run_dir": folder or False, **settings,
    })  # fmt: skip
    return trainer, trainer.train(agents, [1], plot=False, resume=resume), agents[0]


def test_priorities_by_hand():
    """Without updates, the priority of every row whose outcome is known is its error by the initial weights."""
    trainer, result, agent = run(agent={"learning_starts": 10**6})
    assert result["num_updates"] == 0
    arrays = agent.state().arrays
    flat = np.concatenate([arrays["net/q/head0.weight"].ravel(), arrays["net/q/head0.bias"]])
    scheduler = trainer.run.context.schedulers[0]
    ring, slots = scheduler.streams.rings[0], scheduler._reader.choice._slots()[0]
    kept = slots.ravel()[: 98 * 4]
    expected = [error_by_hand(ring, number, flat) for number in range(98 * 4)]
    np.testing.assert_allclose(kept, np.array(expected) + 1e-6, rtol=1e-4, atol=1e-6)
    assert (slots[100:] == 0).all() and np.count_nonzero(ring.next < -1) > 4


@pytest.mark.parametrize("agent", [{}, {"jit_compile": True, "memory": mt.Replay(prioritized=ERRORS)}])
def test_a_resumed_run_equals_one_that_was_not_stopped(tmp_path, agent):
    """Checkpoints between updates, with rows that wait for their outcome; without checkpoints the run is the same."""

    def state(folder: Any, **more: Any) -> Any:
        kept = {} if folder is None else {"callbacks": [mt.Checkpoint(every_steps=132)]}
        _, result, own = run(folder, agent=dict(agent), **kept, **more)
        return result["num_updates"], own.state()

    updates, whole = state(tmp_path / "whole")
    state(tmp_path / "parts", steps_per_train=132)
    for others, again in (state(tmp_path / "parts", resume=tmp_path / "parts"), state(None)):
        assert updates == others > 0 and whole.info == again.info
        assert all(np.array_equal(array, again.arrays[name]) for name, array in whole.arrays.items())


def test_values_are_checked():
    with pytest.raises(ConfigError, match=r"Prioritized: initial must be one of error, got .eror.\. Did you mean"):
        mt.Prioritized(initial="eror")
    with pytest.raises(ConfigError, match="initial must be at least"):
        mt.Prioritized(initial=-1.0)
