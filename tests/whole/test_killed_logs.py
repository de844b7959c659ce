"""A run that is killed after a checkpoint, and resumed, leaves the files of a run that was not.

The folder is copied at the moment after a checkpoint: what the process still buffers is not in the copy, as after
`kill -9`.
"""

import csv
import json
import os
import shutil
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

import marltrain as mt
from tests.trainer.running import ppo, tables, trainer

STEPS, EVERY = 210, 60
"""Env steps of a run, and between checkpoints: with 3 environments and an update every 12 env steps none divides it."""


class Log(mt.Callback):
    """Logs the number of updates after each, and each return twice, so that a step has several values."""

    def on_update_end(self, moment):
        moment.log("updates", moment.updates)

    def on_episode_end(self, moment):
        moment.log("first", moment.data["returns"][0])


class Copied(mt.Callback):
    """Copies the run's folder after the checkpoint of an env step."""

    def __init__(self, at: int, to: str) -> None:
        self.at, self.to = at, to

    def on_checkpoint(self, moment):
        if moment.data["path"].name == str(self.at):
            shutil.copytree(moment.run_dir, self.to)


class Lines(mt.Callback):
    """A user's callback that writes a file of its own, and buffers it."""

    def on_train_start(self, moment):
        self.path, self.lines = Path(moment.run_dir, "own.txt"), ""

    def on_update_end(self, moment):
        self.lines += f"{moment.env_steps}\n"

    def on_train_end(self, moment):
        self.sync()

    def sync(self):
        with self.path.open("a") as file:
            file.write(self.lines)
            self.lines = ""
            file.flush()
            os.fsync(file.fileno())


def train(folder: str, more: Any = (), **arguments: Any) -> Any:
    loggers = [mt.JSONLinesLogger(every=1e9), mt.CSVLogger(every=1e9)]
    callbacks = [Log(), *loggers, Lines(), mt.Checkpoint(every_steps=EVERY, keep=9), *more]
    result = trainer(steps_per_train=STEPS, update_freq=12, test_freq=None, callbacks=callbacks, run_dir=folder)
    return result.train(ppo(), [1, 1], plot=False, **arguments)


def logged(folder: str) -> dict[str, dict[str, list[tuple[int, float]]]]:
    """Return the values of each tag in each file, with their env steps."""
    lines = [json.loads(line) for line in Path(folder, "scalars.jsonl").read_text().splitlines()]
    with Path(folder, "scalars.csv").open() as file:
        rows = [{tag: float(text) for tag, text in row.items() if text} for row in csv.DictReader(file)]
    events = EventAccumulator(folder, size_guidance={"scalars": 0}).Reload()
    found = {"TensorBoard": {
        tag: [(e.step, e.value) for e in events.Scalars(tag)] for tag in events.Tags()["scalars"]
    }}  # fmt: skip
    for name, table in (("jsonl", lines), ("csv", rows)):
        tags = dict.fromkeys(tag for row in table for tag in row)
        found[name] = {tag: [(row["env_steps"], row[tag]) for row in table if tag in row] for tag in tags}
    return {name: {tag: own for tag, own in one.items() if "user" in tag} for name, one in found.items()}


@pytest.mark.parametrize("at", [EVERY, 2 * EVERY])
def test_a_killed_and_resumed_run_has_every_value(at):
    whole = train("whole", [Copied(at, "killed")])
    resumed = train("killed", resume="killed")
    wanted, found = logged("whole"), logged("killed")
    steps = list(range(12, STEPS + 1, 12))
    assert wanted == found
    for name, one in found.items():
        assert [step for step, _ in one["user/updates"]] == steps, name
        assert len(one["user/first"]) == len(resumed["episodes"]), name
    assert [int(line) for line in Path("killed", "own.txt").read_text().split()] == steps
    assert tables(whole) == tables(resumed)
    for name in ("history", "episodes"):
        table = pd.read_parquet(f"killed/{name}.parquet")
        assert table.drop(columns="seconds").equals(resumed[name].drop(columns="seconds"))


def test_an_output_that_cannot_be_synced_leaves_no_checkpoint_and_names_its_callback():
    class Lost(mt.Callback):
        def sync(self):
            raise OSError("no space")

    with pytest.raises(OSError, match="no space") as raised:
        train("run", [Lost()])
    assert any("in Lost.sync, before a checkpoint" in note for note in raised.value.__notes__)
    assert not list(Path("run", "checkpoints").iterdir())
