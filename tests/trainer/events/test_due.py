"""Schedules of tests: by episodes, by env steps, by both, or never."""

from __future__ import annotations

import sys
from pathlib import Path

import pandas as pd
import pytest

import marltrain as mt
from marltrain.core.errors import ConfigError
from marltrain.trainer.events.counters import Counters
from marltrain.trainer.events.due import TestSchedule, left, passed
from tests.toys import Identity
from tests.trainer.running import Recorder, changed, ppo, tables, trainer, weights


def test_reached_and_passed_multiples():
    assert [passed(before, now, 10) for before, now in ((-1, 0), (0, 9), (0, 10), (9, 31), (10, 19))] == [
        True, False, True, True, False,
    ]  # fmt: skip
    assert not passed(0, 99, None)
    assert [left(now, 10) for now in (0, 1, 9, 10)] == [10, 9, 1, 10]
    assert left(3, None) == sys.maxsize


def test_a_test_is_due_once():
    timing = TestSchedule(5, 100)

    def at(episodes, env_steps):
        return Counters(episodes=episodes, env_steps=env_steps)

    assert timing.due(at(0, 0))
    timing.tested_at = (0, 0)
    assert [timing.due(at(*counts)) for counts in ((0, 0), (4, 99), (5, 50), (4, 100))] == [False, False, True, True]
    timing.tested_at = (4, 100)
    assert [timing.due(at(*counts)) for counts in ((4, 199), (5, 120))] == [False, True]
    assert not timing.due_at_end(at(4, 100)) and timing.due_at_end(at(4, 101))
    never = TestSchedule(None, None)
    assert not never.due(at(0, 0)) and not never.due_at_end(at(9, 9))


# In a run: batch steps of 3 env steps, of which every third ends 3 episodes -------------------------------------------


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"test_freq": None, "test_freq_steps": 10}, [0, 12, 21, 30, 40]),
        ({"test_freq": 6, "test_freq_steps": 20}, [0, 18, 21, 36, 40]),
        ({"test_freq": 6, "test_freq_steps": 18}, [0, 18, 36, 40]),
        ({"test_freq": 6}, [0, 18, 36, 40]),
        ({"test_freq": None, "test_freq_steps": 2}, [*range(0, 40, 3), 40]),
    ],
)
def test_tests_by_env_steps_and_episodes(settings, expected):
    """40 env steps are 42."""
    result = trainer(steps_per_train=40, **settings).train(ppo(), [1, 1], plot=False)
    assert result["history"]["env_steps"].tolist() == [42 if steps == 40 else steps for steps in expected]


def test_default_of_test_freq_applies_only_alone():
    def freq(**settings):
        return mt.DecentralizedTrainer(Identity, **settings).settings.test_freq

    assert (freq(), freq(test_freq_steps=9), freq(test_freq_steps=9, test_freq=100)) == (100, None, 100)


def test_no_tests():
    """No tests are played and no test environments are built; the folder holds everything but `best`."""
    recorder = Recorder()
    output = trainer(
        steps_per_train=40, test_freq=None, test_fn=lambda *at: recorder.calls.append(at), callbacks=[recorder]
    )
    result = output.train(ppo(), [1, 1])
    assert {call[0] for call in recorder.calls}.isdisjoint({"on_test_start", "on_test_end", 0})
    assert output.run is not None and output.run.context.evaluation is None
    assert (result["num_collected_steps"], result["stop_reason"]) == (42, "steps_per_train")
    assert result["reward_metric_stats"] == []
    assert {path.name for path in Path("run").iterdir()} >= {"last", "metrics.png", "history.parquet"}
    assert not Path("run/best").exists()
    table = pd.read_parquet("run/history.parquet")
    assert len(table) == 0 and {"metric", "judged", "best", "num_unfinished"} <= set(table.columns)
    assert len(output.test(ppo()).returns) == 2  # an explicit test is played


def test_training_does_not_depend_on_tests():
    runs = []
    for often in ({"test_freq": None}, {"test_freq": 3}, {"test_freq": None, "test_freq_steps": 7}):
        agents = ppo()
        result = trainer(steps_per_train=60, **often).train(agents, [1, 1], plot=False)
        runs.append((tables(result)[1], weights(agents)))
    for episodes, learned in runs[1:]:
        assert episodes == runs[0][0]
        assert changed(learned, runs[0][1]) == [False, False]


@pytest.mark.parametrize(
    "functions",
    [{"stop_fn": lambda m, e: False}, {"save_best_fn": print}, {"stop_fn": lambda m, e: False, "save_best_fn": print}],
)
def test_hooks_after_tests_require_tests(functions):
    with pytest.raises(ConfigError, match=r"test_freq=None switches tests off, and .*_fn would never be called: give"):
        trainer(test_freq=None, **functions)
    trainer(test_freq=None, test_freq_steps=5, **functions)


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"test_freq_steps": 0}, "test_freq_steps must be at least 1, got 0"),
        ({"test_freq_steps": "all"}, "test_freq_steps must be an integer or None"),
        ({"max_test_steps": 0}, "max_test_steps must be at least 1, got 0"),
    ],
)
def test_invalid_values(wrong, said):
    with pytest.raises(ConfigError, match=said):
        trainer(**wrong)


def test_resumed_run_has_tests_at_the_same_steps():
    def train(steps, run_dir, **more):
        result = trainer(test_freq=None, test_freq_steps=20, steps_per_train=steps, run_dir=run_dir,
                       callbacks=[mt.Checkpoint(every_steps=15)])  # fmt: skip
        return result.train(ppo(), [1, 1], plot=False, **more)

    whole = train(63, "whole")
    train(30, "half")  # the test at 30 is its last test, and not part of the resumed run
    assert tables(train(63, None, resume="half")) == tables(whole)
    assert whole["history"]["env_steps"].tolist() == [0, 21, 42, 60, 63]
