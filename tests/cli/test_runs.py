import json
import os
import sys
from pathlib import Path

import pytest

import marltrain as mt
from marltrain.cli import main
from marltrain.tools.saved_run import open_run
from tests.cli.running import RELAY, SYMBOLS, refused, said
from tests.trainer.running import ppo, weights

ROCKS = "marltrain/rock_paper_scissors_v1"


def test_without_tests_the_last_agents_are_tested_and_played(capsys, tmp_path):
    words = [SYMBOLS, "--algo", "ppo", "--env-arg", "length=3", "--steps-per-train", 64, "--no-progress"]
    run = tmp_path / "r"
    out = said(capsys, "train", *words, "--test-freq", "none", "--run-dir", run)
    assert "metric" not in out.splitlines()[1]
    assert f"  {run / 'best'}" not in out
    out = said(capsys, "test", run, "--env", SYMBOLS, "--episodes", 2, "--max-test-steps", "1e3")
    assert out.startswith(f"{run} holds no best agents, since no test was played: these are the last, {run / 'last'}\n")
    assert "2 episodes of 3.0 env steps, seed" in out
    assert "best: there is no such folder" in refused(capsys, "test", run, "--env", SYMBOLS, "--agents", "best", code=1)
    assert "invalid integer value: 'never'" in refused(capsys, "train", *words, "--test-freq", "never")


@pytest.mark.filterwarnings("ignore:max_test_steps=4 cut a test")
def test_tests_by_env_steps_and_their_limit(capsys, tmp_path):
    words = [SYMBOLS, "--algo", "ppo", "--env-arg", "length=30", "--steps-per-train", 64, "--no-progress"]
    run = tmp_path / "r"
    said(capsys, "train", *words, "--test-freq-steps", 32, "--max-test-steps", 64, "--episodes-per-test", 2,
         "--run-dir", run)  # fmt: skip
    config = json.loads((run / "config.json").read_text())["trainer"]
    assert (config["test_freq"], config["test_freq_steps"], config["max_test_steps"]) == (None, 32, 64)
    out = said(capsys, "test", run, "--env", SYMBOLS, "--episodes", 2, "--max-test-steps", 4)
    assert "2 episodes of 2.0 env steps, 2 of them cut, seed" in out


def rocks_trainer(folder: Path) -> mt.DecentralizedTrainer:
    return mt.DecentralizedTrainer(
        ROCKS, num_train_envs=2, num_test_envs=2, update_freq=16, steps_per_train=32, test_freq=None, seed=0,
        progress=False, run_dir=folder,
    )  # fmt: skip


def test_members_of_a_pool_play(capsys, tmp_path):
    """A member takes the place of the pool; without one, tests play all in turn, and `play` names the option."""
    run, learner = tmp_path / "pool", ppo(ROCKS)[0]
    rocks_trainer(run).train([learner, mt.OpponentPool(learner, every_steps=16)], [1, 0], plot=False)
    out = said(capsys, "play", run, "--agents", "last", "--text", "--member", 1, "--seed", 0)
    assert out.splitlines()[-2].startswith("episode 0: returns")
    assert "--member 2. Their numbers are 0, 1, 2" in refused(capsys, "play", run, "--agents", "last", "--text")
    assert "no member 9" in refused(capsys, "play", run, "--agents", "last", "--text", "--member", 9)
    assert "2 episodes" in said(capsys, "test", run, "--episodes", 2)
    assert "2 episodes" in said(capsys, "test", run, "--episodes", 2, "--member", 0)


def test_a_member_needs_a_pool(capsys, run):
    assert "--member 1" in refused(capsys, "test", run, "--env", SYMBOLS, "--member", 1)


def test_of_a_league_the_first_match_plays(capsys, tmp_path):
    run = tmp_path / "league"
    league = mt.League(ppo(ROCKS)[0], exploiters=1, league_exploiters=0, every_steps=16)
    rocks_trainer(run).train(league, rotate=True, plot=False)
    found = open_run(run).agents
    main, exploiter, *pools = mt.load(run / "last")
    assert len(found) == 2 and len(pools) == 2 and isinstance(found[1], mt.MixedAgent)
    (of_run,), (of_main,), (other,) = weights([found[0]]), weights([main]), weights([exploiter])
    assert all((of_run[name] == of_main[name]).all() for name in of_main)
    assert any((of_run[name] != other[name]).any() for name in of_main)
    assert "2 episodes" in said(capsys, "test", run, "--episodes", 2)


def test_a_run_is_tested(capsys, run):
    out = said(capsys, "test", run, "--env", SYMBOLS, "--episodes", 9, "--seed", 5)
    assert "9 episodes of 7.0 env steps, seed 5" in out
    assert [line.split()[0] for line in out.splitlines()[1:]] == ["player", "player_0", "player_1"]
    assert said(capsys, "test", run, "--env", SYMBOLS, "--episodes", 9, "--seed", 5) == out
    assert said(capsys, "test", run, "--env", SYMBOLS, "--episodes", 9, "--seed", 6) != out
    assert said(capsys, "test", run, "--env", SYMBOLS, "--episodes", 9, "--seed", 5, "--sampled") != out
    assert "seed " in said(capsys, "test", run, "--env", SYMBOLS, "--agents", "last", "--random", "player_1")


def test_the_folder_of_a_run_may_be_the_working_folder(capsys, run, monkeypatch):
    monkeypatch.chdir(run)
    assert "mean return" in said(capsys, "test", ".", "--env", SYMBOLS, "--episodes", 2)
    assert "there is no such folder" in refused(capsys, "test", "best/none", code=1)
    for path, words in (("/", "/config.json: cannot be read"), ("x" * 5000, "too long"), ("a\0b", "null byte")):
        assert words in refused(capsys, "test", path, code=1)
        assert words in refused(capsys, "play", path, code=1)


def test_winners_are_counted(capsys, tmp_path):
    words = ["--algo", "dqn", "--self-play", "--episodes-per-train", 1, "--run-dir", tmp_path / "r", "--no-progress"]
    said(capsys, "train", "pettingzoo/classic/tictactoe_v3", *words, "--episodes-per-test", 4)
    out = said(
        capsys, "test", tmp_path / "r", "--episodes", 20, "--seed", 0, "--random", "player_1", "--random", "player_2"
    )
    head, *players = [line.split() for line in out.splitlines()[1:]]
    assert head == ["player", "return", "won", "lost"]
    assert players[0][2] == players[1][3]
    assert players[0][3] == players[1][2]


def test_a_run_is_filmed(capsys, tmp_path):
    folder = tmp_path / "r"
    words = ["--algo", "random", "--episodes-per-train", 1, "--run-dir", folder, "--no-progress"]
    assert "RandomAgent never learns" in refused(capsys, "train", RELAY, *words)
    words[1] = "dqn"
    said(capsys, "train", RELAY, *words)
    out = said(
        capsys, "play", folder, "--env", RELAY, "--out", tmp_path / "r.gif", "--episodes", 2, "--seed", 1, "--fps", 20,
        "--explore",
    )  # fmt: skip
    assert [line.partition(":")[0] for line in out.splitlines()] == [
        "episode 0",
        "episode 1",
        f"seed 1, filmed to {tmp_path}/r.gif",
    ]
    assert (tmp_path / "r.gif").stat().st_size > 0


def test_a_run_of_an_unnamed_environment_is_told_its_name(capsys, run, tmp_path):
    copy = tmp_path / "copy"
    copy.mkdir()
    (copy / "best").symlink_to(run / "best")
    config = json.loads((run / "config.json").read_text())
    (copy / "config.json").write_text(json.dumps({**config, "env": "Identity"}))
    assert "the run's environment is 'Identity'. No file may choose" in refused(capsys, "test", copy, code=1)
    assert "mean return" in said(capsys, "test", copy, "--env", SYMBOLS)


@pytest.mark.parametrize(
    "name",
    [
        "hostile:run",
        "gymnasium/hostile:CartPole-v1",
        "pettingzoo/../hostile_v0",
        "hostile",
        "gymnasium/GymV21Environment-v0",
        "gymnasium/GymV26Environment-v0",
    ],
)
def test_no_file_chooses_what_is_imported(capsys, run, tmp_path, monkeypatch, name):
    """Looked up in the working folder, as `module:attribute` is where the user gives it."""
    monkeypatch.chdir(tmp_path)
    Path("hostile.py").write_text("import pathlib\npathlib.Path('ran').touch()\nrun = print")
    Path("copy").mkdir()
    config = json.loads((run / "config.json").read_text())
    Path("copy/config.json").write_text(json.dumps({**config, "env": name}))
    for command in ("test", "play"):
        line = refused(capsys, command, "copy", code=1)
        assert f"copy/config.json: the run's environment is {name!r}" in line
        assert "name it yourself with --env" in line
    assert not Path("ran").exists()


def test_a_module_that_the_user_names_is_found_in_the_working_folder_after_all_others(capsys, run, monkeypatch):
    Path("mygame.py").write_text("from tests.toys import Identity as Mine")
    Path("torch.py").write_text("raise ImportError")
    monkeypatch.setattr(sys, "path", [place for place in sys.path if place not in ("", os.getcwd())])
    before = list(sys.path)
    for words in (["envs", "cart"], ["plot", run], ["test", run, "--env", "marltrain/CartPole-v1"]):
        main([str(word) for word in words])
        assert sys.path == before
    capsys.readouterr()
    assert "mean return" in said(capsys, "test", run, "--env", "mygame:Mine", "--episodes", 2)
    assert sys.path == [*before, os.getcwd()]
