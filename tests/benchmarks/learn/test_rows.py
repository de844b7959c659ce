import pytest

from benchmarks.learn import results
from benchmarks.learn.rows import RANDOM, ROWS, TUNING_SEEDS, Row, row_of
from benchmarks.learn.tasks import TASKS
from benchmarks.learn.training import settings_of
from marltrain.core.errors import ConfigError
from marltrain.envs import list_environments

TRAINED = [row for row in ROWS if row.algo != RANDOM and not row.missing]


def test_names_are_unique_and_every_task_has_random_play_and_a_row():
    assert len({row.name for row in ROWS}) == len(ROWS)
    for task in TASKS:
        first, *others = [row for row in ROWS if row.task is task]
        assert first.algo == RANDOM
        assert others


def test_rows_of_the_issue():
    figures = {row.name: (row.steps, row.figure) for row in ROWS}
    assert figures["acrobot-dqn"] == (100_000, -76.6)
    assert figures["lunarlander-continuous-sac"] == (500_000, 260.0)
    assert figures["hopper-td3"] == (1_000_000, 3606.0)
    assert sum(figure is not None for _, figure in figures.values()) == 50


def test_environments_have_a_name_or_are_the_example():
    names = list_environments()
    assert [task.name for task in TASKS if task.env not in names] == ["apples"]


def test_three_seeds_where_one_takes_over_an_hour():
    task = TASKS[0]
    assert len(Row(task, "ppo", 1, minutes=60).seeds) == 5
    assert len(Row(task, "ppo", 1, minutes=61).seeds) == 3
    assert len(Row(task, "ppo", 1, minutes=300, most_seeds=1).seeds) == 1
    assert max(max(row.seeds) for row in ROWS) < TUNING_SEEDS


@pytest.mark.parametrize("row", TRAINED, ids=lambda row: row.name)
def test_settings_are_those_of_the_rows_env_steps(row):
    settings = settings_of(row)
    assert row.settings()["trainer"].get("steps_per_train", row.steps) == row.steps
    assert settings["trainer"]["steps_per_train"] == row.steps
    assert settings["trainer"]["test_freq_steps"] * 20 == row.steps


def test_row_without_algorithm_or_settings_is_missing():
    assert Row(TASKS[0], "nothing", 1).missing == "nothing is not available"
    assert Row(TASKS[-1], "dqn", 1).missing == "no tuned settings"
    assert not Row(TASKS[0], RANDOM, 0).missing


def test_unknown_row_suggests_the_nearest():
    with pytest.raises(ConfigError, match="Did you mean 'cartpole-ppo'"):
        row_of("cartpole-pop")


def test_missing_seeds_come_in_order_of_cost(tmp_path):
    cheap, dear = Row(TASKS[0], "ppo", 1, minutes=1), Row(TASKS[0], "dqn", 1, minutes=90)
    unknown = Row(TASKS[0], "nothing", 1, minutes=0.1)
    done = results.path_of(cheap, 1, tmp_path)
    done.parent.mkdir()
    done.touch()
    missing = results.missing_of([dear, unknown, cheap], tmp_path)
    assert [(row.algo, seed) for row, seed in missing] == [
        ("ppo", 0), ("ppo", 2), ("ppo", 3), ("ppo", 4), ("dqn", 0), ("dqn", 1), ("dqn", 2),
    ]  # fmt: skip
