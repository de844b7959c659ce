"""Agents in the folder of a run: what a killed run leaves, and what a resumed run makes of it."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

import marltrain as mt
from tests.trainer.running import ppo, tables, trainer

KILLED_AT = 45


def copied(moment: mt.Moment) -> None:
    """Copy the run's folder as it is when the best agents of the test at env step 45 have been saved."""
    if moment.env_steps == KILLED_AT and moment.data["path"].name == "best":
        shutil.copytree("run", "killed")


@pytest.fixture
def whole() -> Any:
    """A run of 60 env steps in which every test is the best so far; checkpoints are written every 30."""
    return run(60, run_dir="run", more=[mt.LambdaCallback(on_checkpoint=copied)])


def run(steps: int, *, more: Any = (), resume: Any = None, **settings: Any) -> Any:
    tests = iter(range(99))
    callbacks = [mt.Checkpoint(every_steps=30), *more]
    one = trainer(
        steps_per_train=steps, test_freq=None, test_freq_steps=15, callbacks=callbacks,
        reward_metric=lambda rewards: float(next(tests)) if resume is None else 10.0 + next(tests), **settings,
    )  # fmt: skip
    return one.train(ppo(), [1, 1], plot=False, resume=resume)


def best_of(folder: str) -> int:
    return int(json.loads(Path(folder, "best", "agents.json").read_text(encoding="utf-8"))["env_steps"])


def test_best_agents_of_a_later_test_are_removed_until_it_is_played_again(whole):
    """They were saved at 45, the checkpoint is of 30, and the resumed run ends at 36, without this test."""
    assert best_of("run") == 60 and best_of("killed") == KILLED_AT
    again = shutil.copytree("killed", "again")
    result = run(60, run_dir=None, resume=str(again))
    assert tables(result)[1] == tables(whole)[1] and best_of("again") == 60
    shorter = trainer(
        steps_per_train=36, test_freq=None, test_freq_steps=15, run_dir=None, reward_metric=lambda r: -1.0
    )
    rows = shorter.train(ppo(), [1, 1], plot=False, resume="killed")["history"]
    assert rows["env_steps"].tolist() == [0, 15, 30, 36] and rows["env_steps"][rows["best"]].tolist() == [0, 15, 30]
    assert not Path("killed", "best").exists() and Path("killed", "last").exists()


def test_best_agents_of_the_checkpoint_or_before_it_stay(whole):
    """The checkpoint is of 60, as the best agents; the test at 66 is worse."""
    more = trainer(steps_per_train=66, test_freq=None, test_freq_steps=15, run_dir=None, reward_metric=lambda r: -1.0)
    more.train(ppo(), [1, 1], plot=False, resume="run")
    assert best_of("run") == 60
