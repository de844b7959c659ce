import numpy as np

from benchmarks.learn import pictures
from benchmarks.learn.pictures import aligned, draw, pictured
from benchmarks.learn.results import Result
from benchmarks.learn.rows import row_of
from tests.benchmarks.learn.files import write_result


def test_curves_are_interpolated_in_their_common_range():
    returns = np.zeros((100, 1))
    first = Result(returns, np.array([[0.0, 1], [100, 2]]), 1.0)
    second = Result(returns, np.array([[0.0, 0], [50, 10], [150, 20]]), 1.0)
    steps, scores = aligned([first, second])
    assert np.array_equal(steps, [0, 50, 100])
    assert scores.tolist() == [[1.0, 1.5, 2.0], [0.0, 10.0, 15.0]]


def test_every_algorithm_has_its_own_color():
    assert len(set(pictures.COLOR_OF.values())) == len(pictures.ALGORITHMS)


def test_picture_of_a_task_with_results(tmp_path, monkeypatch):
    monkeypatch.setattr(pictures, "RESAMPLES", 50)
    row = row_of("cartpole-ppo")
    write_result(tmp_path, row_of("cartpole-random"), 0, 20.0)
    assert not pictured(tmp_path)
    for seed in range(2):
        write_result(tmp_path, row, seed, 400.0 + seed)
    assert pictured(tmp_path) == [row.task]
    draw(row.task, tmp_path / "cartpole.png", tmp_path)
    assert (tmp_path / "cartpole.png").read_bytes()[1:4] == b"PNG"
