"""Places of buffers: by hand, and no two that are in use overlap whatever the order."""

import pytest
from hypothesis import given, settings, strategies as st

from marltrain.policies.tape.assembly.arena import ALIGNMENT, Arena


def test_a_place_is_used_again():
    arena = Arena()
    assert [arena.take(64), arena.take(1), arena.take(200)] == [0, 64, 128]
    arena.give(64)
    assert arena.take(64) == 64
    assert arena.size == 128 + 256


def test_neighbors_that_are_free_become_one():
    arena = Arena()
    places = [arena.take(64) for _ in range(4)]
    for place in (places[0], places[2], places[1]):
        arena.give(place)
    assert arena.take(192) == 0
    assert arena.size == 256


def test_the_smallest_place_that_fits_is_taken():
    arena = Arena()
    large, _, small, _ = arena.take(640), arena.take(64), arena.take(128), arena.take(64)
    arena.give(large)
    arena.give(small)
    assert arena.take(100) == small
    assert arena.take(64) == large


def test_without_reuse_no_place_is_used_twice():
    arena = Arena(reuses=False)
    arena.give(arena.take(64))
    assert arena.take(64) == 64
    assert arena.size == 128


def test_a_place_is_given_back_once():
    arena = Arena()
    place = arena.take(8)
    arena.give(place)
    with pytest.raises(KeyError):
        arena.give(place)


@settings(deadline=None)
@given(st.lists(st.tuples(st.booleans(), st.integers(1, 700)), max_size=60))
def test_buffers_in_use_never_overlap(steps):
    arena, used = Arena(), dict[int, int]()
    for takes, number in steps:
        if takes or not used:
            place = arena.take(number)
            assert place % ALIGNMENT == 0 and place + number <= arena.size
            for start, size in used.items():
                assert place + number <= start or start + size <= place
            used[place] = number
        else:
            place = sorted(used)[number % len(used)]
            del used[place]
            arena.give(place)
    for place in list(used):
        arena.give(place)
    assert arena.take(max(arena.size, 1)) == 0  # everything is one free place again
