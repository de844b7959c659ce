import json

import numpy as np
import pytest

from benchmarks.learn.results import EPISODES, RESULTS, path_of, read, read_all
from benchmarks.learn.rows import ROWS, row_of
from marltrain.core.errors import SaveError
from tests.benchmarks.learn.files import write_result

ROW = row_of("cartpole-ppo")


def test_result_is_read_back_and_takes_a_line_for_each_key(tmp_path):
    write_result(tmp_path, ROW, 3, 2.0, returns={"a": [1.0] * EPISODES, "b": [4.0] * EPISODES})
    found = read(ROW, 3, tmp_path)
    assert found.score == 2.5
    assert found.returns.shape == (EPISODES, 2)
    assert np.array_equal(found.curve, [[0, 0], [100_000, 2]])
    assert path_of(ROW, 3, tmp_path).read_text().count("\n") == 13
    assert [result.score for result in read_all(ROW, tmp_path)] == [2.5]


def test_sampled_returns_and_processor_time_are_read_where_they_were_measured(tmp_path):
    write_result(tmp_path, ROW, 0, 2.0, sampled_returns={"player_0": [3.0] * EPISODES}, processor_seconds=40.5)
    write_result(tmp_path, ROW, 1, 2.0)
    measured, other = read_all(ROW, tmp_path)
    assert measured.score == 2.0
    assert measured.sampled is not None and measured.sampled.mean() == 3.0
    assert measured.processor == 40.5
    assert other.sampled is None and other.processor is None


def test_returns_of_the_players_are_added_where_the_task_says_so(tmp_path):
    row = row_of("foraging-8x8-mappo")
    write_result(tmp_path, row, 0, 0.4)
    found = read(row, 0, tmp_path)
    assert found.score == pytest.approx(0.8)
    assert found.curve[-1, 1] == pytest.approx(0.8)


def test_only_the_players_that_count_are_scored(tmp_path):
    row, returns = row_of("tag-mappo"), {"adversary_0": [1.0] * EPISODES, "adversary_1": [3.0] * EPISODES}
    write_result(tmp_path, row, 0, 2.0, returns={**returns, "agent_0": [-50.0] * EPISODES})
    assert read(row, 0, tmp_path).returns.shape == (EPISODES, 2)
    assert read(row, 0, tmp_path).score == 2.0


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"row": "acrobot-ppo"}, "row is 'acrobot-ppo', its place says 'cartpole-ppo'"),
        ({"seed": 1}, "seed is 1, its place says 0"),
        ({"env_steps": 99_999}, "99,999 env steps, its row has 100,000"),
        ({"returns": {"player_0": [1.0] * 99}}, r"returns must list 100 episodes .*got shape \(99, 1\)"),
        ({"sampled_returns": {"player_0": [1.0] * 99}}, r"returns must list 100 episodes .*got shape \(99, 1\)"),
        ({"returns": {"player_0": ["much"] * EPISODES}}, "are not numbers"),
    ],
)
def test_result_of_another_run_is_refused(changed, message, tmp_path):
    write_result(tmp_path, ROW, 0, 1.0, **changed)
    with pytest.raises(SaveError, match=message):
        read(ROW, 0, tmp_path)


def test_file_with_other_keys_is_refused(tmp_path):
    path = path_of(ROW, 0, tmp_path)
    path.parent.mkdir()
    path.write_text(json.dumps({"row": ROW.name}))
    with pytest.raises(SaveError, match="must hold the keys row, seed, command"):
        read(ROW, 0, tmp_path)


def test_committed_results_can_be_read_and_belong_to_rows():
    read_by_rows = {path_of(row, seed) for row in ROWS for seed in row.seeds}
    assert set(RESULTS.glob("**/*.json")) <= read_by_rows
    assert sum(len(read_all(row)) for row in ROWS) == len(list(RESULTS.glob("**/*.json")))
