"""`marltrain tune`, and training with the settings that it writes."""

import pytest

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


@pytest.mark.parametrize(
    ("words", "message"),
    [
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
