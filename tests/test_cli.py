import json
import os
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from marltrain.cli import COMMANDS, _value, main
from marltrain.errors import ConfigError, SaveError
from marltrain.policies.networks import CNN, MLP
from marltrain.policies.schedules import linear
from marltrain.trainer.run import Run
from marltrain.trainer.settings import TrainerSettings
from tests.trainer.running import without_pictures

RELAY, SYMBOLS = "tests.toys:Relay", "tests.toys:Identity"


def said(capsys, *words):
    """Run a command that must succeed; return what it printed."""
    assert main([str(word) for word in words]) == 0, capsys.readouterr().err
    return capsys.readouterr().out


def refused(capsys, *words, code=2):
    """Run a command that must fail; return its one line on stderr."""
    assert main([str(word) for word in words]) == code
    captured = capsys.readouterr()
    assert captured.out == ""
    (line,) = captured.err.splitlines()
    assert line.startswith("marltrain: ")
    return line


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A short run, made by the command line."""
    folder = tmp_path_factory.mktemp("runs") / "run"
    words = ["train", SYMBOLS, "--algo", "ppo", "--env-arg", "players=2", "--env-arg=length=7", "--seed", "0"]
    words += ["--set", "learning_rate=linear(0.01, 0, 500)", "--set", "network=MLP((8,))", "--set", "epochs=2"]
    words += ["--num-train-envs", "3", "--num-test-envs", "2", "--update-freq", "42", "--batch-size", "21"]
    words += ["--episodes-per-train", "20", "--test-freq", "10", "--episodes-per-test", "5", "--no-progress"]
    assert main([*words, "--run-dir", str(folder)]) == 0
    return folder


@pytest.fixture(autouse=True)
def _without_pictures(monkeypatch):
    """The run above has drawn one."""
    without_pictures(monkeypatch)


def test_a_run_leaves_everything(run):
    names = {path.name for path in run.iterdir()}
    assert names >= {"best", "last", "history.parquet", "episodes.parquet", "metrics.png", "config.json"}
    config = json.loads((run / "config.json").read_text())
    assert (config["env"], config["env_args"], config["algo"]) == (SYMBOLS, {"players": 2, "length": 7}, "ppo")
    assert (config["seed"], config["trainer"]["update_freq"], config["trainer"]["progress"]) == (0, 42, False)
    settings = config["seats"][0]["agent"]["settings"]
    assert settings["learning_rate"] == {"kind": "linear", "start": 0.01, "stop": 0, "steps": 500}
    assert settings["network"] == {"type": "MLP", "hidden": [8], "activation": "tanh"}
    assert settings["epochs"] == 2


def test_training_says_what_came_of_it(capsys, tmp_path):
    words = [
        SYMBOLS,
        "--algo",
        "dqn",
        "--steps-per-train",
        100,
        "--run-dir",
        tmp_path / "r",
        "--share",
        "--no-progress",
    ]
    out = said(capsys, "train", *words, "--set", "learning_starts=10", "--test-freq", 5, "--num-train-envs", 2)
    assert "10 episodes, 100 env steps" in out
    assert "ended by steps_per_train" in out
    assert "at best" in out
    for name in ("best", "last", "metrics.png"):
        assert f"  {tmp_path / 'r' / name}\n" in out
    config = json.loads((tmp_path / "r" / "config.json").read_text())
    assert isinstance(config["seed"], int)  # drawn, and written down
    assert json.loads((tmp_path / "r" / "best" / "agents.json").read_text())["seats"] == [0, 0]  # shared


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


def test_each_player_has_an_algorithm_of_its_own(capsys, tmp_path):
    """By name and by pattern, with settings of some and of all; the run is recorded, resumed and tested."""
    words: list[object] = [
        "train",
        SYMBOLS,
        "--algo",
        "player_1=dqn",
        "--algo",
        "player_*=ppo",
        "--env-arg",
        "players=3",
    ]
    words += ["--set", "player_1.learning_starts=10", "--set", "player_*.minibatches=1", "--set", "gamma=0.5"]
    words += ["--seed", 1, "--update-freq", 12, "--num-train-envs", 2, "--episodes-per-test", 2, "--no-progress"]
    words += ["--checkpoint", 24, "--run-dir", tmp_path / "r"]
    said(capsys, *words, "--steps-per-train", 24)
    config = json.loads((tmp_path / "r" / "config.json").read_text())
    seats = [seat["agent"] for seat in config["seats"]]
    assert config["algo"] == "ppo+dqn"
    assert [seat["type"] for seat in seats] == ["ppo", "dqn", "ppo"]
    assert [seat["settings"]["gamma"] for seat in seats] == [0.5] * 3
    assert (seats[0]["settings"]["minibatches"], seats[1]["settings"]["learning_starts"]) == (1, 10)
    assert "48 env steps" in said(capsys, *words, "--steps-per-train", 48, "--resume")
    out = said(capsys, "test", tmp_path / "r", "--env", SYMBOLS, "--episodes", 2)
    assert [line.split()[0] for line in out.splitlines()[1:]] == ["player", "player_0", "player_1", "player_2"]


def test_players_at_random_do_not_learn(capsys, tmp_path):
    words = ["--algo", "player_0=dqn", "--algo", "player_1=random", "--steps-per-train", 8, "--no-progress"]
    said(capsys, "train", SYMBOLS, *words, "--episodes-per-test", 2, "--run-dir", tmp_path / "r")
    config = json.loads((tmp_path / "r" / "config.json").read_text())
    assert [seat["learns"] for seat in config["seats"]] == [True, False]


def test_self_play_is_tested_against_random_players(capsys, tmp_path):
    words = ["--algo", "dqn", "--self-play", "--episodes-per-train", 4, "--run-dir", tmp_path / "r", "--no-progress"]
    said(capsys, "train", RELAY, *words, "--seed", 0)
    assert json.loads((tmp_path / "r" / "best" / "agents.json").read_text())["seats"] == [0, 0, 0]


def test_tuned_settings_are_a_beginning(capsys, tmp_path):
    words = ["--algo", "ppo", "--tuned", "--set", "gamma=0.5", "--steps-per-train", "6.4e1", "--episodes-per-test", 2]
    said(capsys, "train", "gymnasium/CartPole-v1", *words, "--run-dir", tmp_path / "r", "--no-progress")
    config = json.loads((tmp_path / "r" / "config.json").read_text())
    settings = config["seats"][0]["agent"]["settings"]
    assert settings["gamma"] == 0.5
    assert settings["epochs"] == 10  # as tuned
    assert config["trainer"]["steps_per_train"] == 64
    assert config["trainer"]["num_train_envs"] == 8  # as tuned


def test_a_run_is_tested(capsys, run):
    out = said(capsys, "test", run, "--env", SYMBOLS, "--episodes", 9, "--seed", 5)
    assert "9 episodes of 7.0 env steps, seed 5" in out
    assert [line.split()[0] for line in out.splitlines()[1:]] == ["player", "player_0", "player_1"]
    assert said(capsys, "test", run, "--env", SYMBOLS, "--episodes", 9, "--seed", 5) == out
    assert said(capsys, "test", run, "--env", SYMBOLS, "--episodes", 9, "--seed", 6) != out
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


def test_runs_are_plotted(capsys, run, tmp_path):
    assert said(capsys, "plot", run, "--x", "time", "--smooth", 2, "--out", tmp_path / "a.png") == f"{tmp_path}/a.png\n"
    assert said(capsys, "plot", run, run) == "runs.png\n"
    assert Path("runs.png").exists()


def test_environments_are_listed(capsys):
    everything = said(capsys, "envs").splitlines()
    assert {"mpe2/simple_spread_v3", "pettingzoo/classic/tictactoe_v3", "gymnasium/CartPole-v1"} <= set(everything)
    assert said(capsys, "envs", "SPREAD").splitlines() == ["marltrain/simple_spread_v3", "mpe2/simple_spread_v3"]


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        ("evns", "'envs'"),
        ("train mpe2/simple_spred_v3 --algo ppo", "'mpe2/simple_spread_v3'"),
        ("train mpe2/simple_spread_v3 --algo dpo", "'ppo'"),
        ("train mpe2/simple_spread_v3 --algo ppo --num-train-env 3", "'--num-train-envs'"),
        ("train mpe2/simple_spread_v3 --algo ppo --num-train-env=3", "'--num-train-envs'"),
        ("train mpe2/simple_spread_v3 --algo PPO", "'ppo'"),
        ("train mpe2/simple_spread_v3 --algo ppo --lr 1e-3", "'--set learning_rate=...'"),
        ("train mpe2/simple_spread_v3 --algo ppo -lr 1e-3", "'--set learning_rate=...'"),
        ("train mpe2/simple_spread_v3 --algo ppo --gama 0.9", "'--set gamma=...'"),
        ("train mpe2/simple_spread_v3 --algo ppo --device cpu", "'--set device=...'"),
        ("train mpe2/simple_spread_v3 --algo ppo --total-timesteps 5", "'--steps-per-train'"),
        ("train mpe2/simple_spread_v3 --algo ppo --steps 5", "'--steps-per-train'"),
        ("train mpe2/simple_spread_v3 --algo ppo --set gama=0.9", "'gamma'"),
        ("train mpe2/simple_spread_v3 --algo ppo --set lr=0.9", "'learning_rate'"),
        ("train mpe2/simple_spread_v3 --algo ppo --set network=MPL((8,))", "'MLP'"),
        ("train mpe2/simple_spread_v3 --algo ppo --env-arg max_cycle=9", "'max_cycles'"),
        ("train mpe2/simple_spread_v3 --algo ppo --vector subprc", "'subproc'"),
        ("train mpe2/simple_spread_v3 --algo ppo --team-reward men", "'mean'"),
        ("train mpe2/simple_spread_v2 --algo ppo --tuned", "'ppo on mpe2/simple_spread_v3'"),
        ("train tests.toys:Rely --algo ppo", "'Relay'"),
        ("plot RUN --x step", "'steps'"),
        ("test RUN --env tests.toys:Identity --random player_7", "'player_"),
        ("test RUN --episode 3", "'--episodes'"),
        ("envs sprd", "'spread'"),
    ],
)
def test_a_wrong_name_suggests_the_nearest(capsys, run, words, hint):
    line = refused(capsys, *words.replace("RUN", str(run)).split())
    assert f"Did you mean {hint}" in line
    assert not Path("runs").exists()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("train", "required: ENV, --algo"),
        ("train gymnasium/CartPole-v1 --algo", "expected one argument"),
        ("train gymnasium/CartPole-v1 --algo ppo --seed x", "invalid integer value: 'x'"),
        ("train gymnasium/CartPole-v1 --algo ppo --seed 1.5", "invalid integer value: '1.5'"),
        ("train gymnasium/CartPole-v1 --algo ppo --seed 1e999", "invalid integer value: '1e999'"),
        ("train gymnasium/CartPole-v1 --algo ppo --set epochs=1.5", "PPO: epochs must be an integer, got 1.5"),
        ("train mpe2/simple_spread_v3 --algo ppo --set num_envs=3", "the trainer's option '--num-train-envs'?"),
        ("train mpe2/simple_spread_v3 --algo ppo --set steps_per_train=3", "the trainer's option '--steps-per-train'?"),
        ("train gymnasium/CartPole-v1 --algo ppo --seed -1", "seed must be at least 0"),
        ("train mpe2/simple_spread_v3 --algo ppo --algo dqn", "--algo takes one ALGO for all players, or PLAYER=ALGO"),
        ("train mpe2/simple_spread_v3 --algo =dqn", "or PLAYER=ALGO for each, got '=dqn'"),
        ("train mpe2/simple_spread_v3 --algo a=dqn --algo a=ppo", "--algo names 'a' twice"),
        ("train mpe2/simple_spread_v3 --algo agent_*=dqn --tuned", "--tuned needs one algorithm for all players"),
        ("train mpe2/simple_spread_v3 --algo agent_*=dqn --self-play", "--self-play needs one algorithm"),
        (
            "train mpe2/simple_spread_v3 --algo agent_0=dqn",
            "player 'agent_1' of mpe2/simple_spread_v3 is matched by none",
        ),
        (
            "train mpe2/simple_spread_v3 --algo agent_*=dqm",
            "name['agent_*']: no algorithm is called 'dqm'. Did you mean",
        ),
        ("train mpe2/simple_spread_v3 --algo ppo --set agent_0.gamma=1", "no --algo is given for 'agent_0'. Give one"),
        ("train mpe2/simple_spread_v3 --algo agent_*=ppo --set agent_*.gama=1", "'agent_0': PPO has no setting 'gama'"),
        ("train gymnasium/CartPole-v1 --algo ppo --set gamma", "KEY=VALUE, got 'gamma'"),
        ("train gymnasium/CartPole-v1 --algo ppo --set gamma=1 --set gamma=0.9", "'gamma' twice"),
        ("train gymnasium/CartPole-v1 --algo ppo --set gamma=2", "at most 1"),
        ("train gymnasium/CartPole-v1 --algo ppo --set network=MLP(8)", "cannot be made"),
        ("train gymnasium/CartPole-v1 --algo ppo --set clip=linear(1,0)", "--set clip: 'linear(1,0)' cannot be"),
        ("train gymnasium/CartPole-v1 --algo ppo --checkpoint 0", "--checkpoint: Checkpoint: every_steps must be"),
        ("train gymnasium/CartPole-v1 --algo ppo extra", "unrecognized arguments: extra"),
        ("train gymnasium/CartPole-v1 --algo ppo --set batch_size=5000", "exceeds one rollout"),
        ("play RUN --env tests.toys:Identity --out film.avi", ".gif or .mp4"),
        ("test RUN --env tests.toys:Identity --episodes 0", "episodes must be at least 1"),
        ("test RUN --agents worst", "invalid choice"),
    ],
)
def test_wrong_arguments_are_one_line(capsys, run, words, said):
    assert said in refused(capsys, *words.replace("RUN", str(run)).split())


def test_what_fails_on_the_way_is_one_line_too(capsys, run, tmp_path):
    assert "there is no such folder" in refused(capsys, "test", tmp_path / "nothing", code=1)
    assert "config.json: cannot be read" in refused(capsys, "test", tmp_path, code=1)
    assert "is not a run's folder" in refused(capsys, "plot", tmp_path, code=1)
    (tmp_path / "config.json").write_text("{}")
    assert "names no environment" in refused(capsys, "play", tmp_path, code=1)
    words = ["play", run, "--env", SYMBOLS, "--out", "film.gif"]
    assert "render_mode" in refused(capsys, *words, code=1)  # this one draws nothing


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


COMMAND = "import sys; from marltrain.cli import main; sys.exit(main())"


@pytest.mark.parametrize("python", [["-m", "marltrain"], ["-P", "-c", COMMAND]])
def test_a_folder_of_a_run_executes_nothing(run, tmp_path, python):
    """A downloaded one may hold a file of any module's name; `-P` is PYTHONSAFEPATH=1, and the installed command."""
    hostile = "open('ran', 'a').write(__name__ + '\\n')\nraise ImportError(__name__)\n"
    for name in {*sys.stdlib_module_names, "gymnasium", "matplotlib", "numpy", "pandas", "pyarrow", "torch", "yaml"}:
        (tmp_path / f"{name}.py").write_text(hostile)
    for name in ("config.json", "history.parquet"):
        (tmp_path / name).write_bytes((run / name).read_bytes())
    words = [sys.executable, *python, "plot", "."]
    done = subprocess.run(words, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert (done.stdout, done.stderr, done.returncode) == ("runs.png\n", "", 0)
    assert not (tmp_path / "ran").exists()


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


def test_a_reader_that_is_gone_ends_the_command_without_a_word():
    """As in `marltrain envs | head -1`."""
    command = subprocess.Popen(
        [sys.executable, "-c", COMMAND, "envs"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert command.stdout is not None
    command.stdout.close()
    _, told = command.communicate()
    assert (command.returncode, told) == (141, "")


def test_another_broken_pipe_is_no_reader_that_is_gone(monkeypatch):
    def broken(given):
        raise BrokenPipeError("of a worker")

    monkeypatch.setitem(COMMANDS, "envs", type(COMMANDS["envs"])("", lambda parser: None, broken))
    with pytest.raises(BrokenPipeError, match="of a worker"):
        main(["envs"])


def test_interrupting_is_no_traceback(capsys, monkeypatch):
    def interrupted(given):
        raise KeyboardInterrupt

    monkeypatch.setitem(COMMANDS, "envs", type(COMMANDS["envs"])("", lambda parser: None, interrupted))
    assert main(["envs"]) == 130
    assert capsys.readouterr().err == "marltrain: interrupted\n"


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("3", 3), ("-1e-3", -1e-3), ("true", True), ("None", None), ("[1, 'a']", [1, "a"]), ("adam", "adam"),
        ("linear(1, 0.05, 20)", linear(1, 0.05, 20)), ("MLP((8, 4), activation='relu')", MLP((8, 4), "relu")),
        ("CNN(hidden=(8,))", CNN(hidden=(8,))), ("a/b c", "a/b c"), ("", ""),
    ],
)  # fmt: skip
def test_values_are_read(text, value):
    assert _value(text) == value
    assert type(_value(text)) is type(value)


@pytest.mark.parametrize("text", ["print(1)", "__import__('os')", "linear(1)", "MLP(hidden=(0,))", "MLP(x)"])
def test_values_run_no_code(text):
    with pytest.raises(ConfigError):
        _value(text)


def test_every_setting_of_the_trainer_is_an_option(capsys):
    with pytest.raises(SystemExit) as done:
        main(["train", "--help"])
    assert done.value.code == 0
    out = capsys.readouterr().out
    for name in TrainerSettings.__dataclass_fields__:
        assert f"--{name.replace('_', '-')}" in out
    assert "epsilon" in out
    assert "linear(1.0, 0.05, 20000)" in out


@pytest.mark.parametrize("words", [[], ["--help"], ["-h"]])
def test_the_overview_names_the_commands(capsys, words):
    out = said(capsys, *words)
    assert all(f"  {name} " in out for name in COMMANDS)


def test_help_is_quick_and_the_module_runs():
    code = (
        "import sys, runpy\nsys.argv = ['marltrain', '--help']\n"
        "try:\n    runpy.run_module('marltrain', run_name='__main__')\n"
        "finally:\n    heavy = {'torch', 'pandas', 'matplotlib', 'numba', 'pettingzoo'}\n"
        "    print(heavy & set(sys.modules), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("usage: marltrain COMMAND")
    assert done.stderr.strip() == "set()"


def test_a_run_is_resumed(capsys, tmp_path):
    """Run to 63 env steps and from there to 126; at once; and without the folder's name."""
    words = [
        "train",
        SYMBOLS,
        "--algo",
        "ppo",
        "--env-arg",
        "length=7",
        "--seed",
        1,
        "--num-train-envs",
        3,
        "--no-progress",
    ]
    words += ["--update-freq", 21, "--set", "minibatches=1", "--episodes-per-test", 2, "--test-freq", 4]
    said(capsys, *words, "--run-dir", tmp_path / "half", "--checkpoint", 20, "--steps-per-train", 63)
    assert (tmp_path / "half" / "checkpoints" / "63").is_dir()
    again = said(capsys, *words, "--run-dir", tmp_path / "half", "--resume", "--steps-per-train", 126)
    whole = said(capsys, *words, "--run-dir", tmp_path / "whole", "--steps-per-train", 126)
    assert "18 episodes, 126 env steps" in whole
    lines = [[line for line in out.splitlines() if line.startswith("metric")] for out in (again, whole)]
    assert lines[0] == lines[1] != []
    assert "name the folder of the run with --run-dir" in refused(capsys, *words, "--resume")
    assert "--any-threads has a meaning only with --resume" in refused(capsys, *words, "--any-threads")


def test_what_is_known_besides_follows_the_error(capsys, monkeypatch):
    def failing(given):
        error = SaveError("no room")
        error.add_note("run/checkpoints/30 is whole")
        raise error

    monkeypatch.setitem(COMMANDS, "envs", type(COMMANDS["envs"])("", lambda parser: None, failing))
    assert main(["envs"]) == 1
    assert capsys.readouterr().err == "marltrain: no room\nrun/checkpoints/30 is whole\n"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_run_says_how_to_go_on(capsys, tmp_path, monkeypatch, number):
    """The command that is printed goes on with the run; the exit code is a shell's for Ctrl-C."""
    words = ["train", SYMBOLS, "--algo", "ppo", "--env-arg", "length=7", "--no-progress", "--num-train-envs", "3"]
    words += ["--update-freq", "21", "--set", "minibatches=1", "--episodes-per-test", "2", "--steps-per-train", "126"]
    folder = tmp_path / "a run"
    played, collect = iter(range(1000)), Run.collect

    def interrupted(self):
        collect(self)
        if next(played) == 20:
            os.kill(os.getpid(), number)

    monkeypatch.setattr(Run, "collect", interrupted)
    assert main([*words, "--run-dir", str(folder), "--checkpoint", "30"]) == 130
    out = capsys.readouterr().out
    assert "63 env steps" in out
    (line,) = [line for line in out.splitlines() if line.startswith("go on with: ")]
    command = shlex.split(line.removeprefix("go on with: "))
    assert command == ["marltrain", *words, "--checkpoint", "30", "--run-dir", str(folder), "--resume"]
    assert "126 env steps" in said(capsys, *command[1:])
    played = iter(range(1000))
    assert main([*words, f"--run-dir={tmp_path / 'other'}"]) == 130
    out = capsys.readouterr().out
    assert "interrupted: there is no checkpoint to go on from; --checkpoint STEPS writes some" in out
    assert "go on with" not in out
