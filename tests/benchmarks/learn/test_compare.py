from benchmarks.learn.compare import PAIRS, compared
from benchmarks.learn.rows import row_of
from tests.benchmarks.learn.files import write_result


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
