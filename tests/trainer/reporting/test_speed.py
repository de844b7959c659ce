"""Rates and times left from counts at given seconds: the clock is a number."""

import pytest

from marltrain.trainer.reporting.speed import Speed


def fed(*marks):
    """A Speed that got (seconds, env steps, updates[, done])."""
    result = Speed()
    for mark in marks:
        result.add(*mark)
    return result


def test_intervals_count_by_their_length():
    """1,000 steps in 0.25 s and 200 in 2.25 s are 1,200 in 2.5 s; the mean of the two rates would be 2,044."""
    assert fed((0, 0, 0), (0.25, 1000, 0), (2.5, 1200, 0)).rate == 480


def test_a_mark_after_a_moment_changes_nothing():
    """1,000 steps a second, then 90 in a millisecond: a rate of 90,000 for so short a time is 1,080 in total."""
    result = fed(*((i / 10, i * 100, 0) for i in range(11)), (1.001, 1090, 0))
    assert result.rate == pytest.approx(1090 / 1.001)


def test_a_rate_covers_the_last_seconds():
    """100 s with 1,000 steps a second, then 7 a second: after 5 s and the distance of two marks, only 7 is left."""
    result = Speed()
    for i in range(1001):
        result.add(i / 10, i * 100, 0)
    assert result.rate == pytest.approx(1000)
    for i in range(1, 61):
        result.add(100 + i / 10, 100_000 + 0.7 * i, 0)  # type: ignore[arg-type]
        assert result.rate is not None and result.rate + 1e-9 >= 7
    assert result.rate == pytest.approx(7)


@pytest.mark.parametrize(("game", "update"), [(0.25, 2.25), (1.0, 60.0), (30.0, 30.0), (60.0, 10.0), (0.01, 7.0)])
def test_rates_of_rounds_of_steps_and_updates_cover_several_rounds(game, update):
    """3,000 steps a round; from the fifth round on, each rate differs from that of whole rounds by half at most.

    In the third and fourth one, after one or two whole rounds, the steps of the next one make at most twice as much.
    Every 0.1 s of the game has a mark, as in a bar. During an update the last rate is on the screen.
    """
    result, now = Speed(), 0.0
    shown: list[list[float]] = [[] for _ in range(12)]
    pictures = max(1, round(game / 0.1))
    result.add(now, 0, 0)
    for n in range(12):
        for i in range(1, pictures + 1):
            result.add(now + game * i / pictures, n * 3000 + 3000 * i // pictures, n)
            shown[n].append((result.rate or 0) * (game + update) / 3000)
        now += game + update
        result.add(now, (n + 1) * 3000, n + 1)
    assert all(0.5 < share <= 2 for one in shown[2:4] for share in one)
    assert all(0.65 < share < 1.5 for one in shown[4:] for share in one)


def test_the_first_round_of_updates_does_not_count_after_the_second():
    """A first test of 10 s and a compilation of 60 s: until the second update 400 steps in 61 s, then 400 in 1 s."""
    result = fed((0, 0, 0), (10, 0, 0), (10.5, 400, 0), (70.5, 400, 1))
    assert result.rate == pytest.approx(400 / 60.5)
    result.add(71, 800, 1)
    assert result.rate == pytest.approx(800 / 61)
    result.add(71.5, 800, 2)
    assert result.rate == pytest.approx(400)


def test_time_without_a_step_counts_with_the_next_step():
    """During a test of 9 s the rate stays; 10 steps after it are 110 steps in 11 s."""
    result = fed((0, 0, 0), (1, 100, 0))
    for seconds in range(2, 10):
        result.add(seconds, 100, 0)
        assert result.rate == 100
    result.add(11, 110, 0)
    assert result.rate == 10


def test_the_time_left_counts_from_the_begin_of_this_process():
    """A run that is resumed at 50 % after an hour makes 10 % in 30 s: 40 % more take 120 s."""
    result = fed((3600, 5000, 7, 0.5), (3630, 6000, 7, 0.6))
    assert result.left() == pytest.approx(120)
    assert result.left(0.2) is None and result.rate == pytest.approx(1000 / 30)


def test_the_time_left_forgets_the_compilation():
    """A first round of 100 s, then 1 % a second: at 3 %, 97 s are left, not 102 / 3 * 97."""
    result = fed((0, 0, 0, 0.0), (100, 10, 1, 0.01), (101, 20, 2, 0.02), (102, 30, 3, 0.03))
    assert result.left() == pytest.approx(97)


def test_nothing_is_known_before_the_first_step():
    result = fed((0, 0, 0, 0.0), (5, 0, 0, 0.0))
    assert result.rate is None and result.left() is None
    result.add(6, 0, 1, 0.0)  # an update, such as one on recorded data
    assert result.rate is None and result.left() is None
    assert fed((0, 0, 0), (5, 10, 0)).left() is None, "no budget"


def test_long_runs_keep_few_marks():
    result = Speed()
    for i in range(100_000):
        result.add(i / 1000 + 1000 * (i // 20_000), i, 0)  # pauses of 1,000 s
    assert len(result._marks) < 400
