"""`marltrain train` with files: a run from TOML, from config.json and from --print-config is the same run."""

from __future__ import annotations

import numpy as np

import marltrain as mt
from marltrain.storage.files import read_arrays
from tests.cli.running import SYMBOLS, refused, said

RUN = f"""
env = "{SYMBOLS}"

[env_args]
players = 2
length = 7

[trainer]
seed = 0
num_train_envs = 3
num_test_envs = 2
update_freq = 42
batch_size = 21
episodes_per_train = 20
test_freq = 10
episodes_per_test = 5
progress = false

[players.player_0]
algo = "ppo"
learning_rate = "linear(0.01, 0, 500)"

[players."*_1"]
algo = "dqn"
learning_starts = 14
memory = "Replay(prioritized=Prioritized())"

[agents]
network = "MLP((8,))"

[[callbacks]]
type = "ReduceOnPlateau"
players = ["player_1"]
patience = 1
"""


def weights(run):
    return read_arrays(run / "last" / "agents.safetensors")


def assert_equal_runs(one, other):
    expected, result = weights(one), weights(other)
    assert expected.keys() == result.keys()
    for name, array in expected.items():
        np.testing.assert_array_equal(result[name], array, err_msg=name)


def test_the_same_run_from_each_file(tmp_path, capsys):
    (tmp_path / "run.toml").write_text(RUN)
    train = ["train", tmp_path / "run.toml", "--env", SYMBOLS]
    said(capsys, *train, "--run-dir", tmp_path / "one")
    printed = said(capsys, *train, "--print-config")
    assert not (tmp_path / "runs").exists() and 'memory = "Replay(' in printed and "[[callbacks]]" in printed
    (tmp_path / "again.toml").write_text(printed)
    said(capsys, "train", tmp_path / "again.toml", "--env", SYMBOLS, "--run-dir", tmp_path / "two")
    assert said(capsys, "train", tmp_path / "again.toml", "--env", SYMBOLS, "--print-config") == printed
    said(capsys, "train", tmp_path / "one" / "config.json", "--env", SYMBOLS, "--run-dir", tmp_path / "three")
    assert_equal_runs(tmp_path / "one", tmp_path / "two")
    assert_equal_runs(tmp_path / "one", tmp_path / "three")


def test_options_take_precedence_over_a_file(tmp_path, capsys):
    (tmp_path / "run.toml").write_text(RUN)
    words = ["--seed", 5, "--set", "gamma=0.9", "--set", "*_1.tau=0.1", "--env-arg", "length=3", "--patience", 4]
    printed = said(capsys, "train", tmp_path / "run.toml", "--env", SYMBOLS, *words, "--print-config")
    for line, count in (("seed = 5", 1), ("gamma = 0.9", 2), ("tau = 0.1", 1), ("length = 3", 1), ("patience = 4", 1)):
        assert printed.splitlines().count(line) == count, line
    one = said(capsys, "train", tmp_path / "run.toml", "--env", SYMBOLS, "--algo", "a2c", "--print-config")
    assert 'algo = "a2c"' in one and "[players" not in one


def test_initial_weights(tmp_path, capsys):
    agents = mt.make_agents("ppo", "tests.toys:Identity", env_args={"players": 2}, seed=7, network=mt.MLP((8,)))
    mt.save(tmp_path / "weights", agents, players=["player_0", "player_1"], weights_only=True)
    words = ["train", SYMBOLS, "--algo", "ppo", "--set", "network=MLP((8,))", "--set", "learning_rate=0"]
    words += ["--episodes-per-train=2", "--num-train-envs=1", "--no-progress", "--episodes-per-test=1"]
    said(capsys, *words, "--weights", tmp_path / "weights", "--run-dir", tmp_path / "run")
    for seat, agent in enumerate(agents):
        expected = agent.state().arrays["net/actor/hidden0.weight"]
        np.testing.assert_array_equal(weights(tmp_path / "run")[f"{seat}/net/actor/hidden0.weight"], expected)
    words[words.index("network=MLP((8,))")] = "network=MLP((9,))"
    line = refused(capsys, *words, "--weights", tmp_path / "weights", code=1)
    assert "its weights do not fit the PPO" in line and "hidden0.weight is [3, 8], expected [3, 9]" in line


def test_what_files_may_not_do(tmp_path, capsys):
    (tmp_path / "run.toml").write_text(RUN)
    assert "No file may choose what code is run" in refused(capsys, "train", tmp_path / "run.toml")
    assert "--env has a meaning only with the file" in refused(
        capsys, "train", SYMBOLS, "--algo", "ppo", "--env", SYMBOLS
    )
    (tmp_path / "run.toml").write_text(RUN.replace("num_train_envs", "num_train_env"))
    line = refused(capsys, "train", tmp_path / "run.toml", "--env", SYMBOLS)
    assert "run.toml:10: [trainer] there is no setting 'num_train_env'. Did you mean 'num_train_envs'?" in line
    assert "no algorithm is given" in refused(capsys, "train", SYMBOLS)


SHARED = """
share = true
[env_args]
players = 3
[trainer]
seed = 0
episodes_per_train = 2
episodes_per_test = 1
progress = false
[agents]
network = "MLP((8,))"
[players.player_0]
algo = "dqn"
[players."*_[12]"]
algo = "dqn"
"""


def test_shared_agents_are_shared_again(tmp_path, capsys):
    """Two of three players share an agent; the third has its own with the same settings."""
    (tmp_path / "run.toml").write_text(f'env = "{SYMBOLS}"\n{SHARED}')
    printed = said(capsys, "train", tmp_path / "run.toml", "--env", SYMBOLS, "--print-config")
    (tmp_path / "again.toml").write_text(printed)
    said(capsys, "train", tmp_path / "run.toml", "--env", SYMBOLS, "--run-dir", tmp_path / "one")
    again = [tmp_path / "again.toml", tmp_path / "one" / "config.json"]
    for text in (printed, *(said(capsys, "train", file, "--env", SYMBOLS, "--print-config") for file in again)):
        assert [line for line in text.splitlines() if line.startswith(("[players", "share ="))] == [
            "share = true", "[players.player_0]", '[players."player_*"]',
        ]  # fmt: skip


def test_loggers_are_a_part_of_a_file(tmp_path, capsys):
    (tmp_path / "run.toml").write_text(RUN + '[[callbacks]]\ntype = "JSONLinesLogger"\nevery = 100.0\n')
    words = ["train", tmp_path / "run.toml", "--env", SYMBOLS]
    printed = said(capsys, *words, "--log", "csv", "--dashboard", "--print-config")
    assert 'type = "JSONLinesLogger"\nevery = 100.0\n\n[[callbacks]]\ntype = "CSVLogger"\n' in printed
    assert 'progress = "dashboard"\n' in printed
    assert "--log: the file has a JSONLinesLogger already" in refused(capsys, *words, "--log", "jsonl")
    assert said(capsys, *_written(tmp_path, printed), "--print-config") == printed
    said(capsys, *words, "--run-dir", tmp_path / "one")
    assert (tmp_path / "one" / "scalars.jsonl").stat().st_size
    again = said(capsys, "train", tmp_path / "one" / "config.json", "--env", SYMBOLS, "--print-config")
    assert again.endswith('type = "JSONLinesLogger"\nevery = 100.0\n')


def _written(folder, text):
    (folder / "again.toml").write_text(text)
    return ["train", folder / "again.toml", "--env", SYMBOLS]


class Mine(mt.PPO):
    """An agent class of the user's own, with a registered algorithm."""


def test_an_agent_class_of_your_own_is_not_written_as_its_algorithm(tmp_path, capsys):
    words = ["train", SYMBOLS, "--algo", "tests.cli.test_train_files:Mine", "--steps-per-train", 30, "--no-progress"]
    assert "a file cannot describe a Mine" in refused(capsys, *words, "--print-config")
    said(capsys, *words, "--run-dir", tmp_path / "run", "--episodes-per-test", 1)
    line = refused(capsys, "train", tmp_path / "run" / "config.json", "--env", SYMBOLS)
    assert "the agent of 'player_0' is a Mine, which no file can make" in line


def test_a_run_in_which_no_player_learns_is_refused(tmp_path, capsys):
    text = RUN.replace('algo = "ppo"', 'algo = "ppo"\nlearns = false')
    (tmp_path / "run.toml").write_text(text.replace('algo = "dqn"', 'algo = "dqn"\nlearns = false'))
    words = ["train", tmp_path / "run.toml", "--env", SYMBOLS, "--run-dir", tmp_path / "run"]
    assert "no player learns: set learns = true" in refused(capsys, *words)
    assert not (tmp_path / "run").exists()


def test_tuned_settings_of_shared_agents_are_in_the_complete_run(capsys):
    words = ["train", "pettingzoo/classic/tictactoe_v3", "--algo", "dqn", "--self-play", "--tuned", "--seed", 3]
    lines = said(capsys, *words, "--print-config").splitlines()
    assert "self_play = true" in lines and "seed = 3" in lines and not any("tuned" in line for line in lines)
