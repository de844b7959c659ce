import numpy as np
import pytest

from benchmarks.learn.compare import PAIRS, compared, difference, verdict
from benchmarks.learn.rows import row_of
from tests.benchmarks.learn.files import write_result


def test_difference_of_interquartile_means_by_hand():
    """Of 5 seeds the best and the worst are left out: 5 - 2."""
    found = difference(np.array([1.0, 2, 3, 10, 100]), np.array([0.0, 1, 2, 3, 90]), 200)
    assert found.iqm == 3.0
    assert found.low < 3 < found.high


def test_seeds_of_both_rows_are_resampled():
    """With one row constant the interval is that of the other; with both spread it is wider than either."""
    spread, constant = np.array([0.0, 1, 2, 3, 4]), np.full(5, 2.0)
    first, second, both = (
        difference(*pair, 500) for pair in ((spread, constant), (constant, spread), (spread, spread))
    )
    assert -2 <= first.low < 0 < first.high <= 2
    assert -2 <= second.low < 0 < second.high <= 2
    assert both.high - both.low > max(first.high - first.low, second.high - second.low)
    assert [float(value[0]) for value in difference(constant, constant, 50)] == [0, 0, 0]


@pytest.mark.parametrize(
    ("low", "high", "says"),
    [(0.1, 2, "better"), (-2, -0.1, "worse"), (-1, 1, "no difference shown"), (0, 1, "no difference shown")],
)
def test_verdicts(low, high, says):
    assert verdict(low, high) == says


def test_pairs_are_rows_of_one_task():
    assert all(row_of(first).task is row_of(second).task for first, second in PAIRS)


def test_comparisons_from_given_files(tmp_path):
    """A pair is shown once all seeds of both rows are there."""
    for seed in range(5):
        write_result(tmp_path, row_of("mountaincar-rainbow"), seed, -100.0 - seed)
        write_result(tmp_path, row_of("mountaincar-dqn"), seed, -110.0)
        write_result(tmp_path, row_of("lunarlander-rainbow"), seed, 200.0)
    write_result(tmp_path, row_of("lunarlander-dqn"), 0, 200.0)
    lines = compared(tmp_path, 200).splitlines()
    assert len(lines) == 3
    task, names, iqm, interval, says = (cell.strip() for cell in lines[2].split("|")[1:-1])
    assert (task, names, iqm, says) == ("MountainCar-v0", "rainbow - dqn", "8.00", "better")
    low, high = map(float, interval.split(" to "))
    assert 6 <= low < 8 < high <= 10
