import json
import os
import shlex
import signal

import pytest

from marltrain.cli import main
from marltrain.trainer.settings import TrainerSettings
from marltrain.trainer.training.run import Run
from tests.cli.running import RELAY, SYMBOLS, refused, said


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


def test_every_setting_of_the_trainer_is_an_option(capsys):
    with pytest.raises(SystemExit) as done:
        main(["train", "--help"])
    assert done.value.code == 0
    out = capsys.readouterr().out
    for name in TrainerSettings.__dataclass_fields__:
        assert f"--{name.replace('_', '-')}" in out


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


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_run_says_how_to_go_on(capsys, tmp_path, monkeypatch, number):
    """The command that is printed goes on with the run; the exit code is a shell's for Ctrl-C."""
    words = ["train", SYMBOLS, "--algo", "ppo", "--env-arg", "length=7", "--no-progress", "--num-train-envs", "3"]
    words += ["--update-freq", "21", "--set", "minibatches=1", "--episodes-per-test", "2", "--steps-per-train", "126"]
    folder = tmp_path / "a run"
    played, collect = iter(range(1000)), Run.collect

    def interrupted(self):
        steps = collect(self)
        if next(played) == 20:
            os.kill(os.getpid(), number)
        return steps

    monkeypatch.setattr(Run, "collect", interrupted)
    assert main([*words, "--run-dir", str(folder), "--checkpoint", "30"]) == 130
    out = capsys.readouterr().out
    assert "63 env steps" in out
    (line,) = [line for line in out.splitlines() if line.startswith("resume with: ")]
    command = shlex.split(line.removeprefix("resume with: "))
    assert command == ["marltrain", *words, "--checkpoint", "30", "--run-dir", str(folder), "--resume"]
    assert "126 env steps" in said(capsys, *command[1:])
    played = iter(range(1000))
    assert main([*words, f"--run-dir={tmp_path / 'other'}"]) == 130
    out = capsys.readouterr().out
    assert "interrupted: there is no checkpoint to resume from; --checkpoint STEPS writes some" in out
    assert "resume with" not in out


@pytest.mark.parametrize(
    ("words", "steps"),
    [(["--set", "update_freq=20", "--update-freq", 50], 5), (["--update-freq", 50], 2), ([], 1)],
    ids=["of the agents", "option", "of the algorithm"],
)
def test_update_frequency_is_the_agents_the_option_or_the_algorithms(capsys, tmp_path, words, steps):
    few = ["--steps-per-train", 100, "--num-train-envs", 2, "--test-freq", 50, "--no-progress"]
    out = said(capsys, "train", SYMBOLS, "--algo", "a2c", "--share", "--run-dir", tmp_path / "r", *few, *words)
    assert f"{steps} gradient steps" in out


def test_training_ends_at_a_target_and_rates_fall_on_plateaus(capsys, tmp_path):
    words = [SYMBOLS, "--algo", "ppo", "--num-train-envs", 2, "--update-freq", 10, "--test-freq", 2, "--no-progress"]
    words += ["--steps-per-train", 100, "--batch-size", 10, "--episodes-per-test", 2, "--run-dir"]
    out = said(capsys, "train", *words, tmp_path / "r", "--target", -1000, "--patience", 9)
    assert "ended by target -1000 reached: mean " in out
    out = said(capsys, "train", *words, tmp_path / "s", "--patience", 2, "--over-tests", 2, "--min-delta", 1e6)
    assert "ended by no improvement in 2 tests: best mean " in out
    said(
        capsys,
        "train",
        *words,
        tmp_path / "t",
        "--plateau",
        1,
        "--plateau-factor",
        0.1,
        "--plateau-low",
        1e-4,
        "--min-delta",
        1e6,
    )
    agents = json.loads((tmp_path / "t" / "last" / "agents.json").read_text())
    assert '"learning_rate": 0.0001' in json.dumps(agents)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--patience", 0], "--patience: EarlyStopping: patience must be at least 1, got 0"),
        (["--plateau", 2, "--plateau-factor", 2], "--plateau: ReduceOnPlateau: factor must be at most 1, got 2"),
        (["--plateau-low", 2], "--plateau-low has a meaning only with --plateau"),
        (["--over-tests", 2], "--over-tests has a meaning only with --target, --patience or --plateau"),
        (["--target", 1, "--over-tests", 2, "--over-episodes", 2], "tests or over training episodes: give one of both"),
        (["--target", 1, "--test-freq", "none"], "test_freq=None switches tests off"),
        (["--log", "csv", "--project", "mine"], "--project has a meaning only with --log wandb or --log mlflow"),
        (["--log", "tensorbord"], "argument --log: invalid choice: 'tensorbord'"),
    ],
)
def test_options_of_callbacks_are_checked(capsys, tmp_path, words, message):
    assert message in refused(capsys, "train", SYMBOLS, "--algo", "ppo", "--run-dir", tmp_path / "r", *words)
    assert not (tmp_path / "r").exists()


def test_log_adds_loggers(capsys, tmp_path):
    words = f"train {SYMBOLS} --algo ppo --env-arg players=2 --log csv --log jsonl --steps-per-train 8 --no-progress"
    said(capsys, *words.split(), "--episodes-per-test", "1", "--run-dir", tmp_path / "run")
    assert (tmp_path / "run" / "scalars.csv").is_file() and (tmp_path / "run" / "scalars.jsonl").is_file()
