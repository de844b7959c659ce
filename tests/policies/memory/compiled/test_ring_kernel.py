"""Rows written by compiled code are those that the ring writes by itself."""

import sys

import numpy as np
import pytest
from gymnasium import spaces

from marltrain.core.spec import EnvSpec
from marltrain.jit.compiling import compiled
from marltrain.jit.views import address_of
from marltrain.policies.memory import Storage, Streams
from marltrain.policies.memory.compiled import ring_kernel
from marltrain.policies.memory.compiled.ring_kernel import MOST_COLUMNS, ring_record, rows_at, takes
from marltrain.policies.memory.needs import Column
from tests.policies.memory.test_ring import equal
from tests.policies.memory.worlds import World, blank, one_group, player, rollouts, seeing, two_groups, uniform
from tests.tiers import LONG

ENVS = 3
COLUMNS = {"log_prob": Column(), "raw": Column((2,), "float64")}
GAMMA = np.array([0.9])


# In two parts of the environments, as several threads do it; the part with environment 0 comes last.


@compiled
def decide(address, time):
    r = rows_at(address)
    ring_kernel.record_actions(r, time, 1, r.envs)
    ring_kernel.record_actions(r, time, 0, 1)
    ring_kernel.note_learning(r, time)


@compiled
def fits(address, time):
    return ring_kernel.fits(rows_at(address), time)


@compiled
def arrive(address, time, rewards):
    r = rows_at(address)
    ring_kernel.settle_ends(r, time)
    ring_kernel.record_step(r, time, rewards, 1, r.envs)
    ring_kernel.record_step(r, time, rewards, 0, 1)


def neighbors():
    """Two groups whose players follow one another: b's and c's rows are of other sizes than a's."""
    return EnvSpec.of("world", [player("a", actions=2), player("b", masked=False), player("c", masked=False)])


class Pair:
    """Two streams of the same world: one written by `Ring`, and one by compiled code as far as that may."""

    def __init__(self, spec, capacity, seed, dense, end_chance):
        self.world = World(spec, ENVS, seed, dense=dense, end_chance=end_chance)
        storage = {g: Storage(capacity, COLUMNS) for g in range(len(spec.groups))}
        self.slow, self.quick = (Streams(spec, ENVS, storage) for _ in range(2))
        self.rng = np.random.default_rng(seed)
        self.action = [np.zeros((group.size, ENVS), np.int64) for group in spec.groups]
        self.extras = [
            {name: np.zeros((group.size, ENVS, *column.shape), column.dtype) for name, column in COLUMNS.items()}
            for group in spec.groups
        ]
        self.written = 0

    def decide(self):
        for action, extras in zip(self.action, self.extras, strict=True):
            action[...] = self.rng.integers(2, size=action.shape)
            for values in extras.values():
                values[...] = self.rng.random(values.shape)
        for g in self.slow.rings:
            self.slow.record_actions(g, self.action[g], self.extras[g])

    def fused_steps(self):
        """Make up to 9 batch steps in both, the second one's by compiled code, the last one's too where it may."""
        rings = self.quick.rings.values()
        most = min(int(self.rng.integers(1, 10)), *(ring.room + 1 for ring in rings))
        to_the_end = most <= min(ring.room for ring in rings) and self.rng.random() < 0.7
        mask = self.rng.random(len(self.world.spec.players)) < 0.7
        for streams in (self.slow, self.quick):
            streams.learning(mask)
        records = [
            ring_record(ring, self.world.step, self.action[ring.index], self.extras[ring.index]) for ring in rings
        ]
        places, starts = [address_of(table) for table in records], [ring.now for ring in rings]
        for result in range(1, most + 1):
            self.decide()
            for place, start in zip(places, starts, strict=True):
                decide(place, start + result - 1)
            step = self.world.next_step()
            self.slow.record_step(step)
            fit = all(fits(place, start + result) for place, start in zip(places, starts, strict=True))
            by_kernel = fit and (result < most or to_the_end)
            if by_kernel:
                for place, start in zip(places, starts, strict=True):
                    arrive(place, start + result, address_of(step.reward))
                self.written += 1
            else:
                break
        for ring in rings:
            ring.advanced(result, result if by_kernel else result - 1)
        if not by_kernel:
            self.quick.record_step(step)


def assert_equal(slow, quick):
    one, other = slow.state(), quick.state()
    assert one.info == other.info
    assert one.arrays.keys() == other.arrays.keys()
    for name, array in one.arrays.items():
        np.testing.assert_array_equal(array, other.arrays[name], err_msg=name)


@pytest.mark.parametrize(("dense", "end_chance"), [(True, 0.03), (False, 0.1), *LONG * [(True, 0.0), (False, 0.4)]])
@pytest.mark.parametrize("capacity", [1, 7, 20, *LONG * [2, 400]])
@pytest.mark.parametrize("spec", [one_group, neighbors])
def test_compiled_rows_are_those_of_the_ring(spec, capacity, dense, end_chance):
    """200 batch steps and more: rings of 1 to 20 rows wrap around, over whole episodes, ends, and rows that stay open.

    dense: all players have the turn.
    """
    pair = Pair(spec(), capacity, capacity, dense, end_chance)
    first = pair.world.next_step(first=True)
    for streams in (pair.slow, pair.quick):
        streams.record_step(first)
    for _ in range(60):
        pair.fused_steps()
        assert_equal(pair.slow, pair.quick)
    assert pair.quick.rings[0].now > 60
    assert pair.written > 150


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("spec", [one_group, neighbors])
def test_readers_are_given_the_same(spec, seed):
    """Rollouts are taken every third time, so that rows which wait for it make rings of 6 rows grow."""
    pair = Pair(spec(), 6, seed, seed < 2, 0.05)
    readers = [
        [make(streams, [[group.players[0]]], COLUMNS) for group in pair.world.spec.groups
         for make in (rollouts, uniform)]
        for streams in (pair.slow, pair.quick)
    ]  # fmt: skip
    first = pair.world.next_step(first=True)
    for streams in (pair.slow, pair.quick):
        streams.record_step(first)
    for turn in range(60):
        pair.fused_steps()
        for slow, quick in zip(*readers, strict=True):
            assert slow.size().tolist() == quick.size().tolist()
            if not slow.size().all() or (slow.needs.on_policy and turn % 3):
                continue
            if slow.needs.on_policy:
                equal(slow.take(GAMMA), quick.take(GAMMA))
            else:
                equal(*(r.sample([np.random.default_rng(turn)], GAMMA, 11) for r in (slow, quick)))
    assert_equal(pair.slow, pair.quick)
    assert pair.quick.rings[0].capacity > 7
    assert pair.written > 60


def test_a_row_by_hand():
    """Two players, two environments, three rows: batch step 4 takes the place of batch step 1, in slot 1.

    In it, the part of player b in environment 0 ended; in batch step 4, that of player a in environment 1.
    """
    spec = one_group("ab", masked=False)
    streams = Streams(spec, 2, {0: Storage(2, {"log_prob": Column()})})
    ring, step = streams.rings[0], blank(spec, 2)
    step.turn[0][...] = True
    action, extras = np.array([[0, 1], [2, 1]]), {"log_prob": np.array([[0.1, 0.2], [0.3, 0.4]], np.float32)}
    for _ in range(4):
        streams.record_step(step)
        streams.record_actions(0, action * 0, {"log_prob": extras["log_prob"] * 0})
    (entry,) = ring.ends.add(ring.stored(step.final_obs[0]), None, np.array([1]), np.array([0]), 2)
    ring.next[1, 1, 0] = -2 - entry
    place = address_of(record := ring_record(ring, step, action, extras))
    assert record["shown"] == 1
    assert (ring.now, ring.capacity, ring.room) == (3, 3, sys.maxsize)
    assert fits(place, 4)
    step.turn[0][1, 0], ring.open[1, 0] = False, 1
    assert not fits(place, 4)  # player b's row of batch step 1 in environment 0 stays open
    step.turn[0][1, 0], ring.open[1, 0] = True, 3
    unused, ring.ends.num_unused[0] = ring.ends.num_unused[0], 0
    step.terminated[0, 1] = True
    assert not fits(place, 4)  # the end table has no entry left
    ring.ends.num_unused[0] = unused
    step.obs[0][...] = np.arange(8).reshape(2, 2, 2)
    step.reward[...] = [[5, 6], [7, 8]]
    decide(place, 3)
    arrive(place, 4, address_of(step.reward))
    assert ring.action[:, 0].tolist() == action.tolist()
    assert ring.extras["log_prob"][:, 0].tolist() == extras["log_prob"].tolist()
    assert ring.reward.tolist() == [[[5, 6], [0, 0], [0, 0]], [[7, 8], [0, 0], [0, 0]]]
    assert ring.next.tolist() == [[[4, -2 - (entry - 1)], [-1, -1], [3, 3]], [[4, 4], [-1, -1], [3, 3]]]
    assert np.argwhere(ring.terminated).tolist() == [[0, 0, 1]]
    assert ring.ends.unused[: ring.ends.num_unused[0]].tolist() == [*range(entry - 1), entry]
    assert ring.ends.time[entry - 1] == 4
    assert ring.drawable_count.tolist() == [4, 4]
    assert ring.acted.tolist() == [[[True] * 2, [False] * 2, [True] * 2]] * 2
    assert ring.obs["vector"][:, 1].tolist() == step.obs[0].tolist()
    assert ring.obs["vector"][:, 0].tolist() == np.zeros((2, 2, 2)).tolist()


def test_which_rings():
    def of(spec, columns=0):
        names = {f"column{i}": Column() for i in range(columns)}
        return Streams(spec, 1, {0: Storage(3, names)}).rings[0]

    assert takes(of(one_group()))
    assert takes(of(one_group(), MOST_COLUMNS - 1))
    assert not takes(of(one_group(), MOST_COLUMNS))
    assert not takes(of(two_groups()))  # its players do not follow one another
    assert not takes(of(seeing()))  # frames are linked row by row
    several = spaces.Dict({f"view{i}": spaces.Box(0, 255, (4, 4), np.uint8) for i in range(MOST_COLUMNS + 1)})
    assert not takes(of(EnvSpec.of("world", [player("a", several, masked=False)])))
