"""Rows drawn and read in compiled code are those that numpy draws and reads, by the same random bits."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
import pytest

import marltrain as mt
from marltrain.jit.compiling import compiled
from marltrain.policies.memory import Storage, Streams
from marltrain.policies.memory.compiled.replay_kernel import (
    CompiledReader,
    Draws,
    Reading,
    below,
    draw,
    reader_of,
    reading_at,
    reads,
)
from marltrain.policies.memory.needs import Column, Needs
from marltrain.policies.memory.readers import UniformReader
from tests.policies.memory.worlds import Record, World, blank, drive, one_group, seeing, two_groups

NEEDS = Needs(False, {})
ROWS = 2
"""Few, so that few rows are enough to try cells for them."""
GAMMA = np.array([0.9, 0.5])
BOTH = np.ones(2, bool)
BY_TURNS = [(t, [t // 7 % 2, 1 - t // 7 % 2, t // 7 % 2]) for t in range(0, 60, 7)]
"""Masks of three players from a batch step on."""


@compiled
def drawn_below(bits: int, generator: int, limit: int, made: Any) -> None:
    for i in range(len(made)):
        made[i] = below(bits, generator, limit)


@compiled
def drawn(address: int, now: int) -> None:
    draw(reading_at(address), now)


@pytest.mark.parametrize("limit", [2, 3, 2048, 50_000, 3 * 2**29, 2**30 + 1, 2**31 - 1])
def test_whole_numbers_are_those_that_numpy_draws(limit):
    """An odd number of 32 bits is asked for: half of a draw of 64 stays in the generator, for either."""
    mine, its = np.random.default_rng(5), np.random.default_rng(5)
    interface = mine.bit_generator.ctypes
    result = np.zeros(1001, np.int64)
    place = ctypes.cast(interface.next_uint32, ctypes.c_void_p).value or 0
    drawn_below(place, interface.state_address, limit, result)
    np.testing.assert_array_equal(result, its.integers(limit, size=len(result)))
    assert mine.integers(7, size=5).tolist() == its.integers(7, size=5).tolist()
    assert mine.bit_generator.state == its.bit_generator.state


def world(make, envs, rows, dense, masks, seed, compare):
    """Streams of a random world of some batch steps; `compare` (batch step) after each."""
    spec = make()
    streams = Streams(spec, envs, {0: Storage(rows)})
    record = Record(spec, envs)
    return streams, lambda: drive(World(spec, envs, seed, dense), streams, record, compare, 60, masks=masks)


@pytest.mark.parametrize(
    ("make", "envs", "rows", "dense", "seats", "masks", "needs"),
    [
        pytest.param(one_group, 9, 40, True, [[0], [2]], [], {}, id="not full yet"),
        pytest.param(one_group, 9, 17, True, [[2], [0, 1]], [], {}, id="it wraps"),
        pytest.param(two_groups, 9, 17, False, [[1, 0], [0]], [], {}, id="ragged"),
        pytest.param(lambda: one_group(masked=False), 11, 23, False, [[0], [1]], [], {}, id="without masks"),
        pytest.param(one_group, 9, 31, True, [[2], [0, 1]], BY_TURNS, {}, id="seats learn by turns"),
        pytest.param(one_group, 9, 31, True, [[2], [0, 1]], BY_TURNS, {"n_step": 3}, id="three steps"),
        pytest.param(one_group, 9, 31, False, [[2], [0, 1]], [], {"n_step": 2, "identity": ("c", "a")}, id="one-hots"),
    ],
)
def test_transitions_are_those_that_are_drawn_and_read_in_numpy(make, envs, rows, dense, seats, masks, needs):
    compared = 0

    def compare(t):
        nonlocal compared
        ring = streams.rings[0]
        native, plain = (kind(ring, seats, Needs(False, {}, **needs)) for kind in (CompiledReader, UniformReader))
        if not plain.size().all():
            return
        mine, its = ([np.random.default_rng([t, k]) for k in range(2)] for _ in range(2))
        batch, expected = native.sample(mine, GAMMA, ROWS), plain.sample(its, GAMMA, ROWS)
        for name in ("cells", "obs", "legal", "action", "reward", "discount", "weight", "next_obs", "next_legal"):
            one, other = getattr(batch, name), getattr(expected, name)
            assert (one is None) == (other is None)
            if one is not None:
                assert one.dtype == other.dtype
                np.testing.assert_array_equal(one, other, err_msg=name)
        assert [rng.bit_generator.state for rng in mine] == [rng.bit_generator.state for rng in its]
        reading = Reading(native)
        draws = Draws(native, reading)
        assert draws.can_draw(BOTH)
        rngs, room = [np.random.default_rng([t, k]) for k in range(2)], reading.new_transitions(2, ROWS)
        reading.set_outputs(room, GAMMA)
        draws.set_generators(rngs)
        draws.refresh()
        drawn(reading.address, ring.now)
        np.testing.assert_array_equal(room.cells, expected.cells)
        assert [rng.bit_generator.state for rng in rngs] == [rng.bit_generator.state for rng in its]
        compared += 1

    streams, go = world(make, envs, rows, dense, masks, 3, compare)
    go()
    assert compared > 20


def test_a_single_row_is_drawn_without_random_numbers():
    streams = Streams(one_group(masked=False), 1, {0: Storage(14)})
    step: Any = blank(streams.spec, 1)
    step.turn[0][:] = True
    for _ in range(2):
        streams.record_step(step)
        streams.record_actions(0, np.zeros((3, 1), np.int64), {})
    mine, its = np.random.default_rng(5), np.random.default_rng(5)
    one = CompiledReader(streams.rings[0], [[2]], NEEDS).sample([mine], GAMMA[:1], ROWS)
    other = UniformReader(streams.rings[0], [[2]], NEEDS).sample([its], GAMMA[:1], ROWS)
    np.testing.assert_array_equal(one.cells, other.cells)
    assert mine.bit_generator.state == its.bit_generator.state


def test_an_agent_without_a_generator_draws_none():
    """Agent 0, whose seat never learned, reads any row; agent 1 draws those that it draws alone."""
    streams = Streams(one_group(masked=False), 11, {0: Storage(14)})
    step: Any = blank(streams.spec, 11)
    step.turn[0][:] = True
    streams.learning(np.array([False, True, True]))
    for _ in range(12):
        streams.record_step(step)
        streams.record_actions(0, np.zeros((3, 11), np.int64), {})
    ring = streams.rings[0]
    reader = CompiledReader(ring, [[0], [1]], NEEDS)
    reading = Reading(reader)
    draws, room = Draws(reader, reading), reading.new_transitions(2, ROWS)
    assert not draws.can_draw(BOTH) and draws.can_draw(np.array([False, True]))
    reading.set_outputs(room, GAMMA)
    draws.set_generators([None, np.random.default_rng(3)])
    draws.refresh()
    drawn(reading.address, ring.now)
    assert room.cells[0].tolist() == [0] * ROWS
    batch = reader.sample([None, np.random.default_rng(3)], GAMMA, ROWS)
    assert batch.weight.tolist() == [[0.0] * ROWS, [1.0] * ROWS]
    np.testing.assert_array_equal(room.cells[1], batch.cells[1])


def test_a_ring_that_has_grown_is_read_where_it_is_now():
    streams = Streams(one_group(masked=False), 40, {0: Storage(3)})
    step: Any = blank(streams.spec, 40)
    step.turn[0][:] = True
    holder = streams.reader([[0]], Needs(True))
    ring = streams.rings[0]
    native, plain = CompiledReader(ring, [[0], [1]], NEEDS), UniformReader(ring, [[0], [1]], NEEDS)
    reading = Reading(native)
    draws, room = Draws(native, reading), reading.new_transitions(2, ROWS)
    for t in range(30):
        step.reward[:] = t
        streams.record_step(step)
        if t > 3:
            reading.set_outputs(room, GAMMA)
            draws.set_generators([np.random.default_rng(t), np.random.default_rng(-t % 97)])
            draws.refresh()
            drawn(reading.address, ring.now)
            rngs = [np.random.default_rng(t), np.random.default_rng(-t % 97)]
            expected = plain.sample(rngs, GAMMA, ROWS)
            np.testing.assert_array_equal(room.cells, expected.cells)
            rngs = [np.random.default_rng(t), np.random.default_rng(-t % 97)]
            np.testing.assert_array_equal(native.sample(rngs, GAMMA, ROWS).reward, expected.reward)
        streams.record_actions(0, np.zeros((3, 40), np.int64), {})
    assert ring.capacity > 30
    assert holder.size() == [29 * 40]


def test_which_transitions_compiled_code_reads():
    def ring(spec, **kept):
        return Streams(spec, 2, {0: Storage(5, **kept)}).rings[0]

    plain = ring(one_group())
    assert reads(plain, NEEDS)
    assert isinstance(reader_of(plain, [[0]], NEEDS), CompiledReader)
    assert not reads(ring(seeing()), NEEDS)
    columns = {"log_prob": Column()}
    assert not reads(ring(one_group(), columns=columns), Needs(False, columns))
    assert type(reader_of(ring(seeing()), [[0]], NEEDS)) is UniformReader


def test_rows_drawn_by_priorities_in_one_call_are_those_of_two():
    """Both draw from their own trees, which get the same errors; a batch with padding is drawn as before."""
    compared, rng = 0, np.random.default_rng(0)
    needs = Needs(False, replay=mt.Replay(400, 1, mt.Prioritized(0.7, 0.5), half_life=60))
    readers: list[Any] = []

    def compare(t):
        nonlocal compared
        ring = streams.rings[0]
        if not readers:
            readers.extend(kind(ring, [[2], [0, 1]], needs) for kind in (CompiledReader, UniformReader))
        if not readers[1].size().all():
            return
        mine, its = ([np.random.default_rng([t, k]) if k == 0 or t % 5 else None for k in range(2)] for _ in range(2))
        batch, expected = readers[0].sample(mine, GAMMA, 7), readers[1].sample(its, GAMMA, 7)
        drawn = expected.weight > 0
        assert (batch.weight[~drawn] == 0).all()
        names = ("cells", "rows", "weight", "obs", "legal", "action", "reward", "discount", "next_obs", "next_legal")
        for name in names:
            np.testing.assert_array_equal(getattr(batch, name)[drawn], getattr(expected, name)[drawn], err_msg=name)
        np.testing.assert_array_equal(batch.effective, expected.effective)
        assert [rng and rng.random() for rng in mine] == [rng and rng.random() for rng in its]
        batch.errors = expected.errors = rng.exponential(size=(2, 7)).astype(np.float32)
        for reader, result in zip(readers, (batch, expected), strict=True):
            reader.learned(result)
        compared += t % 5 != 0

    streams, go = world(one_group, 9, 17, False, BY_TURNS, 3, compare)
    go()
    assert compared > 20


def test_draws_need_a_single_row():
    """Uniform draws, and draws by priorities."""
    streams = Streams(one_group(masked=False), 5, {0: Storage(9)})
    step: Any = blank(streams.spec, 5)
    step.turn[0][:] = True
    ring = streams.rings[0]
    needs = Needs(False, replay=mt.Replay(45, 1, mt.Prioritized()))
    readers = [CompiledReader(ring, [[0], [1, 2]], kind) for kind in (NEEDS, needs)]
    result = []
    for _ in range(3):
        streams.record_step(step)
        result.append([Draws(reader, Reading(reader)).can_draw(BOTH) for reader in readers])
        streams.record_actions(0, np.zeros((3, 5), np.int64), {})
    assert result == [[False, False], [True, True], [True, True]]


def test_more_cells_than_32_bits_are_left_to_numpy(monkeypatch):
    streams = Streams(one_group(masked=False), 40, {0: Storage(9)})
    step: Any = blank(streams.spec, 40)
    step.turn[0][:] = True
    streams.record_step(step)
    for _ in range(4):
        streams.record_actions(0, np.zeros((3, 40), np.int64), {})
        streams.record_step(step)
    reader = CompiledReader(streams.rings[0], [[0], [1, 2]], NEEDS)
    draws = Draws(reader, Reading(reader))
    assert draws.can_draw(BOTH)
    monkeypatch.setattr("marltrain.policies.memory.compiled.replay_kernel.MOST_CELLS", 800)  # ten slots, two players
    assert not draws.can_draw(BOTH)
