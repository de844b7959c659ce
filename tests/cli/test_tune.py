"""`marltrain tune`, and training with the settings that it writes."""

import os
import shlex
import signal

import pandas as pd
import pytest

from marltrain.cli import main
from marltrain.trainer.training.run import Run
from tests.cli.running import SYMBOLS, refused, said

ENV = ["--env-arg", "players=2", "--env-arg", "length=3"]
FEW = ["--num-train-envs", "3", "--num-test-envs", "2", "--update-freq", "12", "--batch-size", "12",
       "--episodes-per-test", "2"]  # fmt: skip


def test_settings_are_searched_and_trained_with(capsys, tmp_path):
    words = ["--set", "network=MLP((4,))", "--set", "learning_rate=0.001", "0.1", "--set", "epochs=1", "2", "2"]
    study = ["--trials", "2", "--steps", "24", "--fresh-seeds", "2", "--out", tmp_path / "a"]
    printed = said(capsys, "tune", SYMBOLS, "--algo", "ppo", *ENV, *words, *study, *FEW)
    assert "2 trials: 2 complete" in printed and "fresh seeds: metric" in printed
    assert sorted(path.name for path in (tmp_path / "a").iterdir()) == ["history.png", "settings.toml", "trials.csv"]
    train = printed.splitlines()[-1].split()[1:]
    assert train[-1] == str(tmp_path / "a" / "settings.toml")
    said(capsys, *train, "--no-progress", "--run-dir", tmp_path / "run")
    assert (tmp_path / "run" / "config.json").exists()


def test_a_population_is_trained_and_its_best_member_goes_on(capsys, tmp_path):
    words = ["--mode", "pbt", "--members", 4, "--replaced", 0.5, "--steps", 24, "--test-freq-steps", 8, "--seed", 3]
    words += ["--set", "network=MLP((4,))", "--set", "learning_rate=0.001", "0.1", "--out", tmp_path / "a"]
    printed = said(capsys, "tune", SYMBOLS, "--algo", "ppo", *ENV, *words, *FEW)
    assert "4 members, " in printed and "100 episodes on fresh seeds: mean return" in printed
    names = sorted(path.name for path in (tmp_path / "a").iterdir())
    assert names == ["best", "members.csv", "population.png", "settings.toml"]
    table = pd.read_csv(tmp_path / "a" / "members.csv")
    assert set(table["env_steps"]) == {0, 9, 18, 24} and (table["copied"] >= 0).sum() == 4
    train = printed.splitlines()[-1].split()[1:]
    assert train[-2:] == ["--weights", str(tmp_path / "a" / "best")]
    complete = said(capsys, *train, "--print-config")
    assert 'network = "MLP(hidden=(4, )' in complete and "steps_per_train = 24" in complete


@pytest.mark.parametrize(
    "mode",
    [
        ["--mode", "pbt", "--members", "4", "--set", "learning_rate=0.001", "0.1", "--storage", "{}/p"],
        [
            "--trials",
            "2",
            "--fresh-seeds",
            "2",
            "--set",
            "learning_rate=0.001",
            "0.1",
            "--storage",
            "sqlite:///{}/x.db",
        ],
    ],
    ids=["pbt", "study"],
)
def test_an_interrupted_search_says_how_to_go_on(capsys, tmp_path, monkeypatch, mode):
    """The command that is printed goes on, and prints what an uninterrupted search does."""
    words = ["tune", SYMBOLS, "--algo", "ppo", *ENV, *FEW, "--steps", "48", "--test-freq-steps", "16"]
    words += ["--set", "network=MLP((4,))", "--out", str(tmp_path / "o")]
    (tmp_path / "whole").mkdir()
    whole = said(capsys, *words, *(word.format(tmp_path / "whole") for word in mode))
    stored = [word.format(tmp_path) for word in mode]
    with monkeypatch.context() as patch:
        played, collect = iter(range(1000)), Run.collect

        def interrupted(self):
            steps = collect(self)
            if next(played) == 10:
                os.kill(os.getpid(), signal.SIGINT)
            return steps

        patch.setattr(Run, "collect", interrupted)
        assert main([*words, *stored]) == 130
        line = capsys.readouterr().out.splitlines()[-1]
        assert shlex.split(line.removeprefix("resume with: ")) == ["marltrain", *words, *stored]
    assert said(capsys, *shlex.split(line.removeprefix("resume with: "))[1:]) == whole


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--algo", "ppo", "--mode", "pbt", "--storage", "sqlite:///a.db"], "--storage must be a folder, got 'sqlite"),
        (["--algo", "ppo", "--mode", "pbt", "--trials", "3"], "--trials has a meaning only with --mode study"),
        (["--algo", "ppo", "--members", "8"], "--members has a meaning only with --mode pbt"),
        (["--algo", "ppo", "--mode", "pbt", "--set", "epochs=1", "2", "2"], "ranges of numbers that are not whole"),
        (["--algo", "ppo", "--set", "lr=1", "2"], "Did you mean"),
        (["--algo", "ppo", "--set", "epochs=1", "--set", "epochs=2"], "--set names 'epochs' twice"),
        (["--algo", "player_0=ppo"], "tune needs one algorithm for all players"),
    ],
)
def test_wrong_words_are_refused(capsys, words, message):
    assert message in refused(capsys, "tune", SYMBOLS, *words)


def test_settings_come_from_one_place(capsys, tmp_path):
    line = refused(capsys, "train", SYMBOLS, "--algo", "ppo", "--tuned", "--settings", "a.toml")
    assert "--tuned and --settings both give settings" in line
    (tmp_path / "a.toml").write_text("[agents]\n")
    line = refused(capsys, "train", SYMBOLS, "--algo", "ppo", "--settings", tmp_path / "a.toml")
    assert "has the tables [trainer] and [agents]" in line
