import pytest

from benchmarks.learn.results import EPISODES
from benchmarks.learn.rows import Row, row_of
from benchmarks.learn.table import held, needed, table
from benchmarks.learn.tasks import TASKS
from tests.benchmarks.learn.files import write_result


@pytest.mark.parametrize(
    ("figure", "random_play", "tolerance", "least"),
    [(500, 20, 0.05, 476), (-76.6, -500, 0.05, -97.77), (3.0, 0.3, 0.0, 3.0), (None, 20, 0.05, None)],
)
def test_held_rule_by_hand(figure, random_play, tolerance, least):
    row = Row(TASKS[0], "ppo", 1, figure, tolerance=tolerance)
    assert needed(row, random_play) == (None if least is None else pytest.approx(least))
    assert held(row, -1000.0, random_play) is (None if least is None else False)
    if least is not None:
        assert held(row, least + 1e-9, random_play) is True
        assert held(row, least - 1e-9, random_play) is False


def test_table_from_given_files(tmp_path):
    write_result(tmp_path, row_of("cartpole-random"), 0, 20.0)
    for seed, score in enumerate([100.0, 476, 477, 478, 500]):
        write_result(
            tmp_path, row_of("cartpole-ppo"), seed, score, seconds=60.0 + seed, processor_seconds=40.0 - seed,
            sampled_returns={"player_0": [score + 1] * EPISODES}, curve=[[0, 0.0], [50_000, score + 2], [100_000, 0.0]],
        )  # fmt: skip
    for seed, score in enumerate([100.0, 200, 475, 475, 500]):
        write_result(tmp_path, row_of("cartpole-dqn"), seed, score)
    write_result(tmp_path, row_of("acrobot-dqn"), 2, -90.0)
    lines = [[cell.strip() for cell in line.split("|")[1:-1]] for line in table(tmp_path, 100).splitlines()]
    assert {len(line) for line in lines} == {12}
    rows = {(line[0], line[1]): line[2:] for line in lines[2:]}
    steps, seeds, iqm, _, sampled, best, chance, figure, verdict, seconds = rows["CartPole-v1", "ppo"]
    assert (steps, seeds, iqm, chance, figure, verdict) == ("100,000", "5 of 5", "477.0", "20.0", "500.0", "yes")
    assert (sampled, best, seconds) == ("478.0", "479.0", "62 (38)")  # (477 + 478 + 479) / 3; + 1
    assert rows["CartPole-v1", "dqn"][2] == "383.3"  # (200 + 475 + 475) / 3
    assert rows["CartPole-v1", "dqn"][-2:] == ["**no**", "60"]
    assert rows["Acrobot-v1", "dqn"] == ["100,000", "1 of 5", "-90.0", "", "", "0.00", "", "-76.6", "", "60"]
    assert rows["Acrobot-v1", "ppo"][2] == "not run"
