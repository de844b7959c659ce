"""`marltrain find`."""

import os
import shlex
import signal

import pandas as pd
import pytest

from marltrain.cli import main
from marltrain.trainer.training.run import Run
from tests.cli.running import SYMBOLS, refused, said

SHORT = ["--env-arg", "players=2", "--env-arg", "length=3", "--set", "network=MLP((4,))", "--seeds", "2",
         "--steps", "24", "--num-train-envs", "3", "--num-test-envs", "2", "--update-freq", "12", "--batch-size", "12",
         "--episodes-per-test", "2", "--test-freq-steps", "12"]  # fmt: skip


@pytest.mark.parametrize(
    ("what", "words", "names"),
    [
        ("learning_rate", ["--algo", "ppo", "--rates", "1", "1e-3", "--by", "metric"], ["1.0", "0.001"]),
        ("optimizer", ["--algo", "player_*=ppo", "--optimizers", "sgd", "adam", "--set", "epochs=1"], ["sgd", "adam"]),
        ("agent", ["--algo", "ppo", "--algo", "a2c"], ["ppo", "a2c"]),
    ],
)
def test_candidates_are_compared(capsys, tmp_path, what, words, names):
    picture, curves = tmp_path / "a.png", tmp_path / "a.csv"
    printed = said(capsys, "find", what, SYMBOLS, *words, *SHORT, "--out", picture, "--curves", curves)
    assert printed.startswith(f"best {what} by metric: ") and str(picture) in printed and picture.exists()
    table = pd.read_csv(curves)
    assert sorted(map(str, set(table["candidate"]))) == sorted(names) and len(table) == 2 * 2 * 3


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["rates", SYMBOLS, "--algo", "ppo"], "find compares one of learning_rate, optimizer, agent, got 'rates'"),
        (
            ["agent", SYMBOLS, "--algo", "ppo", "--rates", "1"],
            "--rates has a meaning only for `marltrain find learning",
        ),
        (["optimizer", SYMBOLS, "--algo", "ppo", "--seed", "3"], "Did you mean '--seeds'"),
        (["agent", SYMBOLS, "--algo", "ppo"], "at least 2 different candidates"),
    ],
)
def test_wrong_words_are_refused(capsys, words, message):
    assert message in refused(capsys, "find", *words)


def test_the_output_is_checked_before_anything_is_trained(capsys, tmp_path, monkeypatch):
    monkeypatch.setattr("marltrain.tools.finding.find.train_all", None)
    picture = str(tmp_path / "rates.txt")
    assert "a picture's name must end in one of" in refused(
        capsys, "find", "learning_rate", SYMBOLS, "--algo", "ppo", "--out", picture
    )
    (tmp_path / "file").touch()
    picture = str(tmp_path / "file" / "rates.png")
    assert "cannot be written" in refused(
        capsys, "find", "learning_rate", SYMBOLS, "--algo", "ppo", "--out", picture, code=1
    )


def test_an_interrupted_search_says_how_to_go_on(capsys, tmp_path, monkeypatch):
    """The command that is printed goes on with the search, and prints what an uninterrupted one does."""
    words = ["find", "learning_rate", SYMBOLS, "--algo", "ppo", "--rates", "1", "1e-3", *SHORT]
    files = ["--out", str(tmp_path / "a.png"), "--curves", str(tmp_path / "a.csv")]
    whole = said(capsys, *words, *files)
    expected = (tmp_path / "a.csv").read_text()
    storage = ["--storage", str(tmp_path / "a search")]
    with monkeypatch.context() as patch:
        played, collect = iter(range(1000)), Run.collect

        def interrupted(self):
            steps = collect(self)
            if next(played) == 5:
                os.kill(os.getpid(), signal.SIGINT)
            return steps

        patch.setattr(Run, "collect", interrupted)
        assert main([*words, *files, *storage]) == 130
        (line,) = capsys.readouterr().out.splitlines()
        assert shlex.split(line.removeprefix("resume with: ")) == ["marltrain", *words, *files, *storage]
        played = iter(range(1000))
        assert main([*words, *files]) == 130
        assert capsys.readouterr().out == "interrupted: nothing is kept to resume from; --storage keeps the search\n"
    assert said(capsys, *shlex.split(line.removeprefix("resume with: "))[1:]) == whole
    assert (tmp_path / "a.csv").read_text() == expected
    monkeypatch.setattr(Run, "collect", None)
    assert said(capsys, *words, *files, *storage) == whole  # the search is finished
    line = refused(capsys, *words, *files, *storage, "--set", "epochs=7")
    assert "settings.epochs is given only now. Repeat the arguments of the search, or name another folder: --st" in line
