"""The examples run as their first lines say, each as a process of its own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.tiers import LONG

EXAMPLES = Path(__file__).parents[2] / "examples"


def run(*command: str) -> str:
    done = subprocess.run([sys.executable, *command], capture_output=True, text=True, timeout=150, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


if LONG:

    def test_a_newcomer_trains_on_a_game_of_forty_lines_with_a_short_script():
        """The short tier runs both files in fewer steps, with the pages that show them."""
        data = run(str(EXAMPLES / "first_run.py"))
        metrics = [float(value) for value in data.split("[")[1].split("]")[0].split(",")]
        assert metrics[-1] > metrics[0] + 8  # of at most 20 meetings an episode
        (folder,) = Path("runs").iterdir()
        for name in ("metrics.png", "history.parquet", "episodes.parquet", "config.json", "best", "last"):
            assert (folder / name).exists()

    @pytest.mark.parametrize("algo", ["ppo", "dqn"])
    def test_the_game_of_images_trains(algo):
        data = run(str(EXAMPLES / "apples.py"), "--algo", algo, "--steps", "600", "--run-dir", "apples")
        assert "untrained" in data and Path("apples/metrics.png").exists()


def test_the_demo_runs():
    data = run(str(EXAMPLES / "spread.py"), "--steps", "1024", "--run-dir", "spread")
    assert "random play" in data and Path("spread/best/agents.json").exists()
