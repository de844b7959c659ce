"""A fixture of the tests of the command line: a short run."""

import pytest

from marltrain.cli import main
from tests.cli.running import SYMBOLS


@pytest.fixture(scope="session")
def run(tmp_path_factory):
    """A short run, made by the command line."""
    folder = tmp_path_factory.mktemp("runs") / "run"
    words = ["train", SYMBOLS, "--algo", "ppo", "--env-arg", "players=2", "--env-arg=length=7", "--seed", "0"]
    words += ["--set", "learning_rate=linear(0.01, 0, 500)", "--set", "network=MLP((8,))", "--set", "epochs=2"]
    words += ["--num-train-envs", "3", "--num-test-envs", "2", "--update-freq", "42", "--batch-size", "21"]
    words += ["--episodes-per-train", "20", "--test-freq", "10", "--episodes-per-test", "5", "--no-progress"]
    assert main([*words, "--run-dir", str(folder)]) == 0
    return folder
