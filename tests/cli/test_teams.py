"""--team-reward, --teams and --test-against: from the words to the numbers of a run."""

import json

import pandas as pd
import pytest

from marltrain.cli.teams import teams_of
from marltrain.core.errors import ConfigError
from marltrain.tools.run_files.reading import read_settings
from marltrain.trainer.reporting.run_groups import kinds
from tests.cli.running import SYMBOLS, refused, said

SEATS = "tests.team_toys:Seats"
TEAMS = ["--team-reward", "red=red_*", "--team-reward", "blue=blue_0,blue_1,blue_2"]
BRIEF = ["--algo", "dqn", "--steps-per-train", 12, "--num-train-envs", 2, "--episodes-per-test", 4, "--no-progress",
         "--test-freq-steps", 6, "--seed", 0]  # fmt: skip


def returns(folder):
    """Return the mean returns of the players in the last test, and its metric."""
    last = pd.read_parquet(folder / "history.parquet").iloc[-1]
    return [last[name] for name in last.index if name.startswith("return/")], last["metric"], last["judged"]


def test_teams_are_read():
    assert teams_of("--teams", ["prefix"]) == "prefix"
    assert teams_of("--teams", ["a=x,y_*", "b=z"]) == {"a": ["x", "y_*"], "b": ["z"]}
    for texts in (["a=x", "sum"], ["a="], ["=x"], ["mean", "sum"], ["a=,"]):
        with pytest.raises(ConfigError, match="one word, or TEAM=PLAYER"):
            teams_of("--teams", texts)
    with pytest.raises(ConfigError, match="team 'a' twice"):
        teams_of("--teams", ["a=x", "a=y"])


def test_a_team_is_tested_against_random_players(capsys, tmp_path):
    """Player p gets p + 1 in three steps: red keeps its seats, so its returns are 3 and 6, and the metric is 4.5."""
    said(capsys, "train", SEATS, *BRIEF, *TEAMS, "--test-against", "random", "--run-dir", tmp_path / "r")
    assert returns(tmp_path / "r") == ([3, 6, 9, 12, 15], 4.5, "red_0+red_1")
    config = json.loads((tmp_path / "r" / "config.json").read_text())
    assert config["trainer"]["team_reward"] == {"red": ["red_*"], "blue": ["blue_0", "blue_1", "blue_2"]}


def test_the_other_team_is_tested(capsys, tmp_path):
    said(capsys, "train", SEATS, *BRIEF, *TEAMS, "--test-against", "red_*=random", "--run-dir", tmp_path / "r")
    assert returns(tmp_path / "r") == ([3, 6, 9, 12, 15], 12, "blue_0+blue_1+blue_2")


def test_one_agent_in_all_seats_plays_each_seat(capsys, tmp_path):
    """Five episodes: each entry of the line-up plays each seat once, so that all have the mean return, 3 * 3."""
    words = [*BRIEF, "--share", "--test-against", "random", "--episodes-per-test", 5]
    said(capsys, "train", SEATS, *words, "--run-dir", tmp_path / "r")
    assert returns(tmp_path / "r") == ([9] * 5, 9, "red_0")


def test_a_run_with_random_players_in_tests_is_a_file(capsys, tmp_path):
    out = said(capsys, "train", SEATS, *BRIEF, *TEAMS, "--test-against", "blue_*=random", "--print-config")
    assert 'test_against = {"blue_*" = "random"}' in out.splitlines()
    (tmp_path / "run.toml").write_text(out)
    said(capsys, "train", tmp_path / "run.toml", "--env", SEATS, "--run-dir", tmp_path / "r")
    assert returns(tmp_path / "r") == ([3, 6, 9, 12, 15], 4.5, "red_0+red_1")


@pytest.mark.parametrize(
    ("words", "wanted"),
    [
        (["--share", "--test-against", "random", "--episodes-per-test", 5], ([9] * 5, 9, "red_0")),
        (["--self-play", "--episodes-per-test", 5], ([9] * 5, 9, "red_0")),
        ([*TEAMS, "--test-against", "red_*=random"], ([3, 6, 9, 12, 15], 12, "blue_0+blue_1+blue_2")),
    ],
)
def test_the_config_of_a_run_makes_its_tests_again(capsys, tmp_path, words, wanted):
    said(capsys, "train", SEATS, *BRIEF, *words, "--run-dir", tmp_path / "r")
    again = [tmp_path / "r" / "config.json", "--env", SEATS, "--run-dir", tmp_path / "again"]
    said(capsys, "train", *again, "--no-progress")
    assert returns(tmp_path / "r") == returns(tmp_path / "again") == wanted


def test_runs_of_other_tests_are_not_one_curve(capsys, tmp_path):
    for name, words in (("a", []), ("b", ["--test-against", "random"])):
        said(capsys, "train", SEATS, *BRIEF, *words, "--run-dir", tmp_path / name)
    data = [kind.told for kind in kinds([tmp_path / "a", tmp_path / "b"])]
    assert data == ["tests none", "tests red_0+random+random+random+random"]


def test_two_teams_learn_together(capsys, tmp_path):
    """Each team of qmix needs one reward: the same teams are given twice."""
    words = ["--algo", "qmix", *BRIEF[2:], "--team-reward", "red=red_*", "--team-reward", "blue=blue_*"]
    said(capsys, "train", SEATS, *words, "--teams", "red=red_*", "--teams", "blue=blue_*", "--run-dir", tmp_path / "r")
    config = json.loads((tmp_path / "r" / "config.json").read_text())
    teams = [seat["agent"]["settings"]["team"] for seat in config["seats"]]
    assert teams == ["red", "red", "blue", "blue", "blue"]
    out = said(capsys, "train", SEATS, *words, "--teams", "prefix", "--print-config")
    assert 'teams = "prefix"' in out


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--team-reward", "meen"], "Did you mean 'mean'"),
        (["--team-reward", "red=rad_*"], "'rad_*', which matches no player"),
        (["--team-reward", "red=red_0", "--team-reward", "mean"], "TEAM=PLAYER"),
        (["--teams", "red=red_*"], "teams= is for algorithms whose agents learn together"),
        (["--test-against", "dqn"], "test_against (--test-against) must be"),
        (["--test-against", "gray=random"], "'gray' matches no player"),
        (["--test-against", "red_0=random", "--test-against", "random"], "PLAYER=random"),
        (["--test-against", "red_0=random", "--test-against", "red_0=random"], "twice"),
    ],
)
def test_wrong_words(capsys, tmp_path, words, told):
    assert told in refused(capsys, "train", SEATS, *BRIEF, *words, "--run-dir", tmp_path / "r")
    assert not (tmp_path / "r").exists()


def test_one_player_has_no_opponent(capsys):
    words = ["--algo", "dqn", "--steps-per-train", 8, "--no-progress", "--test-against", "random"]
    assert "there is one side" in refused(capsys, "train", "gymnasium/CartPole-v1", *words)


def test_two_players(capsys, tmp_path):
    words = ["--algo", "dqn", "--steps-per-train", 8, "--no-progress", "--test-against", "random"]
    said(capsys, "train", SYMBOLS, *words, "--episodes-per-test", 2, "--run-dir", tmp_path / "r")
    assert returns(tmp_path / "r")[2] == "player_0"


def test_finders_and_tuners_learn_from_a_team_reward(capsys, tmp_path):
    """The rewards of the players differ, which VDN refuses without a team reward; the file of a study holds it."""
    few = ["--algo", "vdn", "--steps", 12, "--num-train-envs", 2, "--episodes-per-test", 2, "--test-freq-steps", 6]
    few += ["--set", "network=MLP((4,))", "--set", "learning_starts=0", "--set", "update_per_step=0.5"]
    find = ["find", "learning_rate", SEATS, *few, "--rates", "1e-3", "1e-2", "--seeds", 1, "--by", "loss"]
    find += ["--batch-size", 4, "--update-freq", 4, "--out", tmp_path / "a.png"]
    assert "--team-reward" in refused(capsys, *find)
    assert "best learning_rate" in said(capsys, *find, "--team-reward", "mean")
    tune = ["tune", SEATS, *few, "--set", "learning_rate=1e-3", "1e-2", "--trials", 1, "--fresh-seeds", 0]
    said(capsys, *tune, "--out", tmp_path / "t", "--team-reward", "mean")
    assert read_settings(tmp_path / "t" / "settings.toml")["trainer"]["team_reward"] == "mean"
