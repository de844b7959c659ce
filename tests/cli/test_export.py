"""`marltrain export`: a file for each agent of a run."""

import numpy as np

import marltrain as mt
from tests.cli.running import SYMBOLS, refused, said


def test_a_file_for_each_agent(run, tmp_path, capsys):
    data = said(capsys, "export", run, "--env", SYMBOLS, "--format", "torch", "--out", tmp_path, "--observations", "50")
    agents = mt.load(run / "best")
    for line, name, agent in zip(data.splitlines(), ("player_0", "player_1"), agents, strict=True):
        assert line.startswith(f"{tmp_path / name}.pt2 ({name}): 50 observations, largest differences: action 0, ")
        policy = mt.load_exported(tmp_path / f"{name}.pt2")
        assert policy.description["players"] == [name] and policy.description["env"] == SYMBOLS
        assert policy.description["env_args"] == {"players": 2, "length": 7}
        np.testing.assert_array_equal(policy.act(np.arange(3))[0], agent.act(np.arange(3)))


def test_what_the_command_refuses(run, tmp_path, capsys):
    line = refused(capsys, "export", run, "--env", SYMBOLS, "--player", "player_2", "--out", tmp_path)
    assert "has no player 'player_2'" in line and "There are player_0, player_1" in line
    assert "Did you mean 'onnx'?" in refused(capsys, "export", run, "--env", SYMBOLS, "--format", "onx")
    assert "no such folder" in refused(capsys, "export", tmp_path / "none", code=1)
    assert not list(tmp_path.iterdir())


def test_agents_without_networks_are_left_out(tmp_path, capsys):
    words = ["train", SYMBOLS, "--algo", "player_0=ppo", "--algo", "player_1=random", "--episodes-per-train", "2"]
    said(capsys, *words, "--episodes-per-test", "1", "--no-progress", "--run-dir", tmp_path / "run")
    words = ["export", tmp_path / "run", "--env", SYMBOLS, "--format", "torch", "--observations", "10"]
    left_out, result = said(capsys, *words).splitlines()
    assert left_out == "player_1: left out, a RandomAgent has no network to export" and "player_0.pt2" in result
    assert "RandomAgent" in refused(capsys, *words, "--player", "player_1")
