"""Recorded values of training episodes: in runs of every kind, as columns, and in checkpoints."""

import math
from typing import Any

import numpy as np
import pandas as pd
import pytest

import marltrain as mt
from marltrain.core.errors import EnvError, SaveError
from marltrain.trainer.collecting.fused import FusedCollector
from marltrain.trainer.reporting.episode_records import EpisodeRecords
from marltrain.trainer.reporting.history import EPISODES_FILE, RECORDS
from tests.envs.test_recorded import Counting
from tests.tiers import LONG
from tests.trainer.running import dqn, ppo, tables, trainer

CARTPOLE = "marltrain/CartPole-v1"
VALUES: list[dict[str, Any]] = [
    {"clock": 4, "winner": "ann"}, {}, {"clock": 5.5, "winner": None}, {"late": True}, {"winner": 2},
]  # fmt: skip
COLUMNS: dict[str, list[Any]] = {
    "record/clock": [4, math.nan, 5.5, math.nan, math.nan],
    "record/winner": ["ann", None, None, None, "2"],
    "record/late": [math.nan, math.nan, math.nan, 1, math.nan],
}


def filled(folder, held=100, times=1):
    result = EpisodeRecords(folder, held)
    for episode in range(times * len(VALUES)):
        result.add(episode, VALUES[episode % len(VALUES)])
    return result


def assert_columns(found, expected=COLUMNS):
    assert list(found) == list(expected)
    for name, values in found.items():
        assert pd.Series(values).equals(pd.Series(expected[name], dtype=values.dtype)), name


@pytest.mark.parametrize("held", [100, 3])
def test_columns_of_blocks_of_episodes(tmp_path, held):
    result = filled(tmp_path / "records", held, times=4)
    assert bool(result) and (tmp_path / "records").exists() == (held == 3)
    assert_columns(result.reader().take(20), {name: values * 4 for name, values in COLUMNS.items()})
    reader = result.reader()
    parts = [reader.take(length) for length in (0, 7, 1, 12)]
    for name, values in COLUMNS.items():
        assert_columns({name: np.concatenate([part[name] for part in parts])}, {name: values * 4})
    assert reader.textual == {"record/winner"}
    again = EpisodeRecords(tmp_path / "records", held)
    again.restore(result.state(), 20)
    again.add(20, {"winner": "bob"})
    assert again.reader().take(21)["record/winner"].tolist() == [*COLUMNS["record/winner"] * 4, "bob"]


def test_what_cannot_have_been_recorded_is_refused(tmp_path):
    def changed(**parts):
        state = filled(None).state()
        state.info.update(parts)
        return state

    wrong: list[dict[str, Any]] = [
        {"names": ["clock", "clock"]}, {"texts": [1]}, {"texts": []}, {"names": []}, {"textual": ["late?"]},
    ]  # fmt: skip
    for parts in wrong:
        with pytest.raises(SaveError):
            EpisodeRecords(None, 100).restore(changed(**parts), 5)
    with pytest.raises(SaveError, match="rows/episode"):
        EpisodeRecords(None, 100).restore(filled(None).state(), 4)
    state = filled(None).state()
    state.arrays["rows/episode"][:] = state.arrays["rows/episode"][::-1].copy()
    with pytest.raises(SaveError, match="not in order"):
        EpisodeRecords(None, 100).restore(state, 5)


def test_identifiers_are_no_categories(monkeypatch):
    monkeypatch.setattr("marltrain.trainer.reporting.episode_records.MOST_TEXTS", 2)
    result = EpisodeRecords(None, 100)
    for episode, text in enumerate("abab"):
        result.add(episode, {"name": text})
    with pytest.raises(EnvError, match="'name' and others have had 2 different texts"):
        result.add(4, {"name": "c"})


def test_numbers_and_texts_of_an_environment_are_in_the_table_of_episodes(tmp_path, monkeypatch):
    monkeypatch.setattr("marltrain.trainer.reporting.history.HELD", 100)
    given: dict[str, Any] = {"steps_per_train": 150, "test_freq": None, "run_dir": "run"}
    result = trainer(Counting, record=["clock", "winner", "scores"], **given).train(
        dqn(Counting), [1, 1, 1], plot=False
    )
    episodes = result["episodes"]
    assert len(episodes) > 20 and (tmp_path / "run" / RECORDS).exists()
    assert episodes["record/clock"].tolist() == episodes["length"].tolist()
    assert episodes["record/scores/ann"].tolist() == [length / 2 for length in episodes["length"]]
    assert episodes["record/winner"].tolist() == ["ann" if length % 2 else None for length in episodes["length"]]
    pd.testing.assert_frame_equal(pd.read_parquet(tmp_path / "run" / EPISODES_FILE), episodes)


@pytest.mark.parametrize("how", [{}, *LONG * [{"vector": "subproc", "num_workers": 2}]])
def test_a_native_run_is_the_same_with_recording_also_when_it_is_resumed(how):
    """CartPole's episodes end at any time, and begin at random; each has the number of its steps in its record."""

    def train(folder, record, steps=300, **more):
        callbacks = [mt.Checkpoint(every_steps=150)]
        result = trainer(CARTPOLE, {}, record=record, steps_per_train=steps, run_dir=folder, callbacks=callbacks, **how)
        return result, result.train(ppo(CARTPOLE, {}), [1], plot=False, **more)

    _, plain = train("plain", [])
    result, recorded = train("recorded", ["steps", "episode"])
    assert result.run is not None and isinstance(result.run.collector, FusedCollector) == (not how)
    train("resumed", ["steps", "episode"], 150)
    _, resumed = train("resumed", ["steps", "episode"], resume="resumed")
    episodes = recorded["episodes"]
    assert len(episodes) > 10 and episodes["record/steps"].tolist() == episodes["length"].tolist()
    assert tables(resumed) == tables(recorded)
    recorded["episodes"] = episodes.drop(columns=["record/steps", "record/episode"])
    recorded["history"] = recorded["history"].drop(columns=["record/steps", "record/episode"])
    assert tables(recorded) == tables(plain)
